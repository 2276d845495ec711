// The part of the simulated cluster that runs steps, saves and restores.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
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
  } else if (const Status restored =
                 states_.Restore(worker.name, restore, RecordedStart(restore.mesh_gen));
             !restored.ok()) {
    done.error = proto::MakeError(proto::ErrorKind::kStepFailed, restored, worker.name);
    worker.failed.insert(restore.mesh_gen.value());
  }
  Say(worker, std::move(done));
}

// What is on record of the snapshot that the job's newest run starts from.
std::optional<int64_t> SimCluster::RecordedStart(MeshGeneration gen) {
  const auto events = store_->Events(gen_job_.at(gen.value()), 1000);
  if (!events.has_value()) return std::nullopt;
  const std::string generation = "(generation " + std::to_string(gen.value()) + ")";
  constexpr std::string_view kSnapshot = ", from the snapshot of step ";
  for (const EventRecord& event : *events) {
    const size_t at = event.text.find(kSnapshot);
    if (event.text.find(generation) == std::string::npos || at == std::string::npos) continue;
    return std::stoll(event.text.substr(at + kSnapshot.size()));
  }
  return std::nullopt;
}

void SimCluster::OnState(SimWorker& worker, const proto::QuerySnapshots& query) {
  Say(worker, states_.Held(worker.name, query));
}

void SimCluster::OnState(SimWorker& worker, const proto::CopySnapshot& copy) {
  const uint64_t gen = copy.mesh_gen.value();
  const bool was_member = worker.last_seq.contains(gen);
  if ((was_member && !worker.meshes.contains(gen)) || hold_copies) return;
  const Status copied = no_copies.contains(worker.name) ? ResourceExhausted("no memory for copies")
                                                        : states_.Copy(worker.name, copy);
  Say(worker, proto::SnapshotCopied{copy.mesh_gen, copy.step,
                                    proto::MakeError(proto::ErrorKind::kSaveFailed, copied)});
}

void SimCluster::OnState(SimWorker& worker, const proto::DropSnapshots& drop) {
  states_.Drop(worker.name, drop);
}

// What the launch's report says of it.
proto::SnapshotTaken SimCluster::TakeSnapshot(SimWorker& worker, const proto::Launch& launch) {
  if (!launch.snapshot) return {};
  proto::SnapshotTaken taken{launch.first_step + launch.count, snapshot_seconds, 100, {}};
  if (no_memory.contains(worker.name)) {
    taken.error = proto::MakeError(proto::ErrorKind::kSaveFailed,
                                   ResourceExhausted("no memory for snapshots"), worker.name);
  } else {
    states_.Snapshot(worker.name, launch, /*whole=*/true);
  }
  return taken;
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

void SimCluster::HandleLaunch(SimWorker& worker, const proto::Launch& launch) {
  proto::LaunchDone done{launch.mesh_gen, launch.launch_seq, {}, {}, {}};
  const std::string program = worker.programs[launch.mesh_gen.value()].at(launch.program);
  if (program == ir::kInitProgram) states_.Init(worker.name, launch.mesh_gen);
  if (program == ir::kStepProgram) states_.Run(worker.name, launch);
  const int64_t end = launch.first_step + launch.count;
  const bool held = hold_from >= 0 && program == ir::kStepProgram && end > hold_from;
  if (held) worker.failed.insert(launch.mesh_gen.value());
  if (held && launch.snapshot && end % 2 == 0) states_.Snapshot(worker.name, launch, false);
  if (!held) done.snapshot = TakeSnapshot(worker, launch);
  if (hold_reports || held) return;
  for (int64_t i = 0; i < launch.count; ++i) {
    proto::StepReport report{launch.first_step + i, 0.5, {}};
    if (program == "step") {
      const bool diverged = diverges_at >= 0 && report.step >= diverges_at;
      report.values = {{"loss", diverged ? std::nan("") : 5.0 - static_cast<double>(report.step)},
                       {"grad_norm", 1},
                       {"lr", 0.1},
                       {"tokens", 64}};
      if (busy.contains(worker.name)) report.busy.push_back(busy.at(worker.name));
    } else if (program == "eval") {
      report.values = {{"loss_sum", 30.0}, {"count", 10.0}};
    } else if (!launch.inputs.empty() && launch.inputs[0].bytes.size() >= sizeof(double)) {
      // An answer that depends on what the call brought.
      double brought = 0;
      std::memcpy(&brought, launch.inputs[0].bytes.data(), sizeof(brought));
      worker.executed.push_back(brought);
      worker.last_inputs = launch.inputs;
      report.values = {{"echo", brought}};
    }
    done.reports.push_back(std::move(report));
  }
  Say(worker, std::move(done));
}

// What a killed controller had appended behind the last record may be there or not; what is not has
// not been told.
int64_t SimCluster::ReadJournal(int64_t job) {
  auto& all = steps_[job];
  const size_t sure = std::min(journal_[job], all.size());
  const auto later = static_cast<int64_t>(all.size() - sure);
  all.resize(sure + static_cast<size_t>(later == 0 ? 0 : Draw(later + 1)));
  return all.empty() ? 0 : all.back().step + 1;
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
