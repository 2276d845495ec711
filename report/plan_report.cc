#include "report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "base/text.h"
#include "mesh/device_order.h"

namespace meshwright::report {
namespace {

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string TrafficLines(const planner::Forecast& forecast) {
  std::string text;
  for (const auto& [axes, traffic] : forecast.by_axes) {
    const auto bytes = static_cast<int64_t>(traffic.bytes);
    text += fmt::format("  over {:<12} {:>12}", axes, FormatBytes(bytes));
    if (traffic.seconds > 0) text += fmt::format("  {} a device", FormatDuration(traffic.seconds));
    text += '\n';
  }
  for (size_t link = 0; link < mesh::kLinkClassCount; ++link) {
    if (forecast.bytes_by_link[link] == 0) continue;
    const auto bytes = static_cast<int64_t>(forecast.bytes_by_link[link]);
    text += fmt::format(
        "  {:<17} {:>12}\n",
        fmt::format("{} links", mesh::LinkClassName(static_cast<mesh::LinkClass>(link))),
        FormatBytes(bytes));
  }
  return text;
}

// Null where the worker has none.
Result<mesh::SharedProfile> ProfileOf(const client::WorkerInfo& worker) {
  if (worker.device_profile.empty()) return mesh::SharedProfile{};
  auto profile = mesh::ParseDeviceProfile(worker.device_profile);
  if (profile) return std::make_shared<const mesh::DeviceProfile>(std::move(*profile));
  return Fail(Internal(fmt::format("the profile of worker {} cannot be read: {}", worker.name,
                                   profile.error().message())));
}

// "76.00 GiB (80.00 GiB less 4.00 GiB for driver, NCCL and workspaces)".
std::string MemoryText(const mesh::DeviceProfile& profile, int64_t memory_bytes) {
  if (memory_bytes == 0) return "memory not limited";
  const std::string text = FormatBytes(memory_bytes);
  if (profile.reserve_bytes == 0 || memory_bytes != profile.usable_bytes()) return text;
  return fmt::format("{} ({} less {} for driver, NCCL and workspaces)", text,
                     FormatBytes(profile.memory_bytes), FormatBytes(profile.reserve_bytes));
}

// "cpu, 50 GFLOP/s in f32, memory not limited".
std::string DeviceText(const mesh::DeviceProfile& profile, int64_t memory_bytes) {
  return fmt::format("{}, {:.0f} GFLOP/s in f32, {}", profile.name,
                     profile.PeakOf(ir::DType::kF32) / 1e9, MemoryText(profile, memory_bytes));
}

// Who waits for copies waits for no other device.
std::string WaitingLine(const planner::Forecast& forecast) {
  const std::string both =
      fmt::format("{} of the time, {} of the work", Percent(forecast.idle_of_total),
                  Percent(forecast.idle_of_busy));
  if (forecast.copies_of_total <= 0)
    return fmt::format("  waiting for stages and members {}\n", both);
  const double others = std::max(0.0, forecast.idle_of_total - forecast.copies_of_total);
  return fmt::format(
      "  waiting {}; of the time {} for the host and copies from its memory or a disk, {} for "
      "stages and "
      "members\n",
      both, Percent(forecast.copies_of_total), Percent(others));
}

}  // namespace

std::string FormatForecast(const planner::Forecast& forecast) {
  std::string text =
      fmt::format("forecast   step {}, {} tokens/s, MFU {}, HFU {} of {:.1f} TFLOP/s\n",
                  FormatDuration(forecast.step_s),
                  FormatCount(static_cast<int64_t>(std::min(forecast.tokens_per_s, 1e15))),
                  Percent(forecast.model_flops_utilization),
                  Percent(forecast.hardware_flops_utilization), forecast.peak_flops_per_s / 1e12);
  text += WaitingLine(forecast);
  text += fmt::format("  collectives {} a device", FormatDuration(forecast.collective_s));
  if (forecast.hidden_s > 0) {
    text += fmt::format(", {} of it behind what computes", FormatDuration(forecast.hidden_s));
  }
  text += "\n";
  return text + TrafficLines(forecast);
}

std::string DescribeDevices(const mesh::Topology& topology) {
  std::vector<std::pair<std::string, int64_t>> kinds;
  bool assumed = false;
  for (const mesh::Device& device : topology.devices) {
    const mesh::SharedProfile& standard = mesh::DefaultDeviceProfile();
    const mesh::DeviceProfile& profile = device.profile == nullptr ? *standard : *device.profile;
    assumed = assumed || &profile == standard.get();
    const std::string text = DeviceText(profile, device.memory_bytes);
    const auto same = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const auto& kind) { return kind.first == text; });
    if (same == kinds.end()) {
      kinds.emplace_back(text, 1);
    } else {
      ++same->second;
    }
  }
  std::vector<std::string> texts;
  for (const auto& [text, count] : kinds) texts.push_back(fmt::format("{} x {}", count, text));
  const std::string text = Join(texts, "; ");
  return assumed ? text + ". Assumed: --cluster FILE or --address HOST:PORT plans for others"
                 : text;
}

bool IsMisfit(const Status& error) {
  return error.code() == StatusCode::kInvalidArgument ||
         error.code() == StatusCode::kResourceExhausted;
}

Result<mesh::Topology> DryRunTopology(int64_t devices, int64_t devices_per_worker) {
  constexpr int64_t kMaxDevices = 1 << 16;
  if (devices < 1 || devices > kMaxDevices) {
    return Fail(InvalidArgument(
        fmt::format("the plan is for {} devices; it can be for 1 to {}: choose smaller degrees or "
                    "another --devices",
                    devices, kMaxDevices)));
  }
  if (devices_per_worker < 1 || devices_per_worker > kMaxDevices) {
    return Fail(InvalidArgument(fmt::format("--devices-per-worker is {}; it must be in [1, {}]",
                                            devices_per_worker, kMaxDevices)));
  }
  return mesh::Topology::Local(static_cast<int>(devices), static_cast<int>(devices_per_worker));
}

Result<mesh::Topology> TopologyOf(const std::vector<client::WorkerInfo>& workers,
                                  const std::string& kind, int64_t least) {
  const auto kind_of = [](const client::WorkerInfo& worker) {
    return worker.device_kind.empty() ? std::string("cpu") : worker.device_kind;
  };
  std::map<std::string, int64_t> ready;
  for (const client::WorkerInfo& worker : workers) {
    if (worker.state == "READY") ready[kind_of(worker)] += worker.devices;
  }
  const bool gpus = ready["cuda"] >= least || ready["cpu"] == 0;
  const std::string taken = kind != "auto" ? kind : (gpus && ready["cuda"] > 0 ? "cuda" : "cpu");
  mesh::Topology topology;
  for (const client::WorkerInfo& worker : workers) {
    if (worker.state != "READY" || kind_of(worker) != taken) continue;
    MW_ASSIGN_OR_RETURN(const mesh::SharedProfile profile, ProfileOf(worker));
    mesh::Host& host = topology.hosts[worker.host];
    host.cores = std::max(host.cores, worker.host_cores);
    host.memory_bytes = std::max(host.memory_bytes, worker.host_memory_bytes);
    for (int i = 0; i < worker.devices; ++i) {
      mesh::Device device;
      device.worker = worker.name;
      device.local_index = i;
      device.host = worker.host;
      device.memory_bytes = worker.memory_bytes;
      device.disk = mesh::DiskOf(taken != "cpu", worker.no_scratch_dir);
      device.disk_bytes = worker.disk_bytes;
      device.profile = profile;
      device.threads = std::max(1, worker.threads_per_device);
      topology.devices.push_back(std::move(device));
    }
  }
  if (topology.devices.empty() && ready["cpu"] + ready["cuda"] > 0) {
    return Fail(
        ResourceExhausted(fmt::format("no ready worker has devices of the kind {}; start one with "
                                      "`meshwright worker --device {}`, "
                                      "or change parallelism.device",
                                      taken, taken)));
  }
  if (topology.devices.empty()) {
    return Fail(
        ResourceExhausted("the cluster has no ready worker; start one with `meshwright worker`"));
  }
  mesh::SortForPlacement(topology.devices);  // as for a job that gets them all
  mesh::TakeMeasuredLinks(topology);
  mesh::ShareHost(topology);
  return topology;
}

Result<mesh::Mesh> ParseMesh(std::string_view text) {
  constexpr int64_t kMaxDevices = 1 << 16;
  mesh::Mesh mesh;
  int64_t devices = 1;
  for (const std::string& part : Split(text, ',')) {
    const size_t equals = part.find('=');
    int64_t size = 0;
    const char* end = part.data() + part.size();
    const bool numeric = equals != std::string::npos && equals > 0 &&
                         std::from_chars(part.data() + equals + 1, end, size).ptr == end;
    if (!numeric || size < 1 || size > kMaxDevices || devices * size > kMaxDevices) {
      return Fail(
          InvalidArgument(fmt::format("mesh '{}': '{}' is no axis; write name=size with sizes >= "
                                      "1, for example data=2,tensor=2",
                                      text, part)));
    }
    devices *= size;
    mesh.axes.push_back({part.substr(0, equals), size});
  }
  for (int64_t i = 0; i < devices; ++i) mesh.devices.emplace_back(static_cast<int32_t>(i));
  return mesh;
}

}  // namespace meshwright::report
