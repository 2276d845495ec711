#include "worker/mesh_log.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace meshwright::worker {
namespace {

// About what is kept of a report.
size_t BytesOf(const proto::LaunchDone& done) {
  size_t bytes = sizeof(done) + done.error.message.size();
  for (const proto::StepReport& report : done.reports) {
    bytes += sizeof(report);
    for (const auto& [name, value] : report.values) bytes += 64 + name.size();
  }
  for (const proto::TensorTile& tile : done.tensors) bytes += sizeof(tile) + tile.bytes.size();
  return bytes;
}

}  // namespace

MeshLog::MeshLog(const proto::LoadMesh& load)
    : mesh_gen_(load.mesh_gen),
      job_(load.job),
      grace_ms_(load.orphan_grace_ms),
      programs_(load.programs) {}

void MeshLog::Note(const proto::DownBody& told) {
  using proto::ToldKind;
  if (const auto* launch = std::get_if<proto::Launch>(&told)) {
    On(*launch);
  } else if (const auto* read = std::get_if<proto::ReadTensors>(&told)) {
    Add(read->launch_seq, {read->launch_seq, ToldKind::kRead, 0, 0, 0, true});
  } else if (const auto* write = std::get_if<proto::WriteTensors>(&told)) {
    Add(write->launch_seq, {write->launch_seq, ToldKind::kWrite, 0, 0, 0, true});
  } else if (const auto* save = std::get_if<proto::SaveState>(&told)) {
    Add(save->launch_seq, {save->launch_seq, ToldKind::kSave, 0, steps_done_, 0, false});
  } else if (const auto* restore = std::get_if<proto::RestoreState>(&told)) {
    Add(restore->launch_seq, {restore->launch_seq, ToldKind::kRestore, 0, 0, 0, false});
  } else if (std::holds_alternative<proto::AbortMesh>(told) ||
             std::holds_alternative<proto::ReleaseMesh>(told)) {
    ends_ = true;
  }
}

void MeshLog::On(const proto::Launch& launch) {
  const bool asked = launch.fetch != proto::Fetch::kNothing || !launch.inputs.empty();
  Add(launch.launch_seq, {launch.launch_seq, proto::ToldKind::kProgram, launch.program,
                          launch.first_step, launch.count, asked});
  const bool steps =
      launch.program < programs_.size() && programs_[launch.program] == ir::kStepProgram;
  if (steps) steps_done_ = launch.first_step + launch.count;
}

// One that was heard before is nothing new; the mesh complains of a gap.
void MeshLog::Add(LaunchSeq seq, proto::ToldLaunch told) {
  if (seq.value() != next_seq_) return;
  ++next_seq_;
  launches_.push_back({std::move(told), std::nullopt, 0});
  Forget();
}

void MeshLog::Note(const proto::UpBody& said) {
  if (const auto* up = std::get_if<proto::CommUp>(&said)) {
    connected_ = up->error.ok();
  } else if (const auto* done = std::get_if<proto::LaunchDone>(&said)) {
    NoteDone(*done);
  } else if (const auto* saved = std::get_if<proto::StateSaved>(&said)) {
    saved_ = *saved;
  } else if (const auto* committed = std::get_if<proto::CheckpointCommitted>(&said)) {
    // The first answer to a save is what became of it.
    if (!committed_ || committed_->save != committed->save) committed_ = *committed;
  } else if (const auto* error = std::get_if<proto::MeshError>(&said)) {
    if (!error_) error_ = *error;
  } else if (std::holds_alternative<proto::MeshReleased>(said)) {
    released_ = true;
  }
}

void MeshLog::NoteDone(const proto::LaunchDone& done) {
  const auto it = std::find_if(launches_.begin(), launches_.end(), [&](const Launch& launch) {
    return launch.told.seq == done.launch_seq;
  });
  if (it == launches_.end() || it->done) return;
  it->done = done;
  it->bytes = BytesOf(done);
  bytes_ += it->bytes;
  Forget();
}

// The last two are what may be under way elsewhere.
void MeshLog::Forget() {
  while (launches_.size() > 2 && launches_.front().done &&
         (launches_.size() > kMostLaunches || bytes_ > kMostBytes)) {
    bytes_ -= launches_.front().bytes;
    launches_.pop_front();
  }
}

proto::ResumeMesh MeshLog::Resume() const {
  proto::ResumeMesh resume;
  resume.mesh_gen = mesh_gen_;
  resume.first_seq = LaunchSeq(next_seq_ - launches_.size());
  for (const Launch& launch : launches_) {
    resume.launches.push_back(launch.told);
    if (launch.done) resume.done.push_back(*launch.done);
  }
  resume.saved = saved_;
  resume.committed = committed_;
  return resume;
}

std::vector<proto::UpBody> MeshLog::Rest() const {
  std::vector<proto::UpBody> rest;
  if (error_) rest.emplace_back(*error_);
  if (released_) rest.emplace_back(proto::MeshReleased{mesh_gen_});
  return rest;
}

}  // namespace meshwright::worker
