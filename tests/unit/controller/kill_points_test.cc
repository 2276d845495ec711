// A controller dies at each write point of its store and of the checkpoints that lie with it: what
// was accepted is there when it is opened again, and a checkpoint is whole.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <functional>

#include "base/file.h"
#include "checkpoint/reader.h"
#include "controller/checkpoint_store.h"
#include "controller/store.h"
#include "tests/kill_points.h"

namespace meshwright::controller {
namespace {

// A number that a child leaves to its parent when it dies.
class SharedCount {
 public:
  SharedCount()
      : value_(new (::mmap(nullptr, sizeof(std::atomic<int64_t>), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int64_t>(0)) {}
  ~SharedCount() { ::munmap(value_, sizeof(*value_)); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  std::atomic<int64_t>& operator*() { return *value_; }

 private:
  std::atomic<int64_t>* const value_;
};

class StoreKills : public ::testing::Test {
 protected:
  std::string path() const { return dir_.File("state.db"); }

  static JobRecord Submitted(int64_t id) {
    JobRecord job;
    job.id = id;
    job.op_id = "op-" + std::to_string(id);
    job.name = "job";
    job.spec = "spec of " + std::to_string(id);
    return job;
  }

  // As a controller that accepts jobs `first` ... and starts each of them: `accepted_` is the last
  // whose client was answered.
  Status AcceptFrom(int64_t first) {
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, OpenSqliteStore(path()));
    for (int64_t id = first; id < first + 3; ++id) {
      StoreBatch submitted;
      submitted.jobs = {Submitted(id)};
      submitted.events = {{1, id, "submitted"}};
      MW_TRY(store->Apply(submitted));
      *accepted_ = id;
      StoreBatch placed;
      placed.jobs = {Submitted(id)};
      placed.jobs[0].spec.clear();
      placed.jobs[0].state = proto::JobState::kStarting;
      placed.jobs[0].run = "run";
      placed.next_mesh_gen = static_cast<uint64_t>(id + 1);
      MW_TRY(store->Apply(placed));
      MW_TRY(store->SaveProgress(id, 5, 1.0));
    }
    return OkStatus();
  }

  // All that were accepted are there, each as a whole, and nothing but them and one that was being
  // accepted. Returns the newest.
  int64_t CheckJobs() {
    const auto store = OpenSqliteStore(path());
    EXPECT_TRUE(store.has_value()) << store.error();
    if (!store.has_value()) return -1;
    const StoredState& state = (*store)->opened();
    for (size_t i = 0; i < state.jobs.size(); ++i) {
      EXPECT_EQ(state.jobs[i].id, static_cast<int64_t>(i) + 1) << "a job is lost";
      EXPECT_EQ(state.jobs[i].spec, "spec of " + std::to_string(i + 1));
      const bool started = state.jobs[i].state == proto::JobState::kStarting;
      EXPECT_EQ(state.jobs[i].run, started ? "run" : "");
      if (started) {
        EXPECT_GT(state.next_mesh_gen, i + 1) << "told before it was written";
      }
    }
    const auto newest = static_cast<int64_t>(state.jobs.size());
    EXPECT_GE(newest, *accepted_) << "an accepted job is lost";
    EXPECT_LE(newest, *accepted_ + 1);
    EXPECT_GT(state.term.value(), last_term_) << "an older controller could write, too";
    last_term_ = state.term.value();
    return newest;
  }

  TempDir dir_ = TempDir::Make().value();
  SharedCount accepted_;
  uint64_t last_term_ = 0;
};

TEST_F(StoreKills, AtEachPointOfEachWriteNoAcceptedJobIsLost) {
  const std::set<std::string> points =
      meshwright::testing::FailpointsIn(MESHWRIGHT_SOURCE_DIR "/controller/store_sqlite.cc");
  ASSERT_GE(points.size(), 2u);
  int64_t newest = 0;
  for (const std::string& point : points) {
    for (const int64_t pass : {1, 2, 3, 4, 5, 6}) {
      SCOPED_TRACE(point + ", pass " + std::to_string(pass));
      EXPECT_TRUE(meshwright::testing::DiesAt(
          point, [&] { return AcceptFrom(newest + 1); }, pass));
      newest = CheckJobs();
      ASSERT_FALSE(HasFailure());
      *accepted_ = newest;
    }
  }
}

// Checkpoints that workers send to it.
class CheckpointStoreKills : public ::testing::Test {
 protected:
  Status Save(int64_t step) const {
    MW_ASSIGN_OR_RETURN(const auto store, CheckpointStore::Open(dir_.path(), 0));
    const std::vector<std::byte> bytes(100'000, static_cast<std::byte>(step));
    const ir::TensorType type{ir::DType::kF32, {25'000}};
    const std::string temporary = checkpoint::TemporaryName(step, 5) + "-2";
    MW_ASSIGN_OR_RETURN(
        const auto images,
        checkpoint::MakeShards(0, {{"w", type, ir::MemoryKind::kWeights, {{0}, {25'000}}, bytes}}));
    checkpoint::Shards written;
    for (const checkpoint::ShardImage& image : images) {
      MW_ASSIGN_OR_RETURN(auto writer, store->Create("gpt/7", temporary, image.name, image.bytes));
      MW_TRY(writer.Append(image.header));
      for (const auto part : image.parts) {
        MW_TRY(writer.Append({reinterpret_cast<const char*>(part.data()), part.size()}));
      }
      MW_TRY(writer.Finish());
      checkpoint::AddShard(written, image);
    }
    checkpoint::Manifest manifest;
    manifest.step = step;
    MW_TRY(checkpoint::AddShards(manifest, written));
    return store->Commit({MeshGeneration(5),
                          LaunchSeq(2),
                          {ir::kControllerRoot, "gpt/7"},
                          temporary,
                          checkpoint::FormatManifest(manifest),
                          "job",
                          1});
  }
  int64_t NewestWhole() const {
    const auto steps = checkpoint::ListSteps(dir_.File("gpt/7")).value();
    if (steps.empty()) return -1;
    const auto reader =
        checkpoint::Reader::OpenFolder(dir_.File("gpt/7/" + checkpoint::StepName(steps[0])));
    EXPECT_TRUE(reader.has_value()) << reader.error();
    EXPECT_TRUE(reader.has_value() && (*reader)->Verify().ok());
    return steps[0];
  }

  const TempDir dir_ = TempDir::Make().value();
};

TEST_F(CheckpointStoreKills, AtEachOfThemACheckpointIsWholeAndTheNextSaveGoes) {
  std::set<std::string> points =
      meshwright::testing::FailpointsIn(MESHWRIGHT_SOURCE_DIR "/controller/checkpoint_store.cc");
  points.merge(meshwright::testing::FailpointsIn(MESHWRIGHT_SOURCE_DIR "/checkpoint/folder.cc"));
  ASSERT_GE(points.size(), 12u);
  ASSERT_TRUE(Save(1).ok());
  int64_t step = 1;
  for (const std::string& point : points) {
    SCOPED_TRACE(point);
    EXPECT_TRUE(meshwright::testing::DiesAt(point, [&] { return Save(step + 1); }));
    const int64_t newest = NewestWhole();
    EXPECT_TRUE(newest == step || newest == step + 1) << newest;
    const Status again = Save(step + 1);
    ASSERT_TRUE(again.ok()) << again;
    EXPECT_EQ(NewestWhole(), ++step);
  }
}

}  // namespace
}  // namespace meshwright::controller
