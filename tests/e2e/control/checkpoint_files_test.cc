// Files of checkpoints that lie with the controller, over its port: who may have which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "client/checkpoints.h"
#include "controller/mesh_order.h"
#include "tests/e2e/control/local_cluster.h"
#include "worker/link.h"

namespace meshwright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kShardFile = "sharded/shard-00001-model-00001-of-00001.safetensors";

// Job 1 has ended, with two checkpoints; job 2 runs on mesh generation 2 and saves in the end only.
class FilesOfMeshes : public ::testing::Test {
 protected:
  FilesOfMeshes() {
    LocalClusterOptions options;
    options.workers = 1;
    cluster_ = LocalCluster::Start(options).value();
    ir::JobRequest job = ByteJob(1, 1, 4);
    job.checkpoint.enable = true;
    job.checkpoint.interval = 2;
    job.checkpoint.folder.path = "first";
    const int64_t first = cluster_->Submit(job, SampleBytes(20'000)).value();
    EXPECT_EQ(cluster_->client().Wait(first, 60'000)->state, client::JobState::kSucceeded);
    job.train.steps = 1'000'000;
    job.checkpoint.interval = 0;
    job.checkpoint.folder.path = "second";
    running_ = cluster_->Submit(job, SampleBytes(20'000)).value();
    const auto running = cluster_->client().Watch(
        running_, [](const client::JobUpdate& update) { return update.steps.empty(); }, 60'000);
    EXPECT_EQ(running->state, client::JobState::kRunning);
    link_ = worker::MakeGrpcLink({"127.0.0.1:" + std::to_string(cluster_->port()), "", ""});
  }

  std::string KeyOf(uint64_t gen) const {
    controller::CoreOptions options;
    options.files_key = ReadFile(cluster_->state_dir() + "/files.key").value();
    return controller::FilesKeyOf(MeshGeneration(gen), options);
  }
  Status Put(const std::string& key, const std::string& folder, const std::string& temporary,
             int64_t said_bytes = 5) {
    return link_->PutShard([] { return false; },
                           {{MeshGeneration(2), key}, folder, temporary, kShardFile, said_bytes},
                           {"12", "345"});
  }
  Result<std::string> Get(uint64_t gen, const std::string& key, const std::string& checkpoint,
                          const std::string& name = "manifest.json", int64_t offset = 0) {
    std::string all;
    MW_TRY(link_->ReadFile([] { return false; },
                           {{MeshGeneration(gen), key}, checkpoint, name, offset, -1},
                           [&](std::string_view bytes) {
                             all += bytes;
                             return OkStatus();
                           }));
    return all;
  }
  std::string root() const { return cluster_->state_dir() + "/checkpoints"; }

  std::unique_ptr<LocalCluster> cluster_;
  int64_t running_ = 0;
  std::unique_ptr<worker::ControllerLink> link_;
};

TEST_F(FilesOfMeshes, AMeshWritesItsOwnSavesAndNothingElse) {
  const std::string temporary = "step-00000007.tmp-2-9";
  const Status own = Put(KeyOf(2), "second", temporary);
  EXPECT_TRUE(own.ok()) << own;
  EXPECT_EQ(ReadFile(root() + "/second/" + temporary + "/" + kShardFile).value_or(""), "12345");
  EXPECT_EQ(Put("guessed", "second", temporary).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Put(KeyOf(1), "second", temporary).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Put(KeyOf(2), "first", temporary).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Put(KeyOf(2), "second/../first", temporary).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Put(KeyOf(2), "second", "step-00000007.tmp-1-9").code(), StatusCode::kPermissionDenied)
      << "of a generation that is over";
  EXPECT_EQ(Put(KeyOf(2), "second", "step-00000007").code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Put(KeyOf(2), "second", "x.tmp-2-/../../first").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(KeyOf(2), "second", temporary, 4).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(KeyOf(2), "second", temporary, 6).code(), StatusCode::kDataLoss);
}

TEST_F(FilesOfMeshes, AMeshReadsItsOwnCheckpointsAndNoOthers) {
  EXPECT_EQ(Get(1, KeyOf(1), "first/step-00000004").error().code(), StatusCode::kPermissionDenied)
      << "its job has ended";
  EXPECT_EQ(Get(2, KeyOf(2), "first/step-00000004").error().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Get(2, KeyOf(2), "second/../first/step-00000004").error().code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(Get(2, KeyOf(2), "second/step-00000004").error().code(), StatusCode::kNotFound);
  ASSERT_TRUE(MakeDirs(root() + "/second/step-00000004").ok());
  ASSERT_TRUE(WriteFileAtomic(root() + "/second/step-00000004/job", "0123456789").ok());
  EXPECT_EQ(Get(2, KeyOf(2), "second/step-00000004", "job", 4).value_or(""), "456789");
  EXPECT_EQ(Get(2, KeyOf(2), "second/step-00000004", "job", 11).error().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(Get(2, KeyOf(2), "second/step-00000004", "../../../state.db").error().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(FilesOfMeshes, KeysOutliveAControllerAndEndWithTheirMesh) {
  const std::string key = KeyOf(2);
  ASSERT_TRUE(cluster_->client().Cancel(running_).ok());
  ASSERT_TRUE(cluster_->client().Wait(running_, 60'000).has_value());
  EXPECT_EQ(Put(key, "second", "step-00000007.tmp-2-9").code(), StatusCode::kPermissionDenied);
  ASSERT_TRUE(cluster_->RestartServer().ok());
  EXPECT_EQ(KeyOf(2), key);
}

TEST_F(FilesOfMeshes, ClientsReadTheCheckpointsOfJobs) {
  client::Client::Options options;
  options.address = "127.0.0.1:" + std::to_string(cluster_->port());
  const auto checkpoints = client::Checkpoints::Connect(options);
  EXPECT_EQ(checkpoints->Root().value_or(""), root());
  EXPECT_THAT(checkpoints->Steps(1).value(), ElementsAre(4, 2));
  const std::string manifest = ReadFile(root() + "/first/step-00000004/manifest.json").value();
  EXPECT_EQ(checkpoints->ReadAll(1, 4, "manifest.json").value_or(""), manifest);
  std::vector<std::byte> part(10);
  ASSERT_TRUE(checkpoints->Read(1, 4, "manifest.json", 3, part).ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(part.data()), part.size()),
            manifest.substr(3, 10));
  EXPECT_EQ(
      checkpoints->Read(1, 4, "manifest.json", static_cast<int64_t>(manifest.size()), part).code(),
      StatusCode::kDataLoss);
  EXPECT_EQ(checkpoints->ReadAll(1, 5, "manifest.json").error().code(), StatusCode::kNotFound);
  EXPECT_EQ(checkpoints->Steps(99).error().code(), StatusCode::kNotFound);
  EXPECT_TRUE(checkpoints->Remove(1, 2).ok());
  EXPECT_THAT(checkpoints->Steps(1).value(), ElementsAre(4));
  EXPECT_EQ(checkpoints->Remove(1, 2).code(), StatusCode::kNotFound);
}

// Its own state has room when checkpoints have none: the job is told, and goes on.
TEST(FilesOfAFullDisk, AreAnErrorInTheJobsLogAndNoMore) {
  LocalClusterOptions options;
  options.workers = 1;
  options.limits.keep_free_bytes = int64_t{1} << 60;
  const auto cluster = LocalCluster::Start(options).value();
  ir::JobRequest job = ByteJob(1, 1, 4);
  job.checkpoint.enable = true;
  job.checkpoint.interval = 2;
  const int64_t id = cluster->Submit(job, SampleBytes(20'000)).value();
  const auto ended = cluster->client().Wait(id, 60'000);
  EXPECT_EQ(ended->state, client::JobState::kSucceeded) << ended->message;
  EXPECT_EQ(ended->checkpoint_step, -1);
  const std::vector<std::string> lines = cluster->client().Logs(id).value();
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("the controller's disk has")));
}

}  // namespace
}  // namespace meshwright::testing
