#include "search/stage_problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace meshwright::search {
namespace {

constexpr int kPortsMax = 64;                    // the search takes their square as a factor
constexpr int64_t kBytesMax = int64_t{1} << 50;  // of one layer: sums over layers do not overflow

template <typename T>
const T& ElementAt(const std::vector<T>& values, int index) {
  return values[static_cast<size_t>(index)];
}

Status CheckOption(const StageProblem& problem, int option) {
  const StageOption& o = ElementAt(problem.options, option);
  const auto wrong = [&](std::string_view what) {
    return InvalidArgument(fmt::format("stage option {} (\"{}\") {}", option, o.name, what));
  };
  if (o.device_class < 0 || o.device_class >= static_cast<int>(problem.classes.size())) {
    return wrong(
        fmt::format("is of device class {} of {}", o.device_class, problem.classes.size()));
  }
  if (o.shape.hosts < 1 || o.shape.devices_per_host < 1) {
    return wrong(
        fmt::format("has a submesh of {}x{} devices", o.shape.hosts, o.shape.devices_per_host));
  }
  if (o.port < 0 || o.port >= kPortsMax) {
    return wrong(
        fmt::format("has port {}; ports are numbered from 0 to {}", o.port, kPortsMax - 1));
  }
  if (static_cast<int>(o.layers.size()) != problem.layers) {
    return wrong(fmt::format("has costs of {} layers, not {}", o.layers.size(), problem.layers));
  }
  for (int layer = 0; layer < problem.layers; ++layer) {
    const Status status = CheckLayerCost(ElementAt(o.layers, layer), problem.schedule);
    if (!status.ok()) return wrong(fmt::format("in layer {} {}", layer, status.message()));
  }
  return OkStatus();
}

Status CheckBegins(const StageProblem& problem) {
  const std::vector<int>& begins = *problem.pins.begins;
  const bool ascending =
      std::adjacent_find(begins.begin(), begins.end(), std::greater_equal<>()) == begins.end();
  if (begins.empty() || begins[0] != 0 || !ascending || begins.back() >= problem.layers) {
    return InvalidArgument(
        fmt::format("pinned stages begin at layers [{}]; they must begin at 0 and ascend below {}",
                    fmt::join(begins, ", "), problem.layers));
  }
  if (problem.pins.stages && *problem.pins.stages != static_cast<int>(begins.size())) {
    return InvalidArgument(fmt::format("{} stages are pinned, and the beginnings of {}: [{}]",
                                       *problem.pins.stages, begins.size(),
                                       fmt::join(begins, ", ")));
  }
  return OkStatus();
}

// Pinned options that no inventory of these hosts can hold together.
Status CheckPinnedPlaces(const StageProblem& problem) {
  for (size_t c = 0; c < problem.classes.size(); ++c) {
    std::vector<SubmeshShape> shapes;
    std::vector<std::string> pins;
    for (const StagePins::Option& pin : problem.pins.options) {
      const StageOption& option = ElementAt(problem.options, pin.option);
      if (option.device_class != static_cast<int>(c)) continue;
      shapes.push_back(option.shape);
      pins.push_back(fmt::format("stage {}: \"{}\" ({}x{})", pin.stage, option.name,
                                 option.shape.hosts, option.shape.devices_per_host));
    }
    if (PackSubmeshes(problem.classes[c].host_devices, shapes)) continue;
    return InvalidArgument(fmt::format("pinned options do not fit the hosts of class \"{}\": {}",
                                       problem.classes[c].name, fmt::join(pins, ", ")));
  }
  return OkStatus();
}

Status CheckPins(const StageProblem& problem) {
  const StagePins& pins = problem.pins;
  if (pins.begins) MW_TRY(CheckBegins(problem));
  const std::optional<int> count = pins.stage_count();
  if (count && (*count < 1 || *count > problem.layers)) {
    return InvalidArgument(
        fmt::format("{} stages are pinned for {} layers; each needs one", *count, problem.layers));
  }
  if (!pins.options.empty() && !count) {
    return InvalidArgument("options of stages are pinned, but not the number of stages; pin it");
  }
  std::vector<int> of_stage(static_cast<size_t>(count.value_or(0)), -1);
  for (const StagePins::Option& pin : pins.options) {
    if (pin.stage < 0 || pin.stage >= *count || pin.option < 0 ||
        pin.option >= static_cast<int>(problem.options.size())) {
      return InvalidArgument(fmt::format("stage {} of {} is pinned to option {} of {}", pin.stage,
                                         *count, pin.option, problem.options.size()));
    }
    int& earlier = of_stage[static_cast<size_t>(pin.stage)];
    if (earlier >= 0 && earlier != pin.option) {
      return InvalidArgument(fmt::format("stage {} is pinned to option {} and to option {}",
                                         pin.stage, earlier, pin.option));
    }
    if (earlier == pin.option) {
      return InvalidArgument(
          fmt::format("stage {} is pinned to option {} twice", pin.stage, pin.option));
    }
    earlier = pin.option;
  }
  return CheckPinnedPlaces(problem);
}

Status CheckTransfers(const StageProblem& problem) {
  if (static_cast<int>(problem.boundary_bytes.size()) != problem.layers - 1) {
    return InvalidArgument(fmt::format("{} layers have {} boundaries; give one between each two",
                                       problem.layers, problem.boundary_bytes.size()));
  }
  for (size_t i = 0; i < problem.boundary_bytes.size(); ++i) {
    if (problem.boundary_bytes[i] >= 0) continue;
    return InvalidArgument(
        fmt::format("{} bytes cross into layer {}", problem.boundary_bytes[i], i + 1));
  }
  return OkStatus();
}

Status CheckClasses(const StageProblem& problem) {
  for (const StageDeviceClass& c : problem.classes) {
    const bool positive = std::all_of(c.host_devices.begin(), c.host_devices.end(),
                                      [](int devices) { return devices > 0; });
    if (positive && c.memory_bytes >= 0) continue;
    return InvalidArgument(
        fmt::format("device class \"{}\" has a host without devices, or {} bytes of memory", c.name,
                    c.memory_bytes));
  }
  return OkStatus();
}

}  // namespace

void AddLayerCost(LayerCost& sum, const LayerCost& cost) {
  sum.forward_s += cost.forward_s;
  sum.backward_s += cost.backward_s;
  sum.weight_s += cost.weight_s;
  sum.update_s += cost.update_s;
  sum.gradient_sync_s += cost.gradient_sync_s;
  sum.state_bytes += cost.state_bytes;
  sum.activation_bytes += cost.activation_bytes;
  sum.transient_bytes = std::max(sum.transient_bytes, cost.transient_bytes);
}

PipelineModel GpipeModel() {
  return {"gpipe", [](int, int microbatches) { return microbatches; }};
}

PipelineModel OneForwardOneBackwardModel() {
  return {"1f1b", [](int stages_to_end, int microbatches) {
            return std::min(microbatches, stages_to_end);
          }};
}

int StageProblem::ports() const {
  int count = 1;
  for (const StageOption& option : options) count = std::max(count, option.port + 1);
  return count;
}

Status CheckStageProblem(const StageProblem& problem) {
  if (problem.layers < 1 || problem.microbatches < 1) {
    return InvalidArgument(fmt::format("stages of {} layers for {} microbatches; both must be >= 1",
                                       problem.layers, problem.microbatches));
  }
  if (!problem.schedule.in_flight || !(problem.schedule.delayed_weight >= 0)) {
    return InvalidArgument(
        fmt::format("schedule \"{}\" says no microbatches in flight, or delays "
                    "{} of the weight gradients",
                    problem.schedule.name, problem.schedule.delayed_weight));
  }
  for (int stages = 1; stages <= problem.layers; ++stages) {
    const int in_flight = problem.schedule.in_flight(stages, problem.microbatches);
    if (in_flight >= 1) continue;
    return InvalidArgument(
        fmt::format("schedule \"{}\" has {} microbatches in flight {} stages from the end",
                    problem.schedule.name, in_flight, stages));
  }
  MW_TRY(CheckTransfers(problem));
  MW_TRY(CheckClasses(problem));
  for (int option = 0; option < static_cast<int>(problem.options.size()); ++option) {
    MW_TRY(CheckOption(problem, option));
  }
  return CheckPins(problem);
}

Status CheckLayerCost(const LayerCost& cost, const PipelineModel& schedule) {
  for (double seconds :
       {cost.forward_s, cost.backward_s, cost.weight_s, cost.update_s, cost.gradient_sync_s}) {
    if (seconds >= 0 && std::isfinite(seconds)) continue;
    return InvalidArgument(fmt::format("takes {} s", seconds));
  }
  for (int64_t bytes : {cost.state_bytes, cost.activation_bytes, cost.transient_bytes}) {
    if (bytes >= 0 && bytes <= kBytesMax) continue;
    return InvalidArgument(fmt::format("holds {} bytes", bytes));
  }
  if (cost.weight_s > cost.backward_s) {
    return InvalidArgument(fmt::format("has {} s of weight gradients in a backward of {} s",
                                       cost.weight_s, cost.backward_s));
  }
  const double delayed_s = schedule.delayed_weight * cost.weight_s;
  if (delayed_s > cost.forward_s + cost.backward_s) {
    return InvalidArgument(fmt::format("delays {} s of the {} s that it computes", delayed_s,
                                       cost.forward_s + cost.backward_s));
  }
  return OkStatus();
}

LayerCost RangeCost(const StageProblem& problem, int option, int first, int end) {
  if (problem.range_cost) {
    if (const auto cost = problem.range_cost(option, first, end)) return *cost;
  }
  LayerCost sum;
  for (int layer = first; layer < end; ++layer) {
    AddLayerCost(sum, ElementAt(ElementAt(problem.options, option).layers, layer));
  }
  return sum;
}

int64_t StageMemoryBytes(const LayerCost& cost, int in_flight) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t bytes = 0;
  if (__builtin_mul_overflow(cost.activation_bytes, int64_t{in_flight}, &bytes)) return kMost;
  if (__builtin_add_overflow(bytes, cost.state_bytes, &bytes)) return kMost;
  if (__builtin_add_overflow(bytes, cost.transient_bytes, &bytes)) return kMost;
  return bytes;
}

std::string FormatStage(const StageProblem& problem, std::span<const StageChoice> stages,
                        int stage) {
  const StageChoice& choice = stages[static_cast<size_t>(stage)];
  const StageOption& option = ElementAt(problem.options, choice.option);
  return fmt::format("stage {} of {} (layers {}..{}, {} {}x{}, \"{}\")", stage, stages.size(),
                     choice.first_layer, choice.end_layer - 1,
                     ElementAt(problem.classes, option.device_class).name, option.shape.hosts,
                     option.shape.devices_per_host, option.name);
}

}  // namespace meshwright::search
