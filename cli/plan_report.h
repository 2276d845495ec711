// What a plan predicts: one simulated step. Also the small parsers of the dry-run commands.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "ir/schema.h"
#include "mesh/sharding.h"
#include "mesh/topology.h"
#include "planner/plan.h"

namespace meshwright::cli {

// What a device is taken to do per second.
struct Rates {
  double flops_per_s = 0;
  double bytes_per_s = 0;
};
Rates RatesOf(const mesh::Topology& topology);
// What processors gain on operands of 16 bits.
inline constexpr double kHalfSpeedup = 2;
// f64 runs on the reference kernels: plain loops, for comparing.
inline constexpr double kF64Slowdown = 16;
// The rates of a node: those of its first operand's type.
Rates RatesFor(const ir::Graph& graph, const ir::Node& node, Rates rates);
// The longer of computing and moving the bytes.
double RooflineSeconds(const ir::OpCost& cost, const Rates& rates);

// The kernels of each stage's executables, fused ones with their steps: FLOPs, bytes read and
// written, seconds at the rates.
std::string FormatExecutables(const planner::Plan& plan, const mesh::Topology& topology);

struct StepForecast {
  double step_s = 0;
  double busy_fraction = 0;         // mean over devices
  std::vector<int64_t> sent_bytes;  // per device, between stages
  std::string chrome_trace;
};

// Replays the step programs in virtual time: FLOPs at the device's speed, memory traffic and
// messages at fixed rates.
Result<StepForecast> ForecastStep(const planner::Plan& plan, const mesh::Topology& topology);
std::string FormatForecast(const StepForecast& forecast);

// Whether an error of planner::MakePlan, and of nothing else, says that a sound job does not fit
// the devices; the controller tells them apart in the same way (controller/planning.h).
bool IsMisfit(const Status& error);

// `devices` local devices to plan for. Errors: kInvalidArgument when there are more than a plan can
// have programs, or when workers have none.
Result<mesh::Topology> DryRunTopology(int64_t devices, int64_t devices_per_worker);

// Devices of the workers that are READY, in the controller's order.
// Errors: kResourceExhausted when there are none.
Result<mesh::Topology> TopologyOf(const std::vector<client::WorkerInfo>& workers);

// "data=2,tensor=2" -> a mesh of devices 0..3. Errors: kInvalidArgument naming the bad part.
Result<mesh::Mesh> ParseMesh(std::string_view text);

}  // namespace meshwright::cli
