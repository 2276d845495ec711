#include "controller/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/utf8.h"

namespace meshwright::controller {
namespace {

Status CheckRoots(const proto::Register& info, const char* what,
                  const std::vector<ir::DataRoot>& roots) {
  constexpr size_t kMostRoots = 64;
  constexpr size_t kMaxPathBytes = 4096;
  const bool long_root = std::any_of(roots.begin(), roots.end(), [](const ir::DataRoot& root) {
    return root.name.size() > kMaxPathBytes || root.path.size() > kMaxPathBytes;
  });
  if (roots.size() > kMostRoots || long_root) {
    return InvalidArgument(
        fmt::format("worker '{}' registers {} {} roots; at most {} of {} bytes are allowed",
                    TruncateUtf8(info.name, 64), roots.size(), what, kMostRoots, kMaxPathBytes));
  }
  const bool reserved = std::any_of(roots.begin(), roots.end(), [](const ir::DataRoot& root) {
    return root.name == ir::kControllerRoot;
  });
  if (!reserved) return OkStatus();
  return InvalidArgument(
      fmt::format("worker '{}' registers a {} root of the name '{}', which is the controller's "
                  "own; give it another one",
                  TruncateUtf8(info.name, 64), what, ir::kControllerRoot));
}

Status CheckMemories(const proto::Register& info) {
  constexpr int64_t kMostMemoryBytes = int64_t{1} << 50;
  if (info.memory_bytes < 0 || info.memory_bytes > kMostMemoryBytes) {
    return InvalidArgument(
        fmt::format("worker '{}' registers devices of {} bytes of memory; 0 to {} are allowed",
                    info.name, info.memory_bytes, kMostMemoryBytes));
  }
  if (info.host_memory_bytes >= 0 && info.disk_bytes >= 0) return OkStatus();
  return InvalidArgument(fmt::format(
      "worker '{}' registers {} bytes of its host's memory and {} of a disk; negative ones are not "
      "allowed",
      TruncateUtf8(info.name, 64), info.host_memory_bytes, info.disk_bytes));
}

}  // namespace

Status CheckRegistration(const proto::Register& info) {
  constexpr size_t kMaxTextBytes = 256;
  const std::pair<const char*, const std::string*> texts[] = {
      {"name", &info.name},       {"data address", &info.address},
      {"host id", &info.host_id}, {"metrics address", &info.metrics_address},
      {"version", &info.version}, {"device name", &info.device_name},
  };
  for (const auto& [what, text] : texts) {
    if (text->size() <= kMaxTextBytes) continue;
    return InvalidArgument(
        fmt::format("worker '{}' registers a {} of {} bytes; at most {} are "
                    "allowed",
                    TruncateUtf8(info.name, 64), what, text->size(), kMaxTextBytes));
  }
  for (const auto& [what, text] : texts) {
    if (IsPrintable(*text)) continue;
    return InvalidArgument(
        fmt::format("worker '{}' registers the {} '{}'; control characters are not allowed, they "
                    "would change what a terminal shows",
                    Printable(TruncateUtf8(info.name, 64)), what, Printable(*text)));
  }
  MW_TRY(CheckMemories(info));
  if (const std::string kind = KindOf(info); kind != "cpu" && kind != "cuda") {
    return InvalidArgument(
        fmt::format("worker '{}' registers devices of the kind '{}'; known are cpu and cuda",
                    TruncateUtf8(info.name, 64), TruncateUtf8(kind, 64)));
  }
  constexpr size_t kMaxProfileBytes = 16 << 10;
  if (info.device_profile.size() > kMaxProfileBytes) {
    return InvalidArgument(
        fmt::format("worker '{}' registers a device profile of {} bytes; at most {} are allowed",
                    TruncateUtf8(info.name, 64), info.device_profile.size(), kMaxProfileBytes));
  }
  if (info.threads_per_device < 0 || info.host_cores < 0) {
    return InvalidArgument(fmt::format("worker '{}' registers {} threads per device on {} cores",
                                       TruncateUtf8(info.name, 64), info.threads_per_device,
                                       info.host_cores));
  }
  MW_TRY(CheckRoots(info, "data", info.data_roots));
  MW_TRY(CheckRoots(info, "checkpoint", info.checkpoint_roots));
  constexpr size_t kMostCpus = 4096;
  if (info.cpus.size() > kMostCpus) {
    return InvalidArgument(fmt::format("worker '{}' registers {} cores; at most {} are allowed",
                                       TruncateUtf8(info.name, 64), info.cpus.size(), kMostCpus));
  }
  constexpr size_t kMostActorTypes = 1024;
  size_t type_bytes = 0;
  for (const std::string& type : info.actor_types) type_bytes += type.size();
  if (info.actor_types.size() > kMostActorTypes || type_bytes > kMostActorTypes * 64) {
    return InvalidArgument(fmt::format(
        "worker '{}' registers {} actor types in {} bytes; at most {} in {} are allowed",
        TruncateUtf8(info.name, 64), info.actor_types.size(), type_bytes, kMostActorTypes,
        kMostActorTypes * 64));
  }
  if (info.name.empty() || info.devices < 1 || info.devices > 4096) {
    return InvalidArgument(
        fmt::format("worker '{}' registers {} devices; a name and 1 to 4096 devices are needed",
                    info.name, info.devices));
  }
  return OkStatus();
}

Result<mesh::SharedProfile> ProfileOfWorker(const proto::Register& info) {
  if (info.device_profile.empty()) return mesh::SharedProfile{};
  auto profile = mesh::ParseDeviceProfile(info.device_profile);
  if (profile) return std::make_shared<const mesh::DeviceProfile>(std::move(*profile));
  return Fail(
      InvalidArgument(fmt::format("worker '{}' registers a device profile that cannot be "
                                  "read: {}; start it with --profile=off",
                                  info.name, profile.error().message())));
}

namespace {

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]");
}

}  // namespace

Status CheckReach(const proto::Register& info, const Membership& members) {
  for (const auto& [name, worker] : members.all()) {
    const bool is_there = worker.session.value() != 0 && name != info.name;
    if (!is_there || worker.info.host_id == info.host_id) continue;
    const bool of_new = IsLoopback(info.address);
    if (!of_new && !IsLoopback(worker.info.address)) continue;
    const proto::Register& hidden = of_new ? info : worker.info;
    return FailedPrecondition(fmt::format(
        "worker '{}' can be reached at {} only from its own host, and worker '{}' is on another "
        "one; start '{}' with --bind 0.0.0.0 --advertise HOST",
        hidden.name, hidden.address, of_new ? name : info.name, hidden.name));
  }
  return OkStatus();
}

Status CheckAdmission(const proto::Register& info, const Worker* known,
                      const CoreOptions& options) {
  if (info.protocol_major != proto::kProtocolMajor) {
    return FailedPrecondition(
        fmt::format("worker '{}' {} speaks protocol {}.{}, this controller {} speaks {}.{}; "
                    "install the same version on both",
                    info.name, info.version, info.protocol_major, info.protocol_minor,
                    proto::kVersion, proto::kProtocolMajor, proto::kProtocolMinor));
  }
  if (!info.cluster_id.empty() && info.cluster_id != options.cluster_id) {
    return FailedPrecondition(
        fmt::format("worker '{}' belongs to cluster {}, this controller is of cluster {}; restart "
                    "the worker to move it",
                    info.name, info.cluster_id, options.cluster_id));
  }
  if (info.max_term > options.term) {
    return FailedPrecondition(
        fmt::format("worker '{}' has served a controller of term {}; this one, of term {}, is out "
                    "of date and should be stopped",
                    info.name, info.max_term.value(), options.term.value()));
  }
  MW_TRY(CheckRegistration(info));
  // Also one that is silent for the moment, or on its way out: its jobs are still its.
  const bool alive = known != nullptr && known->session.value() != 0;
  if (!alive || known->info.incarnation == info.incarnation) return OkStatus();
  return AlreadyExists(
      fmt::format("a worker named '{}' is already connected (data address {}); choose another "
                  "--name",
                  info.name, known->info.address));
}

}  // namespace meshwright::controller
