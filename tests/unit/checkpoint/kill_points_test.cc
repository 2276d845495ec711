// A process that writes checkpoints dies at each of its write points: what was there before, or
// what it was writing, is there whole, and the next save goes as if nothing had been.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "checkpoint/export.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "ir/text.h"
#include "tests/kill_points.h"

namespace meshwright::checkpoint {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

constexpr int64_t kKilledRows = 4096;

// A state whose bytes say which step it is of: weights and an optimizer's, in two files.
struct StateOfStep {
  explicit StateOfStep(int64_t step)
      : weights(kKilledRows * 4, static_cast<std::byte>(step)),
        moments(kKilledRows * 4, static_cast<std::byte>(step + 100)) {}
  std::vector<BoxBytes> boxes() const {
    const ir::TensorType type{ir::DType::kF32, {kKilledRows}};
    const ir::Box box{{0}, {kKilledRows}};
    return {{"w", type, ir::MemoryKind::kWeights, box, weights},
            {"w.m", type, ir::MemoryKind::kOptimizer, box, moments}};
  }
  std::vector<std::byte> weights, moments;
};

class KillPoints : public ::testing::Test {
 protected:
  KillPoints()
      : dir_(TempDir::Make().value()),
        model_(ir::ParseGraph(R"(graph "loss" {
          %0 = param {decay=0, export_name="w", init="zeros", name="w", std=0.0} : f32[4096]
          output "x" %0
        })")
                   .value()) {}
  std::string folder() const { return dir_.path(); }

  // As a member of a mesh, and who commits, do: with exported weights, and one to keep.
  Status Save(int64_t step) const {
    const StateOfStep state(step);
    const std::string name = TemporaryName(step, 7);
    Manifest manifest;
    manifest.step = step;
    Shards written;
    MW_ASSIGN_OR_RETURN(const auto images, MakeShards(0, state.boxes()));
    for (const ShardImage& image : images) {
      MW_TRY(WriteShard(folder() + "/" + name, image));
      AddShard(written, image);
    }
    MW_TRY(AddShards(manifest, written));
    MW_TRY(Commit(folder(), name, manifest, {{kJobName, "the job"}},
                  [&](const std::string& temporary) {
                    return ExportSave(temporary, manifest, model_, ir::DType::kF32);
                  }));
    return Prune(folder(), 1, "");
  }

  // The newest checkpoint is whole, and of one step.
  int64_t NewestWhole() const {
    const std::vector<int64_t> steps = ListSteps(folder()).value();
    EXPECT_FALSE(steps.empty());
    if (steps.empty()) return -1;
    auto reader = Reader::OpenFolder(folder() + "/" + StepName(steps[0]));
    EXPECT_TRUE(reader.has_value()) << reader.error();
    if (!reader.has_value()) return -1;
    const Status verified = (*reader)->Verify();
    EXPECT_TRUE(verified.ok()) << verified;
    const StateOfStep state(steps[0]);
    for (const BoxBytes& box : state.boxes()) {
      EXPECT_EQ((*reader)->ReadBox(box.tensor, box.type, box.box).value(),
                std::vector<std::byte>(box.bytes.begin(), box.bytes.end()));
    }
    EXPECT_EQ((*reader)->ReadAll(kJobName).value_or(""), "the job");
    EXPECT_TRUE(FileExists(folder() + "/" + StepName(steps[0]) + "/hf/model.safetensors"));
    return steps[0];
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  const TempDir dir_;
  const ir::Graph model_;
};

TEST_F(KillPoints, AtEachOfThemACheckpointIsWholeAndTheNextSaveGoes) {
  const std::set<std::string> points =
      meshwright::testing::FailpointsIn(MESHWRIGHT_SOURCE_DIR "/checkpoint", "checkpoint.");
  ASSERT_GE(points.size(), 12u);
  ASSERT_TRUE(Save(1).ok());
  int64_t step = 1;
  for (const std::string& point : points) {
    SCOPED_TRACE(point);
    EXPECT_TRUE(meshwright::testing::DiesAt(point, [&] { return Save(step + 1); }));
    EXPECT_THAT(NewestWhole(), AnyOf(step, step + 1));
    // The same step again, as a run that goes on from the one before comes to it.
    const Status again = Save(step + 1);
    ASSERT_TRUE(again.ok()) << again;
    EXPECT_EQ(NewestWhole(), ++step);
    EXPECT_THAT(ListSteps(folder()).value(), ElementsAre(step));
    EXPECT_THAT(Names(), Not(Contains(::testing::HasSubstr(".tmp-")))) << "it is never cleaned up";
  }
}

TEST_F(KillPoints, InTheMiddleOfAFile) {
  ASSERT_TRUE(Save(1).ok());
  for (const int64_t pass : {2, 3, 4}) {
    EXPECT_TRUE(meshwright::testing::DiesAt(
        "checkpoint.shard.appended", [&] { return Save(2); }, pass));
    EXPECT_EQ(NewestWhole(), 1);
  }
}

// Nobody heard that it was done: who asks again finds that it is.
TEST_F(KillPoints, ACommitIsFoundDoneBehindItsRename) {
  ASSERT_TRUE(Save(1).ok());
  EXPECT_TRUE(
      meshwright::testing::DiesAt("checkpoint.commit.before-latest", [&] { return Save(2); }));
  const auto text = ReadFile(folder() + "/step-00000002/manifest.json");
  ASSERT_TRUE(text.has_value()) << text.error();
  const Status again =
      Commit(folder(), TemporaryName(2, 7), ParseManifest(*text).value(), {{kJobName, "the job"}});
  EXPECT_TRUE(again.ok()) << again;
  EXPECT_EQ(ReadFile(folder() + "/latest").value_or(""), "step-00000002\n");
  EXPECT_EQ(NewestWhole(), 2);
}

}  // namespace
}  // namespace meshwright::checkpoint
