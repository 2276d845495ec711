#include "proto/convert_snapshots.h"

#include "proto/convert.h"

namespace meshwright::proto {

void Put(const SnapshotTaken& m, v1::SnapshotTaken& out) {
  out.set_step(m.step);
  out.set_seconds(m.seconds);
  out.set_bytes(m.bytes);
  if (!m.error.ok()) *out.mutable_error() = Encode(m.error);
}

void Put(const SnapshotsHeld& m, v1::Up& wire) {
  v1::SnapshotsHeld& out = *wire.mutable_snapshots_held();
  out.set_job_id(m.job.value());
  out.set_query(m.query);
  for (const HeldSlot& slot : m.slots) {
    v1::HeldSlot& to = *out.add_slots();
    to.set_mesh_gen(slot.mesh_gen.value());
    to.set_step(slot.step);
    to.set_slot(slot.slot);
    to.set_secret(slot.secret);
    to.set_shards(slot.shards);
  }
}

void Put(const RestoreState& m, v1::Down& wire) {
  v1::RestoreState& out = *wire.mutable_restore_state();
  out.set_mesh_gen(m.mesh_gen.value());
  out.set_launch_seq(m.launch_seq.value());
  *out.mutable_checkpoint() = Encode(m.checkpoint);
  for (const std::string& pattern : m.exclude) out.add_exclude(pattern);
  out.set_manifest(m.manifest);
  for (const SnapshotSource& source : m.sources) {
    v1::SnapshotSource& to = *out.add_sources();
    to.set_address(source.address);
    to.set_process_id(source.process_id);
    to.set_mesh_gen(source.mesh_gen.value());
    to.set_secret(source.secret);
    to.set_slot(source.slot);
  }
}

void Put(const CommitCheckpoint& m, v1::Down& wire) {
  v1::CommitCheckpoint& out = *wire.mutable_commit_checkpoint();
  out.set_mesh_gen(m.mesh_gen.value());
  out.set_save(m.save.value());
  *out.mutable_folder() = Encode(m.folder);
  out.set_temporary(m.temporary);
  out.set_manifest(m.manifest);
  out.set_job(m.job);
  out.set_keep(m.keep);
  out.set_export_dtype(m.export_dtype);
}

void Put(const QuerySnapshots& m, v1::Down& wire) {
  wire.mutable_query_snapshots()->set_job_id(m.job.value());
  wire.mutable_query_snapshots()->set_query(m.query);
}

void Put(const DropSnapshots& m, v1::Down& wire) {
  wire.mutable_drop_snapshots()->set_job_id(m.job.value());
  wire.mutable_drop_snapshots()->set_before(m.before.value());
}

void Put(const SnapshotCopied& m, v1::Up& wire) {
  v1::SnapshotCopied& out = *wire.mutable_snapshot_copied();
  out.set_mesh_gen(m.mesh_gen.value());
  out.set_step(m.step);
  if (!m.error.ok()) *out.mutable_error() = Encode(m.error);
}

void Put(const CopySnapshot& m, v1::Down& wire) {
  v1::CopySnapshot& out = *wire.mutable_copy_snapshot();
  out.set_mesh_gen(m.mesh_gen.value());
  out.set_step(m.step);
  out.set_job_id(m.job.value());
  out.set_cluster_id(m.cluster_id);
  out.set_process_id(m.process_id);
  out.set_secret(m.secret);
  for (const SnapshotPart& part : m.parts) {
    v1::SnapshotPart& to = *out.add_parts();
    to.set_worker(part.worker);
    to.set_address(part.address);
    to.set_process_id(part.process_id);
    for (const std::string& box : part.boxes) to.add_boxes(box);
  }
}

SnapshotCopied Get(const v1::SnapshotCopied& wire) {
  return {MeshGeneration(wire.mesh_gen()), wire.step(), Decode(wire.error())};
}

CopySnapshot Get(const v1::CopySnapshot& wire) {
  CopySnapshot m{MeshGeneration(wire.mesh_gen()),
                 wire.step(),
                 {},
                 JobId(wire.job_id()),
                 wire.cluster_id(),
                 wire.process_id(),
                 wire.secret()};
  for (const v1::SnapshotPart& from : wire.parts()) {
    m.parts.push_back({from.worker(),
                       from.address(),
                       from.process_id(),
                       {from.boxes().begin(), from.boxes().end()}});
  }
  return m;
}

SnapshotTaken Get(const v1::SnapshotTaken& wire) {
  return {wire.step(), wire.seconds(), wire.bytes(), Decode(wire.error())};
}

SnapshotsHeld Get(const v1::SnapshotsHeld& wire) {
  SnapshotsHeld m{JobId(wire.job_id()), wire.query(), {}};
  for (const v1::HeldSlot& from : wire.slots()) {
    m.slots.push_back(
        {MeshGeneration(from.mesh_gen()), from.step(), from.slot(), from.secret(), from.shards()});
  }
  return m;
}

RestoreState Get(const v1::RestoreState& wire) {
  RestoreState m{MeshGeneration(wire.mesh_gen()),
                 LaunchSeq(wire.launch_seq()),
                 Decode(wire.checkpoint()),
                 {wire.exclude().begin(), wire.exclude().end()},
                 wire.manifest(),
                 {}};
  for (const v1::SnapshotSource& from : wire.sources()) {
    m.sources.push_back({from.address(), from.process_id(), MeshGeneration(from.mesh_gen()),
                         from.secret(), from.slot()});
  }
  return m;
}

CommitCheckpoint Get(const v1::CommitCheckpoint& wire) {
  return {MeshGeneration(wire.mesh_gen()),
          LaunchSeq(wire.save()),
          Decode(wire.folder()),
          wire.temporary(),
          wire.manifest(),
          wire.job(),
          wire.keep(),
          wire.export_dtype()};
}

QuerySnapshots Get(const v1::QuerySnapshots& wire) { return {JobId(wire.job_id()), wire.query()}; }

DropSnapshots Get(const v1::DropSnapshots& wire) {
  return {JobId(wire.job_id()), MeshGeneration(wire.before())};
}

}  // namespace meshwright::proto
