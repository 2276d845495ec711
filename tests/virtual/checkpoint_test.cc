// A checkpoint of any layout loads into any other: what is saved is the state, not who held it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "base/file.h"
#include "checkpoint/assign.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "checkpoint/roots.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"
#include "worker/state_saver.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kSavedSteps = 2;
constexpr int64_t kFurtherSteps = 5;
constexpr int kCheckpointVocabulary = 64;

struct CheckpointCase {
  const char* name;
  int devices = 1;
  LayoutCase degrees = {};
  int64_t zero = 0;
  const char* schedule = "1f1b";
  int64_t chunks = 0;
  bool sequence_parallel = false;
  const char* stage_meshes = "";
};

const CheckpointCase kCheckpointCases[] = {
    {"one device"},
    {"data=4", 4, {4, 1, 1, 1}},
    {"tensor=4", 4, {1, 4, 1, 1}},
    {"pipeline=4", 4, {1, 1, 4, 4}},
    {"data=2 tensor=2", 4, {2, 2, 1, 1}, 0, "1f1b", 0, true},
    {"data=2 pipeline=2", 4, {2, 1, 2, 2}},
    {"tensor=2 pipeline=2 zb-h1", 4, {1, 2, 2, 4}, 0, "zb-h1"},
    {"data=4 zero=1", 4, {4, 1, 1, 1}, 1},
    {"data=4 zero=3", 4, {4, 1, 1, 2}, 3},
    {"data=2 tensor=2 pipeline=2 zero=2", 8, {2, 2, 2, 4}, 2},
    {"pipeline=2 in two chunks", 2, {1, 1, 2, 4}, 0, "interleaved", 2},
    {"unequal stages", 3, {1, 1, 1, 2}, 1, "1f1b", 0, false, "2x1,1x1"},
};

ir::JobRequest JobOf(const CheckpointCase& c) {
  TinyOptions options;
  options.layers = 4;
  options.vocabulary = kCheckpointVocabulary;
  options.dropout = 0.1;
  ir::JobRequest job = MakeTinyJob(options);
  if (c.stage_meshes[0] != '\0') {
    job.parallel = ir::OpenParallel();
    job.parallel.stage_meshes = c.stage_meshes;
    job.parallel.microbatches = c.degrees.microbatches;
  } else {
    job = WithLayout(job, c.degrees);
  }
  job.parallel.zero = c.zero;
  job.parallel.schedule = c.schedule;
  job.parallel.chunks = c.chunks;
  job.parallel.sequence_parallel = c.sequence_parallel;
  return job;
}

// The roles of workers and controller in a save: all ranks are those of one worker here.
class CheckpointPairs : public ::testing::Test {
 protected:
  CheckpointPairs()
      : dir_(TempDir::Make().value()),
        roots_(checkpoint::Roots::Open({{"r", dir_.path()}}).value()),
        files_(roots_) {}

  Status Save(VirtualCluster& cluster, int64_t step, const std::string& folder) {
    const auto assigned = checkpoint::AssignBoxes(cluster.plan().Main());
    proto::SaveState message{MeshGeneration(1), LaunchSeq(1), {"r", folder}, "writing", {}};
    for (size_t rank = 0; rank < assigned.size(); ++rank) {
      message.ranks.push_back({static_cast<int32_t>(rank), assigned[rank]});
    }
    std::promise<proto::StateSaved> written;
    std::promise<proto::CheckpointCommitted> committed;
    worker::StateSaver saver("w", files_, [&](proto::UpBody body) {
      if (auto* saved = std::get_if<proto::StateSaved>(&body)) {
        written.set_value(std::move(*saved));
      } else {
        committed.set_value(std::get<proto::CheckpointCommitted>(std::move(body)));
      }
    });
    MW_TRY(saver.Save(message, Slots(cluster), cluster.runtime()));
    const proto::StateSaved saved = written.get_future().get();
    MW_TRY(saved.error.ToStatus());
    checkpoint::Manifest manifest;
    manifest.step = step;
    MW_ASSIGN_OR_RETURN(const checkpoint::Shards shards, checkpoint::ParseShards(saved.shards));
    MW_TRY(checkpoint::AddShards(manifest, shards));
    saver.Commit({MeshGeneration(1),
                  LaunchSeq(1),
                  {"r", folder},
                  "writing",
                  checkpoint::FormatManifest(manifest),
                  "",
                  0});
    return committed.get_future().get().error.ToStatus();
  }

  Status Load(VirtualCluster& cluster, int64_t step, const std::string& folder) {
    return worker::RestoreState(
        {MeshGeneration(1), LaunchSeq(1), {"r", folder + "/" + checkpoint::StepName(step)}, {}},
        files_, "c", Slots(cluster), cluster.runtime());
  }

  static worker::StateSlots Slots(const VirtualCluster& cluster) {
    return worker::CollectStateSlots(cluster.plan().Main());
  }

  TempDir dir_;
  checkpoint::Roots roots_;
  worker::FolderFiles files_;
};

struct Trained {
  std::vector<double> losses;
  std::map<std::string, LogicalTensor> tensors;
};

Result<Trained> TrainOn(VirtualCluster& cluster) {
  Trained trained;
  MW_ASSIGN_OR_RETURN(const auto reports, cluster.Train(kSavedSteps, kFurtherSteps));
  for (const auto& report : reports) trained.losses.push_back(report.values.at("loss"));
  MW_ASSIGN_OR_RETURN(trained.tensors, cluster.Gather());
  return trained;
}

TEST_F(CheckpointPairs, EveryLayoutGoesOnFromEveryOther) {
  SyntheticTokens tokens(kCheckpointVocabulary);
  std::vector<CheckpointCase> cases(std::begin(kCheckpointCases), std::end(kCheckpointCases));
  if (kSanitizedBuild) cases = {kCheckpointCases[0], kCheckpointCases[9], kCheckpointCases[11]};
  std::vector<Trained> undisturbed;
  for (const CheckpointCase& c : cases) {
    const auto cluster = VirtualCluster::Start(JobOf(c), c.devices, &tokens);
    ASSERT_TRUE(cluster.has_value()) << c.name << ": " << cluster.error();
    ASSERT_TRUE((*cluster)->Train(0, kSavedSteps).has_value()) << c.name;
    const Status saved = Save(**cluster, kSavedSteps, c.name);
    ASSERT_TRUE(saved.ok()) << c.name << ": " << saved;
    auto trained = TrainOn(**cluster);
    ASSERT_TRUE(trained.has_value()) << c.name << ": " << trained.error();
    undisturbed.push_back(std::move(*trained));
  }
  for (size_t to = 0; to < cases.size(); ++to) {
    const auto cluster =
        VirtualCluster::Start(JobOf(cases[to]), cases[to].devices, &tokens).value();
    for (size_t from = 0; from < cases.size(); ++from) {
      const std::string pair = fmt::format("{} from {}", cases[to].name, cases[from].name);
      const Status loaded = Load(*cluster, kSavedSteps, cases[from].name);
      ASSERT_TRUE(loaded.ok()) << pair << ": " << loaded;
      const Trained trained = TrainOn(*cluster).value();
      const Trained& expected = undisturbed[from];
      for (size_t i = 0; i < trained.losses.size(); ++i) {
        EXPECT_NEAR(trained.losses[i] / expected.losses[i], 1.0, 1e-10) << pair << " step " << i;
      }
      std::string where;
      EXPECT_LE(LargestDifference(expected.tensors, trained.tensors, &where), 1e-10)
          << pair << " " << where;
      if (from != to) continue;
      EXPECT_EQ(trained.losses, expected.losses) << pair;
      EXPECT_TRUE(trained.tensors == expected.tensors) << pair;
    }
  }
}

TEST_F(CheckpointPairs, StateThatTheCheckpointLacksIsNamed) {
  SyntheticTokens tokens(kCheckpointVocabulary);
  TinyOptions options;
  options.layers = 2;
  options.vocabulary = kCheckpointVocabulary;
  const auto small = VirtualCluster::Start(MakeTinyJob(options), 1, &tokens).value();
  ASSERT_TRUE(Save(*small, 0, "small").ok());
  options.layers = 3;
  const auto deeper = VirtualCluster::Start(MakeTinyJob(options), 1, &tokens).value();
  const Status status = Load(*deeper, 0, "small");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("h.2."), std::string::npos) << status;
  options.layers = 2;
  options.vocabulary = 32;
  const auto narrower = VirtualCluster::Start(MakeTinyJob(options), 1, &tokens).value();
  EXPECT_EQ(Load(*narrower, 0, "small").code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace meshwright::testing
