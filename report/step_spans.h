// A recorded step as spans, each with what it was spent on; the same parts of a forecast step; and
// both node by node.
//
//   compute        kernels, and what a RUN copies behind its last one
//   input          nodes that read rows
//   communication  a collective from when its last member came to it, a message from when it was
//                  sent: nothing else was done meanwhile, so all of it is exposed
//   stragglers     a collective before its last member came
//   bubble         waiting for a message that was not sent yet
//   copies         waiting for copies between the memories of host and device
//   rest           freeing, and the runtime's own time
//   between        from a step's end to the next one's begin, where both are recorded
//
// Of lanes beside the device's own thread nothing is in the parts: they cost no time of the step.
//
// Thread rule: pure functions. REQUIRES everywhere: records that CheckRecord accepts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/measured_factors.h"
#include "planner/cost_model.h"
#include "planner/forecast.h"
#include "report/recorded_run.h"

namespace meshwright::report {

enum class StepPart : uint8_t {
  kCompute,
  kInput,
  kCommunication,
  kStragglers,
  kBubble,
  kCopies,
  kRest,
  kBetween
};
inline constexpr size_t kStepPartCount = 8;
std::string_view StepPartName(StepPart part);  // "compute", "input", ...

struct StepSpan {
  int rank = 0;
  int lane = 0;
  int instruction = 0;
  int node = ir::StepMark::kWhole;
  StepPart part = StepPart::kRest;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// By rank and lane in time. A collective or message that was waited for is two spans.
std::vector<StepSpan> SpansOf(const planner::Plan& plan, const RecordedStep& step);

// RUNs as a simulation has them, from the step's begin: for pictures.
planner::Simulation SimulationOf(const planner::Plan& plan, const RecordedStep& step);

// Seconds of a step by part, as one device has them.
struct StepParts {
  std::array<double, kStepPartCount> seconds = {};

  double& Of(StepPart part) { return seconds[static_cast<size_t>(part)]; }
  double Of(StepPart part) const { return seconds[static_cast<size_t>(part)]; }
  double total() const;
};

struct MeasuredParts {
  StepParts mean;                  // of devices and steps; their sum is the time of a step
  std::map<int, StepParts> ranks;  // of steps
  int64_t steps = 0;
};
// REQUIRES steps, in order.
MeasuredParts MeasureParts(const planner::Plan& plan, const std::vector<RecordedStep>& steps);

// Of the mean device. `topology`: of the plan.
StepParts ForecastParts(const planner::Plan& plan, const planner::Forecast& forecast,
                        const mesh::Topology& topology);

// All nodes of one name: "forward layer 3 einsum bsd,df->bsf + gelu". Seconds are of a step, mean
// over the devices.
struct NamedSeconds {
  std::string name;
  StepPart part = StepPart::kCompute;
  double calls = 0;
  double measured_s = 0;
  double forecast_s = 0;  // 0: the model has no cost of its own for it
};
// The longest first; equal ones by name.
std::vector<NamedSeconds> SecondsByName(const planner::Plan& plan, const mesh::Topology& topology,
                                        const std::vector<RecordedStep>& steps);

// What steps show of every kind of device, by the name of its profile. `base`: the plan's topology
// with profiles as they were measured. Kinds whose devices share cores of a host are left out:
// there a kernel is as slow as its neighbours make it.
std::map<std::string, mesh::MeasuredSteps> MeasureKernels(const planner::Plan& plan,
                                                          const mesh::Topology& base,
                                                          const std::vector<RecordedStep>& steps);

}  // namespace meshwright::report
