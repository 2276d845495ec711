// What a plan predicts, for people. Also the small parsers of the dry-run commands.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "mesh/sharding.h"
#include "mesh/topology.h"
#include "planner/forecast.h"
#include "planner/plan.h"

namespace meshwright::report {

// The kernels of each stage's executables, fused ones with their steps: FLOPs, bytes read and
// written, seconds by the profile of the stage's first device.
std::string FormatExecutables(const planner::Plan& plan, const mesh::Topology& topology);

// "einsum bsd,df->bsf + add + gelu": the ops of a fused body in order.
std::string KernelName(const ir::Node& node);

// What is received over every axis and class of link is of one step, all devices together.
std::string FormatForecast(const planner::Forecast& forecast);

// What a plan is for: "8 x a100-40g, 19500 GFLOP/s in f32, 40.00 GiB; 8 x ...". Devices that no
// worker measured and no cluster file describes are said to be assumed, with the options that say
// more.
std::string DescribeDevices(const mesh::Topology& topology);

// Whether an error of planner::MakePlan, and of nothing else, says that a sound job does not fit
// the devices; the controller tells them apart in the same way (controller/planning.h).
bool IsMisfit(const Status& error);

// `devices` local devices to plan for. Errors: kInvalidArgument when there are more than a plan can
// have programs, or when workers have none.
Result<mesh::Topology> DryRunTopology(int64_t devices, int64_t devices_per_worker);

// Devices of the workers that are READY, in the controller's order.
// Errors: kResourceExhausted when there are none.
// Devices of one kind, as the controller places jobs: "cpu", "cuda", or "auto": GPUs where there
// are `least` of them.
Result<mesh::Topology> TopologyOf(const std::vector<client::WorkerInfo>& workers,
                                  const std::string& kind = "auto", int64_t least = 1);

// "data=2,tensor=2" -> a mesh of devices 0..3. Errors: kInvalidArgument naming the bad part.
Result<mesh::Mesh> ParseMesh(std::string_view text);

}  // namespace meshwright::report
