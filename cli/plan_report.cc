#include "cli/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/text.h"
#include "planner/simulate.h"

namespace meshwright::cli {
namespace {

// Rates of a CPU device and of a loopback connection; only their order of magnitude matters for a
// forecast.
constexpr double kMemoryBytesPerS = 1e10;
constexpr double kMessageAlphaS = 20e-6;
constexpr double kMessageSPerByte = 1 / 2e9;

double ExecutableSeconds(const ir::Graph& graph, const Rates& rates) {
  double seconds = 0;
  for (const ir::Node& node : graph.nodes) {
    seconds += RooflineSeconds(ir::CostOf(graph, node), RatesFor(graph, node, rates));
  }
  return seconds;
}

}  // namespace

Rates RatesOf(const mesh::Topology& topology) {
  const mesh::DeviceProfile& profile =
      topology.devices.empty() ? *mesh::DefaultDeviceProfile() : topology.ProfileOf(0);
  return {profile.PeakOf(ir::DType::kF32), kMemoryBytesPerS};
}

Rates RatesFor(const ir::Graph& graph, const ir::Node& node, Rates rates) {
  if (node.inputs.empty()) return rates;
  const ir::DType dtype = graph.type(node.inputs[0]).dtype;
  if (dtype == ir::DType::kBF16 || dtype == ir::DType::kF16) rates.flops_per_s *= kHalfSpeedup;
  if (dtype == ir::DType::kF64) rates.flops_per_s /= kF64Slowdown;
  return rates;
}

double RooflineSeconds(const ir::OpCost& cost, const Rates& rates) {
  return std::max(cost.flops / rates.flops_per_s, cost.bytes / rates.bytes_per_s);
}

Result<StepForecast> ForecastStep(const planner::Plan& plan, const mesh::Topology& topology) {
  const Rates rates = RatesOf(topology);
  std::map<const ir::Graph*, double> seconds;
  planner::SimulationCosts costs;
  costs.run_s = [&](const ir::Program&, const ir::Executable& executable) {
    const auto [at, added] = seconds.try_emplace(executable.graph.get(), 0);
    if (added) at->second = ExecutableSeconds(*executable.graph, rates);
    return at->second;
  };
  costs.message_alpha_s = kMessageAlphaS;
  costs.message_seconds_per_byte = kMessageSPerByte;
  MW_ASSIGN_OR_RETURN(const planner::Simulation simulation, planner::Simulate(plan.step, costs));
  StepForecast forecast;
  forecast.step_s = simulation.makespan_s;
  double busy = 0;
  for (const double b : simulation.busy_s) busy += b;
  const double total = simulation.makespan_s * static_cast<double>(simulation.busy_s.size());
  forecast.busy_fraction = total > 0 ? busy / total : 0;
  forecast.sent_bytes = simulation.sent_bytes;
  forecast.chrome_trace = planner::ToChromeTrace(plan.step, simulation);
  return forecast;
}

std::string FormatForecast(const StepForecast& forecast) {
  int64_t sent = 0;
  for (const int64_t bytes : forecast.sent_bytes) sent += bytes;
  return fmt::format("forecast   step {}, devices busy {:.0f} %, {} between stages\n",
                     FormatDuration(forecast.step_s), 100 * forecast.busy_fraction,
                     FormatBytes(sent));
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

Result<mesh::Topology> TopologyOf(const std::vector<client::WorkerInfo>& workers) {
  mesh::Topology topology;
  for (const client::WorkerInfo& worker : workers) {
    if (worker.state != "READY") continue;
    for (int i = 0; i < worker.devices; ++i) {
      mesh::Device device;
      device.worker = worker.name;
      device.local_index = i;
      device.host = worker.host;
      device.memory_bytes = worker.memory_bytes;
      topology.devices.push_back(std::move(device));
    }
  }
  if (topology.devices.empty()) {
    return Fail(
        ResourceExhausted("the cluster has no ready worker; start one with `meshwright worker`"));
  }
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

}  // namespace meshwright::cli
