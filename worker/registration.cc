#include "worker/registration.h"

#include <fmt/format.h>

#include <random>
#include <string>

#include "base/clock.h"
#include "base/listen_address.h"
#include "base/thread_team.h"
#include "worker/available_memory.h"
#include "worker/core_claims.h"

namespace meshwright::worker {
namespace {

uint64_t MakeIncarnation() {
  std::random_device device;
  const auto random = (static_cast<uint64_t>(device()) << 32) | device();
  return static_cast<uint64_t>(SystemClock().NowNs()) ^ random;
}

}  // namespace

proto::Register RegisterOf(const AgentOptions& options, const data::Roots& roots,
                           const checkpoint::Roots& checkpoint_roots, int data_port) {
  proto::Register info;
  const std::string host = options.advertise.empty() ? options.data_bind : options.advertise;
  info.name = options.name;
  info.incarnation = Incarnation(MakeIncarnation());
  info.devices = options.devices;
  info.memory_bytes = options.memory_bytes;
  info.device_kind = options.gpus.driver == nullptr ? "cpu" : "cuda";
  info.device_name = options.gpus.name;
  info.data_roots = roots.all();
  info.checkpoint_roots = checkpoint_roots.all();
  info.device_profile = options.device_profile;
  info.threads_per_device = options.threads_per_device;
  for (const int cpu : AllowedCpus()) info.cpus.push_back(cpu);
  info.host_cores = info.cpus.empty() ? static_cast<int32_t>(ThreadTeam::MostAtOnce())
                                      : static_cast<int32_t>(info.cpus.size());
  info.address = FormatHostPort(host, data_port);
  info.host_id = options.host_id;
  info.version = proto::kVersion;
  info.keeps_log = options.log != nullptr;
  info.actor_types = options.host_actors.types;
  info.host_memory_bytes = WholeMemoryBytes().value_or(0);
  info.disk_bytes = options.scratch.limit_bytes;
  info.no_scratch_dir = options.scratch.folder.empty();
  return info;
}

security::MetricsPortOptions MetricsPortOf(const AgentOptions& options) {
  return {{.host = options.data_bind, .port = options.metrics_port},
          security::OwnCertificate(options.data_bind, options.tls_dir),
          options.scrape_token};
}

std::string MetricsAddressOf(const AgentOptions& options, int port) {
  const bool tls = !MetricsPortOf(options).certificate.empty();
  const std::string& host = options.advertise.empty() ? options.data_bind : options.advertise;
  return (tls ? "https://" : "") + FormatHostPort(host, port);
}

Status TakeWelcome(const std::string& controller, Term term, const proto::Welcome& welcome,
                   proto::Register& info) {
  if (!info.cluster_id.empty() && info.cluster_id != welcome.cluster_id) {
    return FailedPrecondition(
        fmt::format("{} is of cluster {}, this worker of {}; restart the worker to move it",
                    controller, welcome.cluster_id, info.cluster_id));
  }
  if (term < info.max_term) {
    return FailedPrecondition(
        fmt::format("the controller at {} is of term {}; a newer one of term {} has been seen",
                    controller, term.value(), info.max_term.value()));
  }
  info.cluster_id = welcome.cluster_id;
  info.max_term = term;
  return OkStatus();
}

}  // namespace meshwright::worker
