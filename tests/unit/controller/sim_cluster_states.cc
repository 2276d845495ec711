// The part of the simulated cluster that saves and restores.
#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {

JobRecord SimCluster::Record(int64_t job) const {
  for (const JobRecord& record : ReadMemoryDisk(*disk_).jobs) {
    if (record.id == job) return record;
  }
  return {};
}

// Launches come in order; those of a mesh that the worker has dropped are nothing to it.
bool SimCluster::Expects(SimWorker& worker, MeshGeneration gen, LaunchSeq seq) {
  if (!worker.meshes.contains(gen.value())) return false;
  EXPECT_EQ(seq.value(), ++worker.last_seq[gen.value()]);
  return !worker.failed.contains(gen.value());
}

void SimCluster::OnState(SimWorker& worker, const proto::SaveState& save) {
  if (!Expects(worker, save.mesh_gen, save.launch_seq)) return;
  proto::StateSaved saved{save.mesh_gen, save.launch_seq, {}, states_.Save(worker.name, save)};
  worker.writes.emplace_back(std::move(saved));
  Say(worker, proto::LaunchDone{save.mesh_gen, save.launch_seq, {}, {}, {}});
}

void SimCluster::OnState(SimWorker& worker, const proto::RestoreState& restore) {
  if (!Expects(worker, restore.mesh_gen, restore.launch_seq)) return;
  proto::LaunchDone done{restore.mesh_gen, restore.launch_seq, {}, {}, {}};
  if (const auto failing = fail_next.find(worker.name); failing != fail_next.end()) {
    done.error = failing->second;
    worker.failed.insert(restore.mesh_gen.value());
    fail_next.erase(failing);
  } else {
    states_.Restore(worker.name, restore);
  }
  Say(worker, std::move(done));
}

void SimCluster::OnState(SimWorker& worker, const proto::CommitCheckpoint& commit) {
  if (!worker.meshes.contains(commit.mesh_gen.value())) return;
  states_.Commit(commit);
  worker.writes.emplace_back(proto::CheckpointCommitted{commit.mesh_gen, commit.save, {}});
}

void SimCluster::EndWrite(SimWorker& worker) {
  proto::UpBody write = std::move(worker.writes.front());
  worker.writes.pop_front();
  const auto failing = fail_write.find(worker.name);
  if (auto* saved = std::get_if<proto::StateSaved>(&write)) {
    if (!worker.meshes.contains(saved->mesh_gen.value())) return;
    if (failing == fail_write.end()) {
      states_.Written(worker.name, saved->mesh_gen, saved->save);
    } else {
      saved->shards.clear();
      saved->error = failing->second;
    }
  } else if (failing != fail_write.end()) {
    std::get<proto::CheckpointCommitted>(write).error = failing->second;
  }
  if (failing != fail_write.end()) fail_write.erase(failing);
  Say(worker, std::move(write));
}

// Of a training everyone is told each step once, in order.
void SimCluster::HearSteps(const StepsDone& done) {
  const ir::JobRequest& request = *requests_.at(done.job.value());
  auto& all = steps_[done.job.value()];
  for (const proto::StepMetrics& step : done.steps) {
    if (request.driver.kind == ir::DriverKind::kTrain) {
      const int64_t first = std::max<int64_t>(0, request.start.step);
      EXPECT_EQ(step.step, first + static_cast<int64_t>(all.size()))
          << "of job " << done.job << ", seed " << seed_;
    }
    all.push_back(step);
  }
}

}  // namespace meshwright::controller
