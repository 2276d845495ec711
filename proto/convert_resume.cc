// What a worker reports of launches and saves, at once or in its next session.
#include <fmt/format.h>

#include <utility>

#include "proto/convert.h"
#include "proto/convert_records.h"
#include "proto/convert_snapshots.h"

namespace meshwright::proto {
namespace {

template <typename Out, typename M>
void PutHead(const M& m, Out& out) {
  out.set_mesh_gen(m.mesh_gen.value());
  if (!m.error.ok()) *out.mutable_error() = Encode(m.error);
}

}  // namespace

v1::LaunchDone Encode(const LaunchDone& m) {
  v1::LaunchDone out;
  PutHead(m, out);
  out.set_launch_seq(m.launch_seq.value());
  for (const StepReport& report : m.reports) {
    v1::StepReport& step = *out.add_reports();
    step.set_step(report.step);
    step.set_seconds(report.seconds);
    for (const auto& [name, value] : report.values) (*step.mutable_values())[name] = value;
    for (const RankSeconds& busy : report.busy) {
      v1::RankSeconds& to = *step.add_busy();
      to.set_rank(busy.rank);
      to.set_seconds(busy.seconds);
    }
  }
  for (const TensorTile& tile : m.tensors) *out.add_tensors() = Encode(tile);
  if (m.snapshot != SnapshotTaken()) Put(m.snapshot, *out.mutable_snapshot());
  for (const ir::StepRecord& record : m.recorded) Put(record, *out.add_recorded());
  out.set_sent_ns(m.round.sent_ns);
  out.set_heard_ns(m.round.heard_ns);
  out.set_said_ns(m.round.said_ns);
  out.set_begin_ns(m.begin_ns);
  return out;
}

v1::StateSaved Encode(const StateSaved& m) {
  v1::StateSaved out;
  PutHead(m, out);
  out.set_save(m.save.value());
  out.set_shards(m.shards);
  out.set_copy_seconds(m.copy_seconds);
  out.set_write_seconds(m.write_seconds);
  return out;
}

v1::CheckpointCommitted Encode(const CheckpointCommitted& m) {
  v1::CheckpointCommitted out;
  PutHead(m, out);
  out.set_save(m.save.value());
  return out;
}

v1::ResumeMesh Encode(const ResumeMesh& m) {
  v1::ResumeMesh out;
  out.set_mesh_gen(m.mesh_gen.value());
  out.set_first_seq(m.first_seq.value());
  for (const ToldLaunch& launch : m.launches) {
    v1::ToldLaunch& to = *out.add_launches();
    to.set_launch_seq(launch.seq.value());
    to.set_kind(static_cast<v1::ToldKind>(launch.kind));
    to.set_program(launch.program);
    to.set_first_step(launch.first_step);
    to.set_count(launch.count);
    to.set_asked(launch.asked);
  }
  for (const LaunchDone& done : m.done) *out.add_done() = Encode(done);
  if (m.saved) *out.mutable_saved() = Encode(*m.saved);
  if (m.committed) *out.mutable_committed() = Encode(*m.committed);
  return out;
}

Result<LaunchDone> Decode(const v1::LaunchDone& wire) {
  LaunchDone m{
      MeshGeneration(wire.mesh_gen()), LaunchSeq(wire.launch_seq()), Decode(wire.error()), {}, {}};
  for (const v1::TensorTile& from : wire.tensors()) {
    MW_ASSIGN_OR_RETURN(TensorTile tile, Decode(from));
    m.tensors.push_back(std::move(tile));
  }
  for (const v1::StepReport& from : wire.reports()) {
    StepReport report{from.step(), from.seconds(), {}, {}};
    for (const v1::RankSeconds& busy : from.busy()) {
      report.busy.push_back({busy.rank(), busy.seconds()});
    }
    for (const auto& [name, value] : from.values()) report.values[name] = value;
    m.reports.push_back(std::move(report));
  }
  if (wire.has_snapshot()) m.snapshot = Get(wire.snapshot());
  for (const v1::StepRecord& from : wire.recorded()) {
    MW_ASSIGN_OR_RETURN(ir::StepRecord record, Get(from));
    m.recorded.push_back(std::move(record));
  }
  m.round = {wire.sent_ns(), wire.heard_ns(), wire.said_ns(), 0};
  m.begin_ns = wire.begin_ns();
  return m;
}

StateSaved Decode(const v1::StateSaved& wire) {
  return {MeshGeneration(wire.mesh_gen()),
          LaunchSeq(wire.save()),
          Decode(wire.error()),
          wire.shards(),
          wire.copy_seconds(),
          wire.write_seconds()};
}

CheckpointCommitted Decode(const v1::CheckpointCommitted& wire) {
  return {MeshGeneration(wire.mesh_gen()), LaunchSeq(wire.save()), Decode(wire.error())};
}

Result<ResumeMesh> Decode(const v1::ResumeMesh& wire) {
  if (wire.launches_size() > kMaxToldLaunches || wire.done_size() > kMaxToldLaunches) {
    return Fail(InvalidArgument(fmt::format("a mesh that resumes with {} launches, {} of them done",
                                            wire.launches_size(), wire.done_size())));
  }
  ResumeMesh m;
  m.mesh_gen = MeshGeneration(wire.mesh_gen());
  m.first_seq = LaunchSeq(wire.first_seq());
  for (const v1::ToldLaunch& from : wire.launches()) {
    if (from.kind() < 0 || from.kind() >= kToldKindCount || from.count() < 0) {
      return Fail(
          InvalidArgument(fmt::format("launch {} of the kind {}, {} steps", from.launch_seq(),
                                      static_cast<int>(from.kind()), from.count())));
    }
    m.launches.push_back({LaunchSeq(from.launch_seq()), static_cast<ToldKind>(from.kind()),
                          from.program(), from.first_step(), from.count(), from.asked()});
  }
  for (const v1::LaunchDone& from : wire.done()) {
    MW_ASSIGN_OR_RETURN(LaunchDone done, Decode(from));
    m.done.push_back(std::move(done));
  }
  if (wire.has_saved()) m.saved = Decode(wire.saved());
  if (wire.has_committed()) m.committed = Decode(wire.committed());
  return m;
}

}  // namespace meshwright::proto
