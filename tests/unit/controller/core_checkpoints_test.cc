// Where checkpoints of jobs lie: in folders that workers share, or with the controller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::ErrorKind;
using proto::JobState;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Two workers of one device each, and a job on both that has done four of its ten steps.
struct SavedScene {
  SimCluster cluster;
  int64_t job = 0;

  static ir::JobRequest Saved(int64_t interval) {
    ir::JobRequest request = SimCluster::MakeJob(2, 1, 1, 10);
    request.fault_tolerance.snapshot_every = 0;
    request.checkpoint.enable = true;
    request.checkpoint.interval = interval;
    return request;
  }
  void Run(const ir::JobRequest& request) {
    cluster.AddWorkers(2);
    cluster.hold_from = 4;
    job = cluster.Submit(request);
    cluster.Settle();
    ASSERT_EQ(Info().state, JobState::kRunning);
    ASSERT_EQ(Info().steps_done, 4);
  }
  void Lose(const std::string& worker) {
    cluster.hold_from = -1;
    cluster.Kill(worker);
    cluster.Settle();
  }
  proto::JobInfo Info() const { return cluster.Info(job); }
  int64_t Record() const { return cluster.Record(job).checkpoint_step; }
};

void ExpectDone(SavedScene& scene) {
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded) << scene.Info().message;
  EXPECT_THAT(scene.cluster.steps(scene.job), SizeIs(10));
  EXPECT_THAT(scene.cluster.lines(scene.job), Contains(HasSubstr("recovered in ")));
}

TEST(CoreCheckpoints, WithoutASharedFolderCheckpointsLieWithTheController) {
  SavedScene scene;
  scene.cluster.shared_root = false;
  scene.Run(SavedScene::Saved(4));
  ASSERT_EQ(scene.Record(), 4);
  EXPECT_EQ(scene.cluster.Record(scene.job).checkpoint_folder.root, ir::kControllerRoot);
  EXPECT_EQ(scene.cluster.commits_here, 1) << "a worker was asked to commit";
  const std::string key = scene.cluster.last_load->files_key;
  EXPECT_EQ(scene.cluster.core().FilesOf(MeshGeneration(1), key)->folder,
            scene.cluster.Record(scene.job).checkpoint_folder);
  EXPECT_EQ(scene.cluster.core().FilesOf(MeshGeneration(1), "another").error().code(),
            StatusCode::kPermissionDenied);
  scene.Lose("w1");
  EXPECT_EQ(scene.cluster.core().FilesOf(MeshGeneration(1), key).error().code(),
            StatusCode::kPermissionDenied)
      << "the mesh is gone";
  scene.cluster.AddWorker("w1", 1);
  scene.cluster.Settle();
  ExpectDone(scene);
  EXPECT_EQ(scene.cluster.states().restores(), 2);
  EXPECT_EQ(scene.Record(), 10);
}

TEST(CoreCheckpoints, WhatWasSavedInAFolderIsNotSoughtWithTheController) {
  SavedScene scene;
  scene.Run(SavedScene::Saved(4));
  ASSERT_EQ(scene.Record(), 4);
  scene.cluster.shared_root = false;
  scene.Lose("w1");
  scene.cluster.AddWorker("w1", 1);
  scene.cluster.Settle();
  EXPECT_EQ(scene.cluster.Record(scene.job).checkpoint_folder.root, "");
  ExpectDone(scene);
}

TEST(CoreCheckpoints, AFullDiskOfTheControllerIsToldAndTheJobGoesOn) {
  SavedScene scene;
  scene.cluster.shared_root = false;
  scene.cluster.commit_error =
      proto::MakeError(ErrorKind::kSaveFailed, ResourceExhausted("disk full"));
  scene.cluster.AddWorkers(2);
  scene.job = scene.cluster.Submit(SavedScene::Saved(5));
  scene.cluster.Settle();
  EXPECT_EQ(scene.Info().state, JobState::kSucceeded);
  EXPECT_THAT(scene.cluster.lines(scene.job),
              Contains(HasSubstr("the checkpoint of step 5 was not written: disk full")));
  EXPECT_EQ(scene.Record(), 10);
}

}  // namespace
}  // namespace meshwright::controller
