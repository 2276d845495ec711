#include "worker/executor_messages.h"

#include <array>
#include <utility>

#include "proto/convert.h"
#include "proto/executor.pb.h"

namespace meshwright::worker {
namespace {

template <typename Wire>
void PutStatus(const Status& status, Wire& wire) {
  wire.set_code(static_cast<int32_t>(status.code()));
  wire.set_blame(static_cast<int32_t>(status.blame()));
  if (!status.ok()) wire.set_message(status.message());
}

template <typename Wire>
Status StatusOf(const Wire& wire) {
  if (wire.code() == 0) return OkStatus();
  const bool known =
      wire.code() > 0 && wire.code() <= static_cast<int32_t>(StatusCode::kUnauthenticated);
  const bool known_blame =
      wire.blame() >= 0 && wire.blame() <= static_cast<int32_t>(Blame::kInternal);
  return Status(known ? static_cast<StatusCode>(wire.code()) : StatusCode::kUnknown, wire.message())
      .WithBlame(known_blame ? static_cast<Blame>(wire.blame()) : Blame::kUnspecified);
}

// ---- To executors ----

void Put(const ExecutorSettings& settings, v1::ToExecutor& wire) {
  v1::ExecutorSettings& out = *wire.mutable_settings();
  out.set_worker(settings.worker);
  out.set_devices(settings.devices);
  out.set_threads_per_device(settings.threads_per_device);
  out.set_host_link_bytes_per_s(settings.host_link_bytes_per_s);
  out.set_scratch_dir(settings.scratch.folder);
  out.set_scratch_bytes(settings.scratch.limit_bytes);
  out.set_disk_bytes_per_s(settings.scratch.bytes_per_s);
  for (const int core : settings.cores) out.add_cores(core);
  out.set_memory_bytes(settings.memory_bytes);
  for (const int gpu : settings.gpus) out.add_gpus(gpu);
  out.set_gpu_drain_timeout_ms(settings.gpu_drain_timeout_ms);
  out.set_transport(static_cast<int32_t>(settings.transport));
  out.set_collective_timeout_ms(settings.collective_timeout_ms);
  for (const ir::DataRoot& root : settings.data_roots) *out.add_data_roots() = proto::Encode(root);
  for (const ir::DataRoot& root : settings.checkpoint_roots) {
    *out.add_checkpoint_roots() = proto::Encode(root);
  }
  v1::HostActorSettings& actors = *out.mutable_host_actors();
  for (const std::string& type : settings.host_actors.types) actors.add_types(type);
  for (const std::string& word : settings.host_actors.command) actors.add_command(word);
  actors.set_start_ms(settings.host_actors.start_ms);
  actors.set_ping_ms(settings.host_actors.ping_ms);
  actors.set_silent_ms(settings.host_actors.silent_ms);
  actors.set_actor_silent_ms(settings.host_actors.actor_silent_ms);
  actors.set_end_grace_ms(settings.host_actors.end_grace_ms);
  out.set_controller(settings.controller);
  out.set_token(settings.token);
  out.set_tls_dir(settings.tls_dir);
  out.set_log_level(static_cast<int32_t>(settings.log_level));
}

void Put(const proto::DownBody& body, v1::ToExecutor& wire) {
  *wire.mutable_mesh() = proto::Encode(proto::DownMessage{Term(0), body});
}

void Put(const BlobAnswer& answer, v1::ToExecutor& wire) {
  v1::BlobAnswer& out = *wire.mutable_blob();
  out.set_id(answer.id);
  out.set_path(answer.path);
  PutStatus(answer.status, out);
}

void Put(const CountsAsk& ask, v1::ToExecutor& wire) { wire.mutable_counts()->set_id(ask.id); }

HostActorOptions Get(const v1::HostActorSettings& wire) {
  HostActorOptions actors;
  actors.types.assign(wire.types().begin(), wire.types().end());
  actors.command.assign(wire.command().begin(), wire.command().end());
  actors.start_ms = wire.start_ms();
  actors.ping_ms = wire.ping_ms();
  actors.silent_ms = wire.silent_ms();
  actors.actor_silent_ms = wire.actor_silent_ms();
  actors.end_grace_ms = wire.end_grace_ms();
  return actors;
}

ExecutorSettings Get(const v1::ExecutorSettings& wire) {
  ExecutorSettings settings;
  settings.worker = wire.worker();
  settings.devices = wire.devices();
  settings.threads_per_device = wire.threads_per_device();
  settings.host_link_bytes_per_s = wire.host_link_bytes_per_s();
  settings.scratch = {wire.scratch_dir(), wire.scratch_bytes(), wire.disk_bytes_per_s()};
  settings.cores.assign(wire.cores().begin(), wire.cores().end());
  settings.memory_bytes = wire.memory_bytes();
  settings.gpus.assign(wire.gpus().begin(), wire.gpus().end());
  settings.gpu_drain_timeout_ms = wire.gpu_drain_timeout_ms();
  settings.transport = static_cast<collective::Transport>(wire.transport());
  settings.collective_timeout_ms = wire.collective_timeout_ms();
  for (const v1::DataRoot& root : wire.data_roots()) {
    settings.data_roots.push_back(proto::Decode(root));
  }
  for (const v1::DataRoot& root : wire.checkpoint_roots()) {
    settings.checkpoint_roots.push_back(proto::Decode(root));
  }
  settings.host_actors = Get(wire.host_actors());
  settings.controller = wire.controller();
  settings.token = wire.token();
  settings.tls_dir = wire.tls_dir();
  settings.log_level = static_cast<LogLevel>(wire.log_level());
  return settings;
}

// ---- From executors ----

void Put(const proto::UpBody& body, v1::FromExecutor& wire) {
  *wire.mutable_mesh() = proto::Encode(proto::UpMessage{Term(0), body});
}

void Put(const BlobAsk& ask, v1::FromExecutor& wire) {
  wire.mutable_blob()->set_id(ask.id);
  *wire.mutable_blob()->mutable_blob() = proto::Encode(ask.blob);
}

void Put(const MeshCounts& counts, v1::FromExecutor& wire) {
  wire.mutable_counts()->set_id(counts.id);
  for (size_t i = 0; i < counts.stats.size(); ++i) {
    const DeviceStats& stats = counts.stats[i];
    v1::DeviceCounts& out = *wire.mutable_counts()->add_devices();
    out.set_rank(stats.rank);
    out.set_local_device(i < counts.devices.size() ? counts.devices[i] : static_cast<int>(i));
    out.set_run(stats.instructions.run);
    out.set_send(stats.instructions.send);
    out.set_recv(stats.instructions.recv);
    out.set_free(stats.instructions.free);
    for (const auto& [kind, bytes] : stats.memory_bytes) {
      (*out.mutable_memory_bytes())[static_cast<int32_t>(kind)] = bytes;
    }
    out.set_host_bytes(stats.host_bytes);
    out.set_disk_bytes(stats.disk_bytes);
    for (const CollectiveStat& stat : stats.collectives) {
      v1::CollectiveCount& count = *out.add_collectives();
      count.set_axis(stat.axis);
      count.set_kind(static_cast<int32_t>(stat.kind));
      count.set_backend(stat.backend);
      count.set_calls(stat.counters.calls);
      count.set_bytes(stat.counters.bytes);
      count.set_seconds(stat.counters.seconds);
    }
  }
}

void Put(const AwaitsConnections&, v1::FromExecutor& wire) { wire.mutable_awaits(); }

void Put(const DeviceLost& lost, v1::FromExecutor& wire) {
  PutStatus(lost.cause, *wire.mutable_lost());
}

Result<DeviceStats> Get(const v1::DeviceCounts& wire) {
  DeviceStats stats;
  stats.rank = wire.rank();
  stats.instructions = {wire.run(), wire.send(), wire.recv(), wire.free()};
  for (const auto& [kind, bytes] : wire.memory_bytes()) {
    if (kind < 0 || kind >= device::kMemoryKindCount) {
      return Fail(InvalidArgument("counts of an unknown kind of memory"));
    }
    stats.memory_bytes[static_cast<ir::MemoryKind>(kind)] = bytes;
  }
  stats.host_bytes = wire.host_bytes();
  stats.disk_bytes = wire.disk_bytes();
  for (const v1::CollectiveCount& count : wire.collectives()) {
    if (count.kind() < 0 || count.kind() >= collective::kKindCount) {
      return Fail(InvalidArgument("counts of an unknown kind of collective"));
    }
    stats.collectives.push_back({count.axis(),
                                 static_cast<collective::Kind>(count.kind()),
                                 count.backend(),
                                 {count.calls(), count.bytes(), count.seconds()}});
  }
  return stats;
}

Result<MeshCounts> Get(const v1::MeshCounts& wire) {
  MeshCounts counts;
  counts.id = wire.id();
  for (const v1::DeviceCounts& device : wire.devices()) {
    MW_ASSIGN_OR_RETURN(DeviceStats stats, Get(device));
    counts.stats.push_back(std::move(stats));
    counts.devices.push_back(device.local_device());
  }
  return counts;
}

Result<BlobAsk> Get(const v1::BlobAsk& wire) {
  MW_ASSIGN_OR_RETURN(ir::BlobRef blob, proto::Decode(wire.blob()));
  return BlobAsk{wire.id(), std::move(blob)};
}

template <typename Wire, typename Message>
std::string Bytes(const Message& message) {
  Wire wire;
  std::visit([&wire](const auto& body) { Put(body, wire); }, message);
  return wire.SerializeAsString();
}

template <typename Wire>
Result<Wire> Parse(std::string_view bytes) {
  Wire wire;
  if (wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return wire;
  return Fail(InvalidArgument("what came over an executor's socket is no message"));
}

}  // namespace

std::string Encode(const ToExecutor& message) { return Bytes<v1::ToExecutor>(message); }
std::string Encode(const FromExecutor& message) { return Bytes<v1::FromExecutor>(message); }

Result<ToExecutor> DecodeToExecutor(std::string_view bytes) {
  MW_ASSIGN_OR_RETURN(const v1::ToExecutor wire, Parse<v1::ToExecutor>(bytes));
  switch (wire.body_case()) {
    case v1::ToExecutor::kSettings:
      return ToExecutor(Get(wire.settings()));
    case v1::ToExecutor::kMesh: {
      MW_ASSIGN_OR_RETURN(proto::DownMessage message, proto::Decode(wire.mesh()));
      return ToExecutor(std::move(message.body));
    }
    case v1::ToExecutor::kBlob:
      return ToExecutor(BlobAnswer{wire.blob().id(), StatusOf(wire.blob()), wire.blob().path()});
    case v1::ToExecutor::kCounts:
      return ToExecutor(CountsAsk{wire.counts().id()});
    case v1::ToExecutor::BODY_NOT_SET:
      break;
  }
  return Fail(InvalidArgument("an empty message to an executor"));
}

Result<FromExecutor> DecodeFromExecutor(std::string_view bytes) {
  MW_ASSIGN_OR_RETURN(const v1::FromExecutor wire, Parse<v1::FromExecutor>(bytes));
  switch (wire.body_case()) {
    case v1::FromExecutor::kMesh: {
      MW_ASSIGN_OR_RETURN(proto::UpMessage message, proto::Decode(wire.mesh()));
      return FromExecutor(std::move(message.body));
    }
    case v1::FromExecutor::kBlob: {
      MW_ASSIGN_OR_RETURN(BlobAsk ask, Get(wire.blob()));
      return FromExecutor(std::move(ask));
    }
    case v1::FromExecutor::kCounts: {
      MW_ASSIGN_OR_RETURN(MeshCounts counts, Get(wire.counts()));
      return FromExecutor(std::move(counts));
    }
    case v1::FromExecutor::kAwaits:
      return FromExecutor(AwaitsConnections{});
    case v1::FromExecutor::kLost:
      return FromExecutor(DeviceLost{StatusOf(wire.lost())});
    case v1::FromExecutor::BODY_NOT_SET:
      break;
  }
  return Fail(InvalidArgument("an empty message of an executor"));
}

}  // namespace meshwright::worker
