#include "worker/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/gpu_host_threads.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread_team.h"
#include "collective/nccl/fabric.h"
#include "device/cuda/device.h"
#include "worker/device_actor.h"
#include "worker/first_cause.h"
#include "worker/links.h"

namespace meshwright::worker {
namespace {

// Of a launch: about a mebibyte on the wire (proto/convert_records.cc).
constexpr size_t kMostMarks = 200'000;

// Of each of its steps that are recorded.
size_t MostMarksOf(const LaunchRequest& request) {
  const ir::StepRange recorded = request.record.And({request.first_step, request.count});
  return kMostMarks / static_cast<size_t>(std::max<int64_t>(recorded.count, 1));
}

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
  if (options.gpus.driver != nullptr && options.gpus.indices.size() != local.size()) {
    return InvalidArgument(fmt::format("{} GPUs for {} local devices; name one for each",
                                       options.gpus.indices.size(), local.size()));
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

// The device of local rank number `i`.
Result<LocalDevice> MakeDevice(const RuntimeOptions& options, size_t i) {
  const int rank = options.fabric.local_ranks[i];
  device::DeviceOptions of_device;
  of_device.memory_limit_bytes = options.memory_limit_bytes;
  of_device.host_link_bytes_per_s = options.host_link_bytes_per_s;
  LocalDevice made;
  if (options.gpus.driver != nullptr) {
    const int index = options.gpus.indices[i];
    of_device.name = fmt::format("cuda:{} (rank {})", index, rank);
    MW_ASSIGN_OR_RETURN(made.device, device::cuda::CudaDevice::Make(*options.gpus.driver, index,
                                                                    std::move(of_device)));
    MW_ASSIGN_OR_RETURN(made.collectives, made.device->MakeQueue(true));
    MW_ASSIGN_OR_RETURN(made.tier_copies, made.device->MakeQueue(false));
    MW_ASSIGN_OR_RETURN(made.host_runs, made.device->MakeQueue(false));
    made.host_threads = GpuHostThreads(ThreadTeam::MostAtOnce(),
                                       static_cast<int>(options.fabric.local_ranks.size()));
    return made;
  }
  of_device.name = fmt::format("cpu:{}", rank);
  of_device.threads = options.threads_per_device;
  if (!options.cpus.empty()) of_device.cpus = options.cpus[i];
  of_device.share_memory = HasPeersOnHost(options.fabric);
  MW_ASSIGN_OR_RETURN(made.device, device::MakeCpuDevice(std::move(of_device)));
  return made;
}

// One GPU alone has nobody to talk to.
Result<std::unique_ptr<collective::Fabric>> MakeFabric(const RuntimeOptions& options,
                                                       const std::vector<LocalDevice>& devices) {
  const GpuOptions& gpus = options.gpus;
  if (gpus.driver == nullptr || options.fabric.members.size() == 1) {
    return collective::MakeCpuFabric(options.fabric, options.listener);
  }
  if (gpus.nccl == nullptr || gpus.combiner == nullptr) {
    return Fail(Unavailable(fmt::format("{} GPUs need NCCL to talk to one another: {}",
                                        options.fabric.members.size(),
                                        gpus.no_nccl.empty() ? "it was not given" : gpus.no_nccl)));
  }
  std::vector<collective::LocalRank> ranks;
  for (size_t i = 0; i < devices.size(); ++i) {
    ranks.push_back(
        {options.fabric.local_ranks[i], devices[i].device.get(), devices[i].collectives.get()});
  }
  device::cuda::Versions versions;
  (void)gpus.driver->ReadVersions(&versions);
  collective::NcclParts parts{*gpus.nccl, *gpus.combiner, versions.driver, versions.runtime,
                              gpus.timing};
  return collective::MakeNcclFabric(options.fabric, std::move(ranks), parts);
}

// What GPUs may still be using: never freed.
struct Kept {
  std::unique_ptr<collective::Fabric> fabric;
  std::vector<std::unique_ptr<DeviceActor>> actors;
};
void KeepForever(Kept what) {
  static Mutex mutex;
  static auto* const kept MW_PT_GUARDED_BY(mutex) = std::make_unique<std::vector<Kept>>().release();
  const MutexLock lock(mutex);
  kept->push_back(std::move(what));
}

Status NeedsAnotherProcess(const std::string& reason) {
  return Unavailable(reason + "; another process must go on: restart it")
      .WithBlame(Blame::kHardware);
}

std::vector<StepReport> CollectReports(const LaunchRequest& request,
                                       const std::vector<std::unique_ptr<DeviceActor>>& actors) {
  std::vector<StepReport> reports(static_cast<size_t>(request.count));
  for (int64_t i = 0; i < request.count; ++i) {
    StepReport& report = reports[static_cast<size_t>(i)];
    report.step = request.first_step + i;
    for (const auto& actor : actors) {
      report.seconds = std::max(report.seconds, actor->seconds(i));
      const std::vector<ir::Program::Report>& names = actor->FindProgram(request.program)->reports;
      const std::span<const double> values = actor->values(i);
      MW_CHECK(values.size() == names.size())
          << "rank " << actor->rank() << " reports " << values.size() << " of " << names.size();
      for (size_t r = 0; r < names.size(); ++r) report.values.emplace(names[r].name, values[r]);
    }
  }
  return reports;
}

// What devices want of the host's memory and of the disk, against what they may have of them.
Status CheckFarMemory(const std::vector<DeviceStats>& devices, const RuntimeOptions& options) {
  int64_t of_host = 0;
  int64_t of_disk = 0;
  for (const DeviceStats& stats : devices) {
    of_host += stats.host_bytes;
    of_disk += stats.disk_bytes;
  }
  if (options.host_memory_bytes && of_host > *options.host_memory_bytes) {
    return ResourceExhausted(
        fmt::format("the job keeps {} bytes in the memory of this worker's host, which has {} "
                    "left: keep less "
                    "there, or state on a disk (parallelism.optimizer_memory = \"disk\")",
                    of_host, *options.host_memory_bytes));
  }
  const device::Scratch& scratch = options.scratch;
  if (scratch.limit_bytes == 0 || of_disk <= scratch.limit_bytes) return OkStatus();
  return ResourceExhausted(fmt::format(
      "the job keeps {} bytes on the disk of this worker, which may use {} of {} (--scratch-mib)",
      of_disk, scratch.limit_bytes, scratch.folder));
}

class LocalRuntime final : public JobRuntime {
 public:
  LocalRuntime(std::unique_ptr<collective::Fabric> fabric, const GpuOptions& gpus)
      : fabric_(std::move(fabric)),
        gpus_(gpus.driver != nullptr),
        drain_timeout_ms_(gpus.drain_timeout_ms),
        links_(*fabric_),
        cause_(*fabric_) {}
  ~LocalRuntime() override { (void)Close(); }

  Status AddDevices(RuntimeOptions& options, std::vector<LocalDevice> devices) {
    MW_CHECK(devices.size() == options.fabric.local_ranks.size())
        << devices.size() << " devices for " << options.fabric.local_ranks.size() << " ranks";
    for (size_t i = 0; i < devices.size(); ++i) {
      ActorOptions of_actor;
      of_actor.rank = options.fabric.local_ranks[i];
      of_actor.target = options.backend;
      if (options.gpus.driver != nullptr) {
        of_actor.target = ops::Target(*devices[i].device, *options.gpus.toolkit);
      }
      of_actor.feed = options.feed;
      of_actor.seed = options.seed;
      of_actor.scratch = options.scratch;
      of_actor.observer = options.observer;
      of_actor.record = options.gpus.record;
      of_actor.stall_timeout_ms = options.gpus.stall_timeout_ms;
      if (options.record != nullptr) of_actor.mark = options.record->mark(i);
      actors_.push_back(
          std::make_unique<DeviceActor>(of_actor, std::move(devices[i]), links_, cause_));
    }
    for (ir::Program& program : options.programs) {
      MW_ASSIGN_OR_RETURN(DeviceActor * actor, ActorOf(program.device.value()));
      MW_TRY(actor->AddProgram(std::move(program)));
    }
    MW_TRY(CheckFarMemory(Stats(), options));
    for (const auto& actor : actors_) MW_TRY(actor->PostAllocate());
    MW_TRY(WaitAll());
    for (const auto& actor : actors_) MW_TRY(actor->ShareMemory(*fabric_));
    return OkStatus();
  }

  Result<std::string> Invitation() override { return fabric_->Invitation(); }

  Status Connect(const std::vector<std::string>& invitations) override {
    MW_TRY(fabric_->Accept(invitations));
    MW_TRY(fabric_->Connect());
    connected_ = true;
    return OkStatus();
  }

  Result<std::vector<StepReport>> Launch(const LaunchRequest& request) override {
    MW_TRY(CheckLaunch(request));
    const size_t marks = MostMarksOf(request) / actors_.size();
    for (const auto& actor : actors_) {
      // The others must not wait for one that has no room.
      const Status posted = actor->PostSteps(request, marks);
      if (!posted.ok()) cause_.Record(posted);
    }
    if (!WaitAll().ok()) return Fail(cause_.status());
    return CollectReports(request, actors_);
  }

  std::vector<RankBusy> Busy() const override {
    std::vector<RankBusy> all;
    for (const auto& actor : actors_) all.push_back({actor->rank(), actor->busy_seconds()});
    return all;
  }

  std::vector<ir::StepRecord> TakeRecorded() override {
    std::vector<ir::StepRecord> all;
    for (const auto& actor : actors_) actor->TakeRecorded(all);
    return all;
  }

  Result<std::vector<OutputBlock>> ReadOutputs(const std::string& program) override {
    std::vector<OutputBlock> blocks;
    for (const auto& actor : actors_) MW_TRY(actor->ReadOutputs(program, blocks));
    return blocks;
  }

  Result<ops::HostTensor> ReadPersistent(int rank, const std::string& slot) override {
    MW_ASSIGN_OR_RETURN(const DeviceActor* actor, ActorOf(rank));
    return actor->ReadPersistent(slot);
  }

  Status CopyPersistent(int rank, const std::string& slot, std::span<std::byte> into) override {
    MW_ASSIGN_OR_RETURN(const DeviceActor* actor, ActorOf(rank));
    return actor->CopyPersistent(slot, into);
  }

  Status CopyAll(const std::vector<PersistentCopy>& copies) override {
    for (const auto& actor : actors_) actor->PostCopies(copies);
    return WaitAll();
  }

  Status FillPersistent(int rank, const std::string& slot, const FillBlock& fill) override {
    MW_ASSIGN_OR_RETURN(DeviceActor * actor, ActorOf(rank));
    return actor->FillPersistent(slot, fill);
  }

  void Abort(const Status& cause) override {
    if (!cause_.stopped()) aborted_from_outside_ = true;
    cause_.Record(cause.ok() ? Cancelled("the job was aborted without a cause") : cause);
  }

  Status DeviceStatus() const override {
    for (const auto& actor : actors_) MW_TRY(actor->device_status());
    // A cause that came from outside may be another worker's.
    const Status fabric = fabric_->status();
    if (!gpus_ || aborted_from_outside_ || fabric.blame() != Blame::kInfra) return OkStatus();
    return NeedsAnotherProcess(fabric.message());
  }

  Status Close() override {
    if (std::exchange(closed_, true)) return end_;
    for (const auto& actor : actors_) actor->Stop();
    if (!Drain()) {
      // Closing the fabric would free memory, and so wait for the device without an end.
      end_ = DeviceStatus();
      Abort(end_);
      KeepForever({std::move(fabric_), std::move(actors_)});
      return end_;
    }
    const bool ended = fabric_->Close();
    end_ = DeviceStatus();
    if (!ended) {
      if (end_.ok())
        end_ = NeedsAnotherProcess("what a job had under way in NCCL did not end in time");
      KeepForever({std::move(fabric_), std::move(actors_)});
      return end_;
    }
    actors_.clear();
    return end_;
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

  // False: a device is still at work, and lost. What an abort ends ends meanwhile.
  bool Drain() {
    const Deadline deadline = Deadline::After(drain_timeout_ms_);
    bool empty = true;
    for (const auto& actor : actors_) {
      if (actor->Drain(deadline).code() != StatusCode::kDeadlineExceeded) continue;
      LogError(actor->device_status().message());
      empty = false;
    }
    return empty;
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

  // Close() keeps it where a device does not end; links and cause refer to it all the same.
  std::unique_ptr<collective::Fabric> fabric_;
  const bool gpus_;
  const int64_t drain_timeout_ms_;
  bool closed_ = false;
  Status end_;  // of Close()
  std::atomic<bool> aborted_from_outside_{false};
  Links links_;
  FirstCause cause_;
  std::atomic<bool> connected_{false};
  std::vector<std::unique_ptr<DeviceActor>> actors_;
};

}  // namespace

Status JobRuntime::WritePersistent(int rank, const std::string& slot,
                                   const std::vector<std::byte>& data) {
  return FillPersistent(rank, slot, [&](std::span<std::byte> block) {
    if (data.size() != block.size()) {
      return InvalidArgument(
          fmt::format("{} bytes written to persistent slot '{}' of rank {}, which has {}",
                      data.size(), slot, rank, block.size()));
    }
    std::copy(data.begin(), data.end(), block.begin());
    return OkStatus();
  });
}

Result<std::unique_ptr<JobRuntime>> JobRuntime::Load(RuntimeOptions options) {
  MW_TRY(CheckOptions(options));
  std::vector<LocalDevice> devices;
  for (size_t i = 0; i < options.fabric.local_ranks.size(); ++i) {
    MW_ASSIGN_OR_RETURN(LocalDevice device, MakeDevice(options, i));
    devices.push_back(std::move(device));
  }
  MW_ASSIGN_OR_RETURN(std::unique_ptr<collective::Fabric> fabric, MakeFabric(options, devices));
  auto runtime = std::make_unique<LocalRuntime>(std::move(fabric), options.gpus);
  MW_TRY(runtime->AddDevices(options, std::move(devices)));
  return std::unique_ptr<JobRuntime>(std::move(runtime));
}

}  // namespace meshwright::worker
