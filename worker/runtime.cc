#include "worker/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "worker/device_actor.h"
#include "worker/first_cause.h"
#include "worker/links.h"

namespace meshwright::worker {
namespace {

// Options against themselves, before anything is made.
Status CheckOptions(const RuntimeOptions& options) {
  const std::vector<int>& local = options.fabric.local_ranks;
  if (options.programs.empty() || local.empty()) {
    return InvalidArgument(fmt::format("{} programs for {} local ranks; at least one of each",
                                       options.programs.size(), local.size()));
  }
  if (!options.cpus.empty() && options.cpus.size() != local.size()) {
    return InvalidArgument(
        fmt::format("core lists for {} devices, {} are local; give one each or none",
                    options.cpus.size(), local.size()));
  }
  for (const ir::Program& program : options.programs) {
    const int rank = program.device.value();
    if (std::find(local.begin(), local.end(), rank) == local.end()) {
      return InvalidArgument(
          fmt::format("program {}/{} is for a rank that is not local", program.name, rank));
    }
    if (static_cast<size_t>(program.device_count) != options.fabric.members.size()) {
      return InvalidArgument(fmt::format("program {}/{} is for {} devices, the mesh has {}",
                                         program.name, rank, program.device_count,
                                         options.fabric.members.size()));
    }
  }
  return OkStatus();
}

// Whether a rank of another process is on this host and may be reached through memory.
bool HasPeersOnHost(const collective::FabricOptions& fabric) {
  if (fabric.transport == collective::Transport::kTcp) return false;
  const collective::Member& own = fabric.members[static_cast<size_t>(fabric.local_ranks.front())];
  return std::any_of(fabric.members.begin(), fabric.members.end(),
                     [&](const collective::Member& member) {
                       return member.process_id != own.process_id && member.host_id == own.host_id;
                     });
}

class LocalRuntime final : public JobRuntime {
 public:
  explicit LocalRuntime(std::unique_ptr<collective::Fabric> fabric)
      : fabric_(std::move(fabric)), links_(*fabric_), cause_(*fabric_) {}

  Status AddDevices(RuntimeOptions& options) {
    for (size_t i = 0; i < options.fabric.local_ranks.size(); ++i) {
      const int rank = options.fabric.local_ranks[i];
      device::DeviceOptions device_options;
      device_options.name = fmt::format("cpu:{}", rank);
      device_options.threads = options.threads_per_device;
      if (!options.cpus.empty()) device_options.cpus = options.cpus[i];
      device_options.memory_limit_bytes = options.memory_limit_bytes;
      device_options.share_memory = HasPeersOnHost(options.fabric);
      MW_ASSIGN_OR_RETURN(std::unique_ptr<device::Device> device,
                          device::MakeCpuDevice(std::move(device_options)));
      actors_.push_back(std::make_unique<DeviceActor>(
          ActorOptions{rank, options.backend, options.feed, options.seed, options.observer},
          std::move(device), links_, cause_));
    }
    for (ir::Program& program : options.programs) {
      MW_ASSIGN_OR_RETURN(DeviceActor * actor, ActorOf(program.device.value()));
      MW_TRY(actor->AddProgram(std::move(program)));
    }
    for (const auto& actor : actors_) actor->PostAllocate();
    MW_TRY(WaitAll());
    for (const auto& actor : actors_) MW_TRY(actor->ShareMemory(*fabric_));
    return OkStatus();
  }

  Status Connect() override {
    MW_TRY(fabric_->Connect());
    connected_ = true;
    return OkStatus();
  }

  Result<std::vector<StepReport>> Launch(const LaunchRequest& request) override {
    MW_TRY(CheckLaunch(request));
    for (const auto& actor : actors_) actor->PostSteps(request);
    if (!WaitAll().ok()) return Fail(cause_.status());
    return CollectReports(request);
  }

  Result<ops::HostTensor> ReadPersistent(int rank, const std::string& slot) override {
    MW_ASSIGN_OR_RETURN(const DeviceActor* actor, ActorOf(rank));
    return actor->ReadPersistent(slot);
  }

  Status WritePersistent(int rank, const std::string& slot,
                         const std::vector<std::byte>& data) override {
    MW_ASSIGN_OR_RETURN(DeviceActor * actor, ActorOf(rank));
    return actor->WritePersistent(slot, data);
  }

  void Abort(const Status& cause) override {
    cause_.Record(cause.ok() ? Cancelled("the job was aborted without a cause") : cause);
  }

  std::vector<DeviceStats> Stats() const override {
    std::vector<DeviceStats> stats;
    for (const auto& actor : actors_) stats.push_back(actor->stats());
    return stats;
  }

 private:
  Result<DeviceActor*> ActorOf(int rank) const {
    for (const auto& actor : actors_) {
      if (actor->rank() == rank) return actor.get();
    }
    return Fail(
        NotFound(fmt::format("rank {} is not one of the {} local ranks", rank, actors_.size())));
  }

  Status CheckLaunch(const LaunchRequest& request) const {
    MW_TRY(cause_.status());
    if (!connected_) return FailedPrecondition("Launch before Connect; call Connect() first");
    if (request.count < 1 || request.first_step < 0) {
      return InvalidArgument(fmt::format("launch of {} steps from step {}; at least 1 from 0",
                                         request.count, request.first_step));
    }
    for (const auto& actor : actors_) {
      if (actor->FindProgram(request.program) == nullptr) {
        return NotFound(fmt::format("rank {} has no program '{}'", actor->rank(), request.program));
      }
    }
    return OkStatus();
  }

  // All actors, also after a failure; the first failure in actor order.
  Status WaitAll() {
    Status first;
    for (const auto& actor : actors_) {
      const Status status = actor->Wait();
      if (first.ok()) first = status;
    }
    return first;
  }

  std::vector<StepReport> CollectReports(const LaunchRequest& request) const {
    std::vector<StepReport> reports(static_cast<size_t>(request.count));
    for (int64_t i = 0; i < request.count; ++i) {
      StepReport& report = reports[static_cast<size_t>(i)];
      report.step = request.first_step + i;
      for (const auto& actor : actors_) {
        report.seconds = std::max(report.seconds, actor->seconds(i));
        const std::vector<ir::Program::Report>& names =
            actor->FindProgram(request.program)->reports;
        const std::span<const double> values = actor->values(i);
        for (size_t r = 0; r < names.size(); ++r) report.values.emplace(names[r].name, values[r]);
      }
    }
    return reports;
  }

  // Destroyed last to first: the actors' threads end before what they use.
  const std::unique_ptr<collective::Fabric> fabric_;
  Links links_;
  FirstCause cause_;
  std::atomic<bool> connected_{false};
  std::vector<std::unique_ptr<DeviceActor>> actors_;
};

}  // namespace

Result<std::unique_ptr<JobRuntime>> JobRuntime::Load(RuntimeOptions options) {
  MW_TRY(CheckOptions(options));
  MW_ASSIGN_OR_RETURN(std::unique_ptr<collective::Fabric> fabric,
                      collective::MakeCpuFabric(options.fabric, options.listener));
  auto runtime = std::make_unique<LocalRuntime>(std::move(fabric));
  MW_TRY(runtime->AddDevices(options));
  return std::unique_ptr<JobRuntime>(std::move(runtime));
}

}  // namespace meshwright::worker
