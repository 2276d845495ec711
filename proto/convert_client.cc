// The messages of a client's session, both ways.
#include <fmt/format.h>

#include "proto/convert.h"

namespace meshwright::proto {
namespace {

template <typename Wire>
Result<std::vector<NamedTensor>> DecodeTensors(const Wire& wire) {
  std::vector<NamedTensor> tensors;
  for (const v1::NamedTensor& from : wire) {
    MW_ASSIGN_OR_RETURN(NamedTensor tensor, Decode(from));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void Put(const SessionOpen& m, v1::ClientUp& wire) {
  v1::SessionOpen& out = *wire.mutable_open();
  out.set_op_id(m.op_id);
  out.set_job_id(m.job_id);
  out.set_session(m.session);
  out.set_again(m.again);
  out.set_tool(m.tool);
  if (m.job) *out.mutable_job() = Encode(*m.job);
}

template <typename Wire>
void PutNumbers(uint64_t id, const std::vector<uint64_t>& acked, Wire& out) {
  out.set_id(id);
  out.mutable_acked()->Assign(acked.begin(), acked.end());
}

void PutAsk(const SessionAsk& ask, const CallProgram& m, v1::ClientUp& wire) {
  v1::CallProgram& out = *wire.mutable_call();
  PutNumbers(ask.id, ask.acked, out);
  out.set_program(m.program);
  out.set_fetch(m.fetch != Fetch::kNothing);
  out.set_fetch_largest(m.fetch == Fetch::kLargest);
  if (m.step) out.set_step(*m.step);
  for (const NamedTensor& input : m.inputs) *out.add_inputs() = Encode(input);
}

void PutAsk(const SessionAsk& ask, const ReadState& m, v1::ClientUp& wire) {
  PutNumbers(ask.id, ask.acked, *wire.mutable_read());
  for (const std::string& name : m.names) wire.mutable_read()->add_names(name);
}

void PutAsk(const SessionAsk& ask, const WriteState& m, v1::ClientUp& wire) {
  PutNumbers(ask.id, ask.acked, *wire.mutable_write());
  for (const NamedTensor& tensor : m.tensors) {
    *wire.mutable_write()->add_tensors() = Encode(tensor);
  }
}

void Put(const SessionAsk& m, v1::ClientUp& wire) {
  std::visit([&](const auto& ask) { PutAsk(m, ask, wire); }, m.ask);
}

void Put(const SessionAck& m, v1::ClientUp& wire) {
  wire.mutable_ack()->mutable_ids()->Assign(m.ids.begin(), m.ids.end());
}

void PutRef(const ActorRef& ref, v1::HostActorRef& wire) {
  wire.set_worker(ref.worker);
  wire.set_id(ref.id);
  wire.set_generation(ref.generation);
}

ActorRef GetRef(const v1::HostActorRef& wire) {
  return {wire.worker(), wire.id(), wire.generation()};
}

void PutAsk(uint64_t id, const SpawnHostActor& m, v1::ClientUp& wire) {
  v1::SpawnHostActor& out = *wire.mutable_spawn_actor();
  out.set_id(id);
  out.set_type(m.type);
  out.set_args(m.args);
  out.set_worker(m.worker);
}

void PutAsk(uint64_t id, const AskHostActor& m, v1::ClientUp& wire) {
  v1::AskHostActor& out = *wire.mutable_ask_actor();
  out.set_id(id);
  PutRef(m.ref, *out.mutable_ref());
  out.set_payload(m.payload);
  out.set_deadline_ms(m.deadline_ms);
  out.set_tell(m.tell);
}

void PutAsk(uint64_t id, const StopHostActor& m, v1::ClientUp& wire) {
  wire.mutable_stop_actor()->set_id(id);
  PutRef(m.ref, *wire.mutable_stop_actor()->mutable_ref());
}

void PutAsk(uint64_t id, const WatchHostActor& m, v1::ClientUp& wire) {
  wire.mutable_watch_actor()->set_id(id);
  PutRef(m.ref, *wire.mutable_watch_actor()->mutable_ref());
}

void Put(const SessionActorAsk& m, v1::ClientUp& wire) {
  std::visit([&](const auto& ask) { PutAsk(m.id, ask, wire); }, m.ask);
}

void Put(const SessionClose& close, v1::ClientUp& wire) {
  wire.mutable_close()->set_end_job(close.end_job);
}

void Put(const SessionOpened& m, v1::ClientDown& wire) {
  v1::SessionOpened& out = *wire.mutable_opened();
  out.set_job_id(m.job_id);
  out.set_credits(m.credits);
  out.mutable_held()->Assign(m.held.begin(), m.held.end());
  for (const ProgramSignature& program : m.programs) {
    v1::ProgramSignature& to = *out.add_programs();
    to.set_name(program.name);
    for (const NamedTensor& input : program.inputs) *to.add_inputs() = Encode(input);
  }
}

void Put(const AskDone& m, v1::ClientDown& wire) {
  v1::AskDone& out = *wire.mutable_done();
  out.set_id(m.id);
  out.set_step(m.step);
  out.set_seconds(m.seconds);
  for (const auto& [name, value] : m.values) (*out.mutable_values())[name] = value;
  for (const TensorTile& tile : m.tensors) *out.add_tensors() = Encode(tile);
}

void Put(const AskFailed& m, v1::ClientDown& wire) {
  wire.mutable_failed()->set_id(m.id);
  *wire.mutable_failed()->mutable_error() = Encode(m.error);
}

void Put(const ActorDone& m, v1::ClientDown& wire) {
  wire.mutable_actor_done()->set_id(m.id);
  v1::ActorDone& out = *wire.mutable_actor_done();
  PutRef(m.ref, *out.mutable_ref());
  out.set_payload(m.payload);
  out.set_fate(static_cast<v1::ActorFate>(m.fate));
  if (m.fate != ActorFate::kUnspecified) *out.mutable_why() = Encode(m.why);
}

SessionActorAsk GetAsk(const v1::AskHostActor& wire) {
  return {wire.id(),
          AskHostActor{GetRef(wire.ref()), wire.payload(), wire.deadline_ms(), wire.tell()}};
}

Result<ActorDone> GetDone(const v1::ActorDone& wire) {
  ActorDone m{wire.id(), GetRef(wire.ref()), wire.payload()};
  if (!v1::ActorFate_IsValid(wire.fate())) {
    return Fail(InvalidArgument(
        fmt::format("an actor has the unknown fate {}", static_cast<int>(wire.fate()))));
  }
  m.fate = static_cast<ActorFate>(wire.fate());
  if (wire.has_why()) m.why = Decode(wire.why());
  return m;
}

void Put(const SessionEnd&, v1::ClientDown& wire) { wire.mutable_end(); }

std::vector<uint64_t> GetIds(const google::protobuf::RepeatedField<uint64_t>& wire) {
  return {wire.begin(), wire.end()};
}

Result<SessionOpen> GetOpen(const v1::SessionOpen& wire) {
  SessionOpen m;
  m.op_id = wire.op_id();
  m.job_id = wire.job_id();
  m.session = wire.session();
  m.again = wire.again();
  m.tool = wire.tool();
  if (wire.has_job()) {
    MW_ASSIGN_OR_RETURN(m.job, Decode(wire.job()));
  }
  return m;
}

Result<SessionAsk> GetCall(const v1::CallProgram& wire) {
  CallProgram call;
  call.program = wire.program();
  call.fetch = FetchOf(wire);
  if (wire.has_step()) call.step = wire.step();
  MW_ASSIGN_OR_RETURN(call.inputs, DecodeTensors(wire.inputs()));
  return SessionAsk{wire.id(), std::move(call), GetIds(wire.acked())};
}

Result<SessionAsk> GetWrite(const v1::WriteState& wire) {
  WriteState write;
  MW_ASSIGN_OR_RETURN(write.tensors, DecodeTensors(wire.tensors()));
  return SessionAsk{wire.id(), std::move(write), GetIds(wire.acked())};
}

Result<SessionOpened> GetOpened(const v1::SessionOpened& wire) {
  SessionOpened m;
  m.job_id = wire.job_id();
  m.credits = wire.credits();
  m.held = GetIds(wire.held());
  for (const v1::ProgramSignature& from : wire.programs()) {
    ProgramSignature program{from.name(), {}};
    MW_ASSIGN_OR_RETURN(program.inputs, DecodeTensors(from.inputs()));
    m.programs.push_back(std::move(program));
  }
  return m;
}

Result<AskDone> GetDone(const v1::AskDone& wire) {
  AskDone m;
  m.id = wire.id();
  m.step = wire.step();
  m.seconds = wire.seconds();
  m.values.insert(wire.values().begin(), wire.values().end());
  for (const v1::TensorTile& from : wire.tensors()) {
    MW_ASSIGN_OR_RETURN(TensorTile tile, Decode(from));
    m.tensors.push_back(std::move(tile));
  }
  return m;
}

}  // namespace

v1::NamedTensor Encode(const NamedTensor& tensor) {
  v1::NamedTensor wire;
  wire.set_name(tensor.name);
  wire.set_dtype(std::string(ir::DTypeName(tensor.type.dtype)));
  wire.mutable_dims()->Assign(tensor.type.dims.begin(), tensor.type.dims.end());
  wire.set_data(tensor.bytes.data(), tensor.bytes.size());
  return wire;
}

Result<NamedTensor> Decode(const v1::NamedTensor& wire) {
  NamedTensor tensor;
  tensor.name = wire.name();
  const Result<ir::DType> dtype = ir::ParseDType(wire.dtype());
  if (!dtype) return Fail(dtype.error().WithContext(fmt::format("tensor \"{}\"", wire.name())));
  tensor.type.dtype = *dtype;
  tensor.type.dims.assign(wire.dims().begin(), wire.dims().end());
  tensor.bytes = wire.data();
  return tensor;
}

v1::TensorTile Encode(const TensorTile& tile) {
  v1::TensorTile wire;
  wire.set_name(tile.name);
  wire.set_dtype(std::string(ir::DTypeName(tile.type.dtype)));
  wire.mutable_dims()->Assign(tile.type.dims.begin(), tile.type.dims.end());
  wire.mutable_offset()->Assign(tile.box.offset.begin(), tile.box.offset.end());
  wire.mutable_size()->Assign(tile.box.size.begin(), tile.box.size.end());
  wire.set_data(tile.bytes.data(), tile.bytes.size());
  wire.set_largest(tile.largest);
  return wire;
}

Result<TensorTile> Decode(const v1::TensorTile& wire) {
  TensorTile tile;
  tile.name = wire.name();
  MW_ASSIGN_OR_RETURN(tile.type.dtype, ir::ParseDType(wire.dtype()));
  tile.type.dims.assign(wire.dims().begin(), wire.dims().end());
  tile.box.offset.assign(wire.offset().begin(), wire.offset().end());
  tile.box.size.assign(wire.size().begin(), wire.size().end());
  tile.bytes = wire.data();
  tile.largest = wire.largest();
  return tile;
}

v1::ClientUp Encode(const ClientUp& message) {
  v1::ClientUp wire;
  std::visit([&](const auto& body) { Put(body, wire); }, message);
  return wire;
}

Result<ClientUp> Decode(const v1::ClientUp& wire) {
  switch (wire.body_case()) {
    case v1::ClientUp::kOpen:
      return GetOpen(wire.open());
    case v1::ClientUp::kCall:
      return GetCall(wire.call());
    case v1::ClientUp::kRead:
      return SessionAsk{wire.read().id(),
                        ReadState{{wire.read().names().begin(), wire.read().names().end()}},
                        GetIds(wire.read().acked())};
    case v1::ClientUp::kAck:
      return SessionAck{GetIds(wire.ack().ids())};
    case v1::ClientUp::kWrite:
      return GetWrite(wire.write());
    case v1::ClientUp::kSpawnActor:
      return SessionActorAsk{wire.spawn_actor().id(),
                             SpawnHostActor{wire.spawn_actor().type(), wire.spawn_actor().args(),
                                            wire.spawn_actor().worker()}};
    case v1::ClientUp::kAskActor:
      return GetAsk(wire.ask_actor());
    case v1::ClientUp::kStopActor:
      return SessionActorAsk{wire.stop_actor().id(),
                             StopHostActor{GetRef(wire.stop_actor().ref())}};
    case v1::ClientUp::kWatchActor:
      return SessionActorAsk{wire.watch_actor().id(),
                             WatchHostActor{GetRef(wire.watch_actor().ref())}};
    case v1::ClientUp::kClose:
      return SessionClose{wire.close().end_job()};
    case v1::ClientUp::BODY_NOT_SET:
      break;
  }
  return Fail(InvalidArgument("a message of a client has no body that this version knows"));
}

v1::ClientDown Encode(const ClientDown& message) {
  v1::ClientDown wire;
  std::visit([&](const auto& body) { Put(body, wire); }, message);
  return wire;
}

Result<ClientDown> Decode(const v1::ClientDown& wire) {
  switch (wire.body_case()) {
    case v1::ClientDown::kOpened:
      return GetOpened(wire.opened());
    case v1::ClientDown::kDone:
      return GetDone(wire.done());
    case v1::ClientDown::kFailed:
      return AskFailed{wire.failed().id(), Decode(wire.failed().error())};
    case v1::ClientDown::kActorDone:
      return GetDone(wire.actor_done());
    case v1::ClientDown::kEnd:
      return SessionEnd{};
    case v1::ClientDown::BODY_NOT_SET:
      break;
  }
  return Fail(InvalidArgument("a message to a client has no body that this version knows"));
}

}  // namespace meshwright::proto
