#include "tests/virtual/saved_states.h"

#include <gtest/gtest.h>

#include <future>

#include "checkpoint/assign.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "tests/virtual/run_job.h"
#include "worker/state_saver.h"

namespace meshwright::testing {
namespace {

worker::StateSlots Slots(const VirtualCluster& cluster) {
  return worker::CollectStateSlots(cluster.plan().Main());
}

}  // namespace

SavedStates::SavedStates()
    : dir_(TempDir::Make().value()),
      roots_(checkpoint::Roots::Open({{"r", dir_.path()}}).value()),
      files_(roots_) {}

Status SavedStates::Save(VirtualCluster& cluster, int64_t step, const std::string& folder) {
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

Status SavedStates::Load(VirtualCluster& cluster, int64_t step, const std::string& folder) {
  return worker::RestoreState(
      {MeshGeneration(1), LaunchSeq(1), {"r", folder + "/" + checkpoint::StepName(step)}, {}},
      files_, "c", Slots(cluster), cluster.runtime());
}

Result<Trained> TrainOn(VirtualCluster& cluster, int64_t first, int64_t steps) {
  Trained trained;
  MW_ASSIGN_OR_RETURN(const auto reports, cluster.Train(first, steps));
  for (const auto& report : reports) trained.losses.push_back(report.values.at("loss"));
  MW_ASSIGN_OR_RETURN(trained.tensors, cluster.Gather());
  return trained;
}

void ExpectSameTraining(const Trained& expected, const Trained& actual, bool bitwise,
                        const std::string& what) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size()) << what;
  for (size_t i = 0; i < actual.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i] / expected.losses[i], 1.0, 1e-10) << what << " step " << i;
  }
  std::string where;
  EXPECT_LE(LargestDifference(expected.tensors, actual.tensors, &where), 1e-10)
      << what << " " << where;
  if (!bitwise) return;
  EXPECT_EQ(actual.losses, expected.losses) << what;
  EXPECT_TRUE(actual.tensors == expected.tensors) << what;
}

}  // namespace meshwright::testing
