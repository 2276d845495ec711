#include "profile/worker_profile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace meshwright::profile {
namespace {

using mesh::KernelClass;
using worker::KernelTiming;

constexpr double kLeastS = 1e-9;

// Above the start, which every call has.
double WorkSeconds(const KernelTiming& timing, double launch_s) {
  return std::max(kLeastS, timing.seconds - launch_s);
}

double RateOfTiming(const KernelTiming& timing, double launch_s) {
  return timing.cost.flops / WorkSeconds(timing, launch_s);
}

std::vector<KernelTiming> TimingsOf(const std::vector<KernelTiming>& timings, KernelClass kernel) {
  std::vector<KernelTiming> own;
  for (const KernelTiming& timing : timings) {
    if (mesh::KernelClassOf(timing.op) == kernel) own.push_back(timing);
  }
  return own;
}

// Products of some kind: a curve over the FLOPs per type. Shapes of as many FLOPs are one point, at
// the rate of all of them one after the other.
Status SetProductCurves(const std::vector<KernelTiming>& timings, KernelClass kernel,
                        mesh::DeviceProfile& profile) {
  std::array<double, mesh::kDTypeCount> shapes = {};  // in the last point
  for (const KernelTiming& timing : TimingsOf(timings, kernel)) {
    const auto d = static_cast<size_t>(timing.dtype);
    const double rate = RateOfTiming(timing, profile.launch_s);
    mesh::RateCurve& curve = profile.Rates(kernel).curves[d];
    if (!curve.empty() && timing.cost.flops < curve.back().flops) {
      return Internal(fmt::format("timings of {} do not ascend", mesh::KernelClassName(kernel)));
    }
    if (curve.empty() || timing.cost.flops > curve.back().flops) {
      curve.push_back({timing.cost.flops, rate});
      MW_CHECK(rate > 0) << "no time passed in a call of " << timing.cost.flops << " FLOPs";
      shapes[d] = 1;
    } else {
      const double before = shapes[d]++;
      curve.back().flops_per_s = shapes[d] / (before / curve.back().flops_per_s + 1 / rate);
    }
    if (kernel == KernelClass::kProduct) {
      profile.peak_flops_per_s[d] = std::max(profile.peak_flops_per_s[d], rate);
    }
  }
  return OkStatus();
}

// The FLOPs per second of calls that stay in a cache, all together; of the largest where there are
// no others. 0: there are no FLOPs.
double CachedRate(const std::vector<KernelTiming>& timings, const KernelTiming& largest,
                  double launch_s) {
  double flops = 0, seconds = 0;
  for (const KernelTiming& timing : timings) {
    // Of a call that is mostly start no rate can be told.
    if (timing.cost.bytes == largest.cost.bytes || timing.seconds <= 2 * launch_s) continue;
    flops += timing.cost.flops;
    seconds += WorkSeconds(timing, launch_s);
  }
  return seconds > 0 ? flops / seconds : RateOfTiming(largest, launch_s);
}

// What streams: one rate of FLOPs, whatever the size, and the bandwidth of the largest.
Status SetStream(const std::vector<KernelTiming>& timings, KernelClass kernel,
                 mesh::DeviceProfile& profile) {
  const std::vector<KernelTiming> own = TimingsOf(timings, kernel);
  const auto largest = std::max_element(
      own.begin(), own.end(),
      [](const KernelTiming& a, const KernelTiming& b) { return a.cost.bytes < b.cost.bytes; });
  if (largest == own.end()) {
    return Internal(fmt::format("no timing of {}", mesh::KernelClassName(kernel)));
  }
  const double flops_per_s = CachedRate(own, *largest, profile.launch_s);
  mesh::KernelRates& rates = profile.Rates(kernel);
  rates.bytes_per_s = largest->cost.bytes / WorkSeconds(*largest, profile.launch_s);
  // Gathering has no FLOPs to speak of.
  rates.curves[static_cast<size_t>(ir::DType::kF32)] = {
      {1, flops_per_s > 0 ? flops_per_s : profile.PeakOf(ir::DType::kF32)}};
  return OkStatus();
}

std::string CachePath(const ProfileRequest& request) {
  MW_CHECK(!request.cache_dir.empty()) << "nowhere to keep the profile of " << request.machine;
  const std::string key = fmt::format("{}\n{} threads\n{} transport\n", request.machine,
                                      request.threads, request.transport);
  return fmt::format("{}/{}.profile", request.cache_dir, Sha256Hex(key).substr(0, 32));
}

// Null when there is none that can be used.
Result<mesh::DeviceProfile> ReadCached(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return mesh::ParseDeviceProfile(text);
}

// Held until the descriptor is closed; one that cannot be had is no reason not to measure.
UniqueFd LockMeasuring(const ProfileRequest& request) {
  if (request.lock_path.empty()) return UniqueFd();
  Result<UniqueFd> lock = LockFile(request.lock_path, request.lock_timeout_ms);
  if (lock) return *std::move(lock);
  LogWarn("measuring although other workers of this host may be, too: " + lock.error().message());
  return UniqueFd();
}

void MeasureLinks(const ProfileRequest& request, mesh::DeviceProfile& profile) {
  if (!request.measure_links) return;
  const Result<worker::LinkTimings> timings = request.measure_links();
  if (!timings) {
    LogWarn("links between workers are not measured, plans take defaults: " +
            timings.error().message());
    return;
  }
  const auto cost = [](const worker::LinkTiming& timing) {
    return mesh::LinkCost{timing.latency_s, timing.seconds_per_byte};
  };
  profile.links.process = cost(timings->process);
  profile.links.host = cost(timings->host);
}

Result<mesh::DeviceProfile> Measure(const ProfileRequest& request) {
  MW_ASSIGN_OR_RETURN(const worker::MachineTimings timings, request.measure(request.threads));
  const std::string name =
      fmt::format("measured, {} thread{}", request.threads, request.threads == 1 ? "" : "s");
  MW_ASSIGN_OR_RETURN(mesh::DeviceProfile profile, MakeMeasuredProfile(name, timings.kernels));
  profile.source = request.machine;
  profile.host_compute_share = timings.host_compute_share;
  if (timings.host_bytes_per_s > 0) {
    // All cores stream no less than one of them, whatever else ran while they were measured.
    profile.host_bytes_per_s =
        std::max(timings.host_bytes_per_s, profile.Rates(KernelClass::kElementwise).bytes_per_s);
  }
  MeasureLinks(request, profile);
  return profile;
}

Result<mesh::DeviceProfile> CachedOrMeasured(const ProfileRequest& request) {
  const bool keeps = !request.cache_dir.empty();
  const std::string path = keeps ? CachePath(request) : "";
  const bool may_read = keeps && request.mode == "cached";
  if (may_read) {
    if (auto cached = ReadCached(path)) return cached;
  }
  if (keeps && !MakeDirs(request.cache_dir).ok()) LogWarn("cannot make " + request.cache_dir);
  const UniqueFd lock = LockMeasuring(request);
  if (may_read) {
    if (auto cached = ReadCached(path)) return cached;  // of who held the lock before
  }
  MW_ASSIGN_OR_RETURN(mesh::DeviceProfile profile, Measure(request));
  if (keeps) {
    const Status written = WriteFileAtomic(path, mesh::FormatDeviceProfile(profile));
    if (!written.ok()) LogWarn("the device profile is not kept: " + written.message());
  }
  if (request.mode != "measure" || !request.measure_share) return profile;
  return ProfileAtShare(profile, request.measure_share(request.threads));
}

std::string ProcessorName() {
  const auto text = ReadFile("/proc/cpuinfo");
  if (!text) return "unknown processor";
  for (const std::string& line : Split(*text, '\n')) {
    const size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos) {
      return std::string(Trim(std::string_view(line).substr(colon + 1)));
    }
  }
  return "unknown processor";
}

// What a worker registers is what jobs may use of its devices: nothing is left of it once more.
void SetUsableMemory(int64_t usable_bytes, mesh::DeviceProfile& profile) {
  profile.memory_bytes = usable_bytes;
  profile.reserve_bytes = 0;
}

}  // namespace

Result<mesh::DeviceProfile> MakeMeasuredProfile(const std::string& name,
                                                const std::vector<KernelTiming>& timings) {
  mesh::DeviceProfile profile;
  profile.name = name;
  // The call with the least to do is all start.
  const auto least = std::min_element(
      timings.begin(), timings.end(),
      [](const KernelTiming& a, const KernelTiming& b) { return a.cost.bytes < b.cost.bytes; });
  if (least == timings.end()) return Fail(Internal("no timings of kernels"));
  profile.launch_s = least->seconds;
  for (const KernelClass kernel :
       {KernelClass::kProduct, KernelClass::kAttention, KernelClass::kHead}) {
    MW_TRY(SetProductCurves(timings, kernel, profile));
  }
  for (const KernelClass kernel :
       {KernelClass::kElementwise, KernelClass::kOptimizer, KernelClass::kGather}) {
    MW_TRY(SetStream(timings, kernel, profile));
  }
  const double stream = profile.Rates(KernelClass::kElementwise).bytes_per_s;
  for (const KernelClass kernel :
       {KernelClass::kProduct, KernelClass::kAttention, KernelClass::kHead}) {
    profile.Rates(kernel).bytes_per_s = stream;
  }
  const Status sound = mesh::CheckDeviceProfile(profile);
  if (!sound.ok()) return Fail(Internal(sound.message()));
  return profile;
}

mesh::DeviceProfile ProfileAtShare(const mesh::DeviceProfile& profile, double share) {
  MW_CHECK(share > 0) << "a share of " << share << " of the cores";
  mesh::DeviceProfile slower = profile;
  if (share >= 1) return slower;
  slower.name += fmt::format(", {:.0f} % of its cores", 100 * share);
  slower.launch_s /= share;
  for (mesh::KernelRates& rates : slower.kernels) {
    rates.bytes_per_s *= share;
    for (mesh::RateCurve& curve : rates.curves) {
      for (mesh::RatePoint& point : curve) point.flops_per_s *= share;
    }
  }
  return slower;
}

Result<std::string> WorkerProfileText(const ProfileRequest& request) {
  if (request.mode == "off") return std::string();
  mesh::DeviceProfile profile;
  if (request.mode == "cached" || request.mode == "measure") {
    MW_ASSIGN_OR_RETURN(profile, CachedOrMeasured(request));
  } else {
    MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(request.mode));
    auto parsed = mesh::ParseDeviceProfile(text);
    if (!parsed) {
      return Fail(InvalidArgument(fmt::format("{}: {}", request.mode, parsed.error().message())));
    }
    profile = std::move(*parsed);
  }
  profile.kind = mesh::DeviceKind::kCpu;  // whatever the file is of: these devices are CPUs
  if (request.memory_bytes > 0) SetUsableMemory(request.memory_bytes, profile);
  if (request.host_link_bytes_per_s > 0) {
    const double bytes_per_s = static_cast<double>(request.host_link_bytes_per_s);
    profile.links.memory = mesh::LinkCost{0, 1 / bytes_per_s};
  }
  if (request.disk_bytes_per_s > 0) {
    profile.links.disk = mesh::LinkCost{0, 1 / static_cast<double>(request.disk_bytes_per_s)};
  }
  return mesh::FormatDeviceProfile(profile);
}

Result<std::string> GpuProfileText(const std::string& mode, const std::string& gpu,
                                   int64_t memory_bytes) {
  if (mode == "off") return std::string();
  mesh::DeviceProfile profile;
  if (mode == "cached" || mode == "measure") {
    const mesh::SharedProfile known = mesh::ProfileOfGpu(gpu, memory_bytes);
    if (known == nullptr) {
      LogWarn(
          fmt::format("nothing is known of a '{}': plans take it for a CPU device; pass "
                      "--profile FILE",
                      gpu));
      return std::string();
    }
    profile = *known;
    profile.links = mesh::LinksOfGpu(gpu, *known);
  } else {
    MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(mode));
    auto parsed = mesh::ParseDeviceProfile(text);
    if (!parsed)
      return Fail(InvalidArgument(fmt::format("{}: {}", mode, parsed.error().message())));
    profile = std::move(*parsed);
  }
  profile.kind = mesh::DeviceKind::kGpu;
  if (memory_bytes > 0) SetUsableMemory(memory_bytes, profile);
  return mesh::FormatDeviceProfile(profile);
}

std::string MachineDescription(const std::string& build) {
  return fmt::format("{}, {} cores; {}", ProcessorName(), ::sysconf(_SC_NPROCESSORS_ONLN), build);
}

std::string MeasuringLockPath() {
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  if (error) return "";
  return fmt::format("{}/meshwright-measuring-{}.lock", folder.string(), ::getuid());
}

}  // namespace meshwright::profile
