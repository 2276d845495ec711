// The messages of the worker session, both ways.
#include <fmt/format.h>

#include "base/utf8.h"
#include "proto/convert.h"
#include "proto/convert_logs.h"
#include "proto/convert_snapshots.h"

namespace meshwright::proto {
namespace {

MeshGeneration Gen(uint64_t value) { return MeshGeneration(value); }

// ---- Up: one Put per alternative ----

void Put(const Register& m, v1::Up& wire) { *wire.mutable_register_() = Encode(m); }

void Put(const Heartbeat& m, v1::Up& wire) { *wire.mutable_heartbeat() = Encode(m); }

template <typename Out, typename M>
void PutGenAndError(const M& m, Out& out) {
  out.set_mesh_gen(m.mesh_gen.value());
  if (!m.error.ok()) *out.mutable_error() = Encode(m.error);
}

void Put(const Loaded& m, v1::Up& wire) {
  PutGenAndError(m, *wire.mutable_loaded());
  wire.mutable_loaded()->set_invitation(m.invitation);
}
void Put(const CommUp& m, v1::Up& wire) { PutGenAndError(m, *wire.mutable_comm_up()); }
void Put(const WeightsSaved& m, v1::Up& wire) { PutGenAndError(m, *wire.mutable_weights_saved()); }
void Put(const MeshError& m, v1::Up& wire) { PutGenAndError(m, *wire.mutable_mesh_error()); }

void Put(const LaunchDone& m, v1::Up& wire) { *wire.mutable_launch_done() = Encode(m); }

void Put(const MeshReleased& m, v1::Up& wire) {
  wire.mutable_mesh_released()->set_mesh_gen(m.mesh_gen.value());
}

void Put(const Leave& m, v1::Up& wire) {
  wire.mutable_leave()->set_reason(m.reason);
  wire.mutable_leave()->set_drain_ms(m.drain_ms);
  if (!m.error.ok()) *wire.mutable_leave()->mutable_error() = Encode(m.error);
}

void Put(const ActorReply& m, v1::Up& wire) {
  v1::ActorReply& out = *wire.mutable_actor_reply();
  out.set_ask(m.ask);
  out.set_code(static_cast<int32_t>(m.code));
  out.set_message(m.message);
  out.set_payload(m.payload);
}

template <typename Out, typename M>
void PutActor(const M& m, Out& out) {
  out.set_job_id(m.job.value());
  out.set_actor(m.actor);
  out.set_generation(m.generation);
}

void Put(const ActorEvent& m, v1::Up& wire) {
  v1::ActorEvent& out = *wire.mutable_actor_event();
  PutActor(m, out);
  out.set_kind(static_cast<v1::ActorEventKind>(m.kind));
  out.set_code(static_cast<int32_t>(m.code));
  out.set_message(m.message);
}

void Put(const StateSaved& m, v1::Up& wire) { *wire.mutable_state_saved() = Encode(m); }

void Put(const CheckpointCommitted& m, v1::Up& wire) {
  *wire.mutable_checkpoint_committed() = Encode(m);
}

void Put(const LogLines& m, v1::Up& wire) { *wire.mutable_log_lines() = Encode(m); }
void Put(const LogPiece& m, v1::Up& wire) { *wire.mutable_log_piece() = Encode(m); }
void Put(const FetchLog& m, v1::Down& wire) { *wire.mutable_fetch_log() = Encode(m); }

void Put(const ResumeMesh& m, v1::Up& wire) { *wire.mutable_resume_mesh() = Encode(m); }

// ---- Down ----

void Put(const Welcome& m, v1::Down& wire) {
  v1::Welcome& out = *wire.mutable_welcome();
  out.set_cluster_id(m.cluster_id);
  out.set_heartbeat_ms(m.heartbeat_ms);
  out.set_worker_lost_ms(m.worker_lost_ms);
  for (const MeshGeneration gen : m.meshes) out.add_meshes(gen.value());
  out.set_takes_logs(m.takes_logs);
}

void Put(const LoadMesh& m, v1::Down& wire) {
  v1::LoadMesh& out = *wire.mutable_load_mesh();
  out.set_mesh_gen(m.mesh_gen.value());
  out.set_job_id(m.job.value());
  out.set_cluster_id(m.cluster_id);
  out.set_secret(m.secret);
  out.set_seed(m.seed);
  out.set_tf32(m.tf32);
  for (const Member& member : m.members) {
    v1::Member& to = *out.add_members();
    to.set_worker(member.worker);
    to.set_address(member.address);
    to.set_host_id(member.host_id);
    to.set_process_id(member.process_id);
  }
  for (const RankPrograms& rank : m.ranks) {
    v1::RankPrograms& to = *out.add_ranks();
    to.set_rank(rank.rank);
    to.set_local_device(rank.local_device);
    for (const ir::BlobRef& program : rank.programs) *to.add_programs() = Encode(program);
    for (const std::string& slot : rank.snapshot_slots) to.add_snapshot_slots(slot);
  }
  *out.mutable_data() = Encode(m.data);
  out.set_sequence(m.sequence);
  out.set_vocabulary(m.vocabulary);
  *out.mutable_init_weights() = Encode(m.init_weights);
  *out.mutable_graph() = Encode(m.graph);
  for (const std::string& name : m.programs) out.add_programs(name);
  for (const std::string& name : m.inputs) out.add_inputs(name);
  out.set_orphan_grace_ms(m.orphan_grace_ms);
  out.set_files_key(m.files_key);
}

void Put(const Connect& m, v1::Down& wire) {
  wire.mutable_connect()->set_mesh_gen(m.mesh_gen.value());
  for (const std::string& one : m.invitations) wire.mutable_connect()->add_invitations(one);
}

void Put(const Launch& m, v1::Down& wire) {
  v1::Launch& out = *wire.mutable_launch();
  out.set_mesh_gen(m.mesh_gen.value());
  out.set_launch_seq(m.launch_seq.value());
  out.set_program(m.program);
  out.set_first_step(m.first_step);
  out.set_count(m.count);
  out.set_fetch(m.fetch != Fetch::kNothing);
  out.set_fetch_largest(m.fetch == Fetch::kLargest);
  out.set_snapshot(m.snapshot);
  if (m.record.count > 0) {
    out.mutable_record()->set_first(m.record.first);
    out.mutable_record()->set_count(m.record.count);
  }
  out.set_sent_ns(m.round.sent_ns);
  for (const LaunchInput& input : m.inputs) {
    v1::LaunchInput& to = *out.add_inputs();
    to.set_input(input.input);
    to.set_data(input.bytes.data(), input.bytes.size());
    to.set_first_row(input.first_row);
    to.set_rows(input.rows);
  }
}

template <typename Wire>
void PutRanks(const std::vector<RankTiles>& ranks, Wire& out) {
  for (const RankTiles& rank : ranks) {
    v1::RankTiles& to = *out.add_ranks();
    to.set_rank(rank.rank);
    for (const std::string& slot : rank.slots) to.add_slots(slot);
  }
}

void Put(const SaveWeights& m, v1::Down& wire) {
  wire.mutable_save_weights()->set_mesh_gen(m.mesh_gen.value());
  PutRanks(m.ranks, *wire.mutable_save_weights());
}

void Put(const ReadTensors& m, v1::Down& wire) {
  wire.mutable_read_tensors()->set_mesh_gen(m.mesh_gen.value());
  wire.mutable_read_tensors()->set_launch_seq(m.launch_seq.value());
  PutRanks(m.ranks, *wire.mutable_read_tensors());
}

void Put(const WriteTensors& m, v1::Down& wire) {
  v1::WriteTensors& out = *wire.mutable_write_tensors();
  out.set_mesh_gen(m.mesh_gen.value());
  out.set_launch_seq(m.launch_seq.value());
  for (const NamedTensor& tensor : m.tensors) *out.add_tensors() = Encode(tensor);
}

void Put(const SaveState& m, v1::Down& wire) {
  v1::SaveState& out = *wire.mutable_save_state();
  out.set_mesh_gen(m.mesh_gen.value());
  out.set_launch_seq(m.launch_seq.value());
  *out.mutable_folder() = Encode(m.folder);
  out.set_temporary(m.temporary);
  PutRanks(m.ranks, out);
}

void Put(const Drained&, v1::Down& wire) { wire.mutable_drained(); }

void Put(const AbortMesh& m, v1::Down& wire) {
  wire.mutable_abort_mesh()->set_mesh_gen(m.mesh_gen.value());
  *wire.mutable_abort_mesh()->mutable_cause() = Encode(m.cause);
}

void Put(const ReleaseMesh& m, v1::Down& wire) {
  wire.mutable_release_mesh()->set_mesh_gen(m.mesh_gen.value());
}

void Put(const SpawnActor& m, v1::Down& wire) {
  v1::SpawnActor& out = *wire.mutable_spawn_actor();
  PutActor(m, out);
  out.set_type(m.type);
  out.set_args(m.args);
}

void Put(const ActorMessage& m, v1::Down& wire) {
  v1::ActorMessage& out = *wire.mutable_actor_message();
  PutActor(m, out);
  out.set_ask(m.ask);
  out.set_tell(m.tell);
  out.set_deadline_ms(m.deadline_ms);
  out.set_payload(m.payload);
}

void Put(const StopActor& m, v1::Down& wire) { PutActor(m, *wire.mutable_stop_actor()); }

// ---- back ----

StatusCode CodeOf(int32_t code) {
  const bool known = code >= 0 && code <= static_cast<int32_t>(StatusCode::kUnauthenticated);
  return known ? static_cast<StatusCode>(code) : StatusCode::kUnknown;
}

ActorEvent GetActorEvent(const v1::ActorEvent& wire) {
  ActorEvent m{JobId(wire.job_id()), wire.actor(),
               wire.generation(),    ActorEventKind::kUnspecified,
               CodeOf(wire.code()),  std::string(TruncateUtf8(wire.message(), kMaxErrorText))};
  const int kind = static_cast<int>(wire.kind());
  if (kind > 0 && kind <= static_cast<int>(ActorEventKind::kStopped)) {
    m.kind = static_cast<ActorEventKind>(kind);
  }
  return m;
}

Result<RankPrograms> GetRank(const v1::RankPrograms& wire) {
  RankPrograms rank;
  rank.rank = wire.rank();
  rank.local_device = wire.local_device();
  for (const v1::BlobRef& from : wire.programs()) {
    MW_ASSIGN_OR_RETURN(ir::BlobRef program, Decode(from));
    rank.programs.push_back(std::move(program));
  }
  rank.snapshot_slots.assign(wire.snapshot_slots().begin(), wire.snapshot_slots().end());
  return rank;
}

Welcome GetWelcome(const v1::Welcome& wire) {
  Welcome m{wire.cluster_id(), wire.heartbeat_ms(), wire.worker_lost_ms(), {}, wire.takes_logs()};
  for (const uint64_t gen : wire.meshes()) m.meshes.push_back(Gen(gen));
  return m;
}

Result<LoadMesh> GetLoadMesh(const v1::LoadMesh& wire) {
  LoadMesh m;
  // What a mesh leaves behind is found by its generation, and 0 says that there is none.
  if (wire.mesh_gen() == 0) return Fail(InvalidArgument("a mesh to load has no generation"));
  m.mesh_gen = Gen(wire.mesh_gen());
  m.job = JobId(wire.job_id());
  m.cluster_id = wire.cluster_id();
  m.secret = wire.secret();
  m.seed = wire.seed();
  m.tf32 = wire.tf32();
  for (const v1::Member& from : wire.members()) {
    m.members.push_back(Member{from.worker(), from.address(), from.host_id(), from.process_id()});
  }
  for (const v1::RankPrograms& from : wire.ranks()) {
    MW_ASSIGN_OR_RETURN(RankPrograms rank, GetRank(from));
    m.ranks.push_back(std::move(rank));
  }
  MW_ASSIGN_OR_RETURN(m.data, Decode(wire.data()));
  m.sequence = wire.sequence();
  m.vocabulary = wire.vocabulary();
  MW_ASSIGN_OR_RETURN(m.init_weights, Decode(wire.init_weights()));
  MW_ASSIGN_OR_RETURN(m.graph, Decode(wire.graph()));
  m.programs.assign(wire.programs().begin(), wire.programs().end());
  m.inputs.assign(wire.inputs().begin(), wire.inputs().end());
  m.orphan_grace_ms = wire.orphan_grace_ms();
  m.files_key = wire.files_key();
  return m;
}

Launch GetLaunch(const v1::Launch& wire) {
  Launch m;
  m.mesh_gen = Gen(wire.mesh_gen());
  m.launch_seq = LaunchSeq(wire.launch_seq());
  m.program = wire.program();
  m.first_step = wire.first_step();
  m.count = wire.count();
  m.fetch = FetchOf(wire);
  m.snapshot = wire.snapshot();
  m.record = {wire.record().first(), wire.record().count()};
  m.round.sent_ns = wire.sent_ns();
  for (const v1::LaunchInput& input : wire.inputs()) {
    m.inputs.push_back(LaunchInput{input.input(), input.data(), input.first_row(), input.rows()});
  }
  return m;
}

template <typename Wire>
std::vector<RankTiles> GetRanks(const Wire& wire) {
  std::vector<RankTiles> ranks;
  for (const v1::RankTiles& from : wire.ranks()) {
    ranks.push_back(RankTiles{from.rank(), {from.slots().begin(), from.slots().end()}});
  }
  return ranks;
}

Result<WriteTensors> GetWriteTensors(const v1::WriteTensors& wire) {
  WriteTensors m{Gen(wire.mesh_gen()), LaunchSeq(wire.launch_seq()), {}};
  for (const v1::NamedTensor& from : wire.tensors()) {
    MW_ASSIGN_OR_RETURN(NamedTensor tensor, Decode(from));
    m.tensors.push_back(std::move(tensor));
  }
  return m;
}

ActorMessage GetActorMessage(const v1::ActorMessage& wire) {
  return ActorMessage{JobId(wire.job_id()), wire.actor(),       wire.generation(), wire.ask(),
                      wire.tell(),          wire.deadline_ms(), wire.payload()};
}

SaveState GetSaveState(const v1::SaveState& wire) {
  return {Gen(wire.mesh_gen()), LaunchSeq(wire.launch_seq()), Decode(wire.folder()),
          wire.temporary(), GetRanks(wire)};
}

Result<UpBody> GetUpBody(const v1::Up& wire) {
  switch (wire.body_case()) {
    case v1::Up::kRegister:
      return Decode(wire.register_());
    case v1::Up::kHeartbeat:
      return Decode(wire.heartbeat());
    case v1::Up::kLoaded:
      return Loaded{Gen(wire.loaded().mesh_gen()), Decode(wire.loaded().error()),
                    wire.loaded().invitation()};
    case v1::Up::kCommUp:
      return CommUp{Gen(wire.comm_up().mesh_gen()), Decode(wire.comm_up().error())};
    case v1::Up::kLaunchDone:
      return Decode(wire.launch_done());
    case v1::Up::kWeightsSaved:
      return WeightsSaved{Gen(wire.weights_saved().mesh_gen()),
                          Decode(wire.weights_saved().error())};
    case v1::Up::kMeshReleased:
      return MeshReleased{Gen(wire.mesh_released().mesh_gen())};
    case v1::Up::kMeshError:
      return MeshError{Gen(wire.mesh_error().mesh_gen()), Decode(wire.mesh_error().error())};
    case v1::Up::kLeave:
      return Leave{wire.leave().reason(), wire.leave().drain_ms(), Decode(wire.leave().error())};
    case v1::Up::kActorReply:
      return ActorReply{wire.actor_reply().ask(), CodeOf(wire.actor_reply().code()),
                        std::string(TruncateUtf8(wire.actor_reply().message(), kMaxErrorText)),
                        wire.actor_reply().payload()};
    case v1::Up::kActorEvent:
      return GetActorEvent(wire.actor_event());
    case v1::Up::kStateSaved:
      return Decode(wire.state_saved());
    case v1::Up::kCheckpointCommitted:
      return Decode(wire.checkpoint_committed());
    case v1::Up::kSnapshotsHeld:
      return Get(wire.snapshots_held());
    case v1::Up::kSnapshotCopied:
      return Get(wire.snapshot_copied());
    case v1::Up::kResumeMesh:
      return Decode(wire.resume_mesh());
    case v1::Up::kLogLines:
      return Decode(wire.log_lines());
    case v1::Up::kLogPiece:
      return Decode(wire.log_piece());
    case v1::Up::kPiece:  // joined before (proto/frames.h)
    case v1::Up::BODY_NOT_SET:
      break;
  }
  return Fail(InvalidArgument("a message from a worker has no body that this version knows"));
}

Result<DownBody> GetDownBody(const v1::Down& wire) {
  switch (wire.body_case()) {
    case v1::Down::kWelcome:
      return GetWelcome(wire.welcome());
    case v1::Down::kLoadMesh:
      return GetLoadMesh(wire.load_mesh());
    case v1::Down::kConnect:
      return Connect{Gen(wire.connect().mesh_gen()),
                     {wire.connect().invitations().begin(), wire.connect().invitations().end()}};
    case v1::Down::kLaunch:
      return GetLaunch(wire.launch());
    case v1::Down::kSaveWeights:
      return SaveWeights{Gen(wire.save_weights().mesh_gen()), GetRanks(wire.save_weights())};
    case v1::Down::kReadTensors:
      return ReadTensors{Gen(wire.read_tensors().mesh_gen()),
                         LaunchSeq(wire.read_tensors().launch_seq()),
                         GetRanks(wire.read_tensors())};
    case v1::Down::kWriteTensors:
      return GetWriteTensors(wire.write_tensors());
    case v1::Down::kAbortMesh:
      return AbortMesh{Gen(wire.abort_mesh().mesh_gen()), Decode(wire.abort_mesh().cause())};
    case v1::Down::kReleaseMesh:
      return ReleaseMesh{Gen(wire.release_mesh().mesh_gen())};
    case v1::Down::kSpawnActor:
      return SpawnActor{JobId(wire.spawn_actor().job_id()), wire.spawn_actor().actor(),
                        wire.spawn_actor().generation(), wire.spawn_actor().type(),
                        wire.spawn_actor().args()};
    case v1::Down::kActorMessage:
      return GetActorMessage(wire.actor_message());
    case v1::Down::kStopActor:
      return StopActor{JobId(wire.stop_actor().job_id()), wire.stop_actor().actor(),
                       wire.stop_actor().generation()};
    case v1::Down::kSaveState:
      return GetSaveState(wire.save_state());
    case v1::Down::kRestoreState:
      return Get(wire.restore_state());
    case v1::Down::kCommitCheckpoint:
      return Get(wire.commit_checkpoint());
    case v1::Down::kQuerySnapshots:
      return QuerySnapshots{JobId(wire.query_snapshots().job_id()), wire.query_snapshots().query()};
    case v1::Down::kCopySnapshot:
      return Get(wire.copy_snapshot());
    case v1::Down::kDropSnapshots:
      return Get(wire.drop_snapshots());
    case v1::Down::kDrained:
      return Drained{};
    case v1::Down::kFetchLog:
      return Decode(wire.fetch_log());
    case v1::Down::kPiece:
    case v1::Down::BODY_NOT_SET:
      break;
  }
  return Fail(InvalidArgument("a message from the controller has no body that this version knows"));
}

}  // namespace

v1::Up Encode(const UpMessage& message) {
  v1::Up wire;
  wire.set_term(message.term.value());
  std::visit([&wire](const auto& body) { Put(body, wire); }, message.body);
  return wire;
}

Result<UpMessage> Decode(const v1::Up& wire) {
  MW_ASSIGN_OR_RETURN(UpBody body, GetUpBody(wire));
  return UpMessage{Term(wire.term()), std::move(body)};
}

v1::Down Encode(const DownMessage& message) {
  v1::Down wire;
  wire.set_term(message.term.value());
  std::visit([&wire](const auto& body) { Put(body, wire); }, message.body);
  return wire;
}

Result<DownMessage> Decode(const v1::Down& wire) {
  MW_ASSIGN_OR_RETURN(DownBody body, GetDownBody(wire));
  return DownMessage{Term(wire.term()), std::move(body)};
}

v1::RuntimeError Encode(const RuntimeError& error) {
  v1::RuntimeError wire;
  wire.set_kind(static_cast<v1::ErrorKind>(error.kind));
  wire.set_code(static_cast<int32_t>(error.code));
  wire.set_blame(static_cast<int32_t>(error.blame));
  wire.set_worker(error.worker);
  wire.set_device(error.device);
  wire.set_step(error.step);
  wire.set_instruction(error.instruction);
  wire.set_message(error.message);
  return wire;
}

RuntimeError Decode(const v1::RuntimeError& wire) {
  RuntimeError error;
  const int kind = static_cast<int>(wire.kind());
  const bool known = kind >= 0 && kind <= static_cast<int>(ErrorKind::kQueueTimeout);
  error.kind = known ? static_cast<ErrorKind>(kind) : ErrorKind::kInternal;
  if (error.ok()) return error;
  const bool known_code =
      wire.code() > 0 && wire.code() <= static_cast<int>(StatusCode::kUnauthenticated);
  error.code = known_code ? static_cast<StatusCode>(wire.code()) : StatusCode::kUnknown;
  const bool known_blame = wire.blame() >= 0 && wire.blame() <= static_cast<int>(Blame::kInternal);
  error.blame = known_blame ? static_cast<Blame>(wire.blame()) : Blame::kUnspecified;
  error.worker = wire.worker();
  error.device = wire.device();
  error.step = wire.step();
  error.instruction = wire.instruction();
  error.message = TruncateUtf8(wire.message(), kMaxErrorText);
  return error;
}

}  // namespace meshwright::proto
