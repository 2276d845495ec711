#include "controller/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ir/parallel_pins.h"
#include "mesh/device_order.h"
#include "planner/layout.h"
#include "planner/resolve_layout.h"

namespace meshwright::controller {
namespace {

// More devices than any cluster has; products stop here, whatever a stored job asks for.
constexpr int64_t kMostDevices = int64_t{1} << 40;

// REQUIRES: both in [1, kMostDevices].
int64_t Times(int64_t a, int64_t b) {
  MW_CHECK(a >= 1 && a <= kMostDevices && b >= 1 && b <= kMostDevices) << a << " x " << b;
  return a > kMostDevices / b ? kMostDevices : a * b;
}

struct Need {
  int64_t least = 1;    // devices that the job cannot do without
  int64_t granule = 1;  // it takes multiples of this
  bool open_ended = false;

  // REQUIRES available >= least.
  int64_t TakenOf(int64_t available) const {
    return open_ended ? available / granule * granule : least;
  }
};

// A degree that is open (0) needs no more than one.
int64_t DegreeOf(int64_t degree) { return std::clamp<int64_t>(degree, 1, kMostDevices); }

// Devices of a replica.
int64_t ReplicaOf(const ir::ParallelSpec& parallel) {
  int64_t tensor = DegreeOf(parallel.tensor);
  const auto axes = planner::ParseTensorAxes(parallel.tensor_axes);
  if (parallel.tensor == 0 && axes.has_value()) {
    for (const int64_t size : *axes) tensor = Times(tensor, DegreeOf(size));
  }
  return Times(Times(tensor, DegreeOf(parallel.context)), DegreeOf(parallel.pipeline));
}

// Of meshes of different sizes; a text that says none is the planner's to refuse.
int64_t DevicesOfStages(const std::string& stage_meshes) {
  const auto degrees = planner::ParseStageDegrees(stage_meshes);
  if (!degrees.has_value()) return 1;
  int64_t devices = 0;
  for (const planner::Degrees& stage : *degrees) {
    int64_t own = 1;
    for (const planner::AxisKind& kind : planner::kAxisKinds) {
      own = Times(own, DegreeOf(stage[kind.axis]));
    }
    devices = std::min(kMostDevices, devices + own);
  }
  return devices;
}

Need NeedOf(const ir::ParallelSpec& parallel) {
  if (!parallel.stage_meshes.empty()) {
    const int64_t devices = DevicesOfStages(parallel.stage_meshes);
    return Need{devices, devices, false};
  }
  const int64_t least = Times(ReplicaOf(parallel), DegreeOf(parallel.data));
  const bool open = parallel.data == 0 || (parallel.tensor == 0 && parallel.tensor_axes.empty()) ||
                    parallel.pipeline == 0;
  return Need{least, least, open};
}

std::string DegreesText(const ir::ParallelSpec& parallel) {
  const auto text = [](int64_t degree) {
    return degree == 0 ? std::string("auto") : std::to_string(degree);
  };
  if (!parallel.stage_meshes.empty()) {
    constexpr size_t kMostShown = 200;
    const bool cut = parallel.stage_meshes.size() > kMostShown;
    return fmt::format("meshes={}{}", parallel.stage_meshes.substr(0, kMostShown),
                       cut ? "..." : "");
  }
  const std::string context =
      parallel.context > 1 ? fmt::format("context={} ", parallel.context) : "";
  return fmt::format("data={} {}tensor={} pipeline={}", text(parallel.data), context,
                     text(parallel.tensor), text(parallel.pipeline));
}

// " (pinned by parallelism.tensor_parallel_degree = 4)": the degrees above 1, as job files call
// them; "" where there is none.
std::string PinsText(const ir::ParallelSpec& parallel) {
  std::string text;
  for (const ir::Pin& pin : ir::Pins()) {
    const auto* const member = std::get_if<int64_t ir::ParallelSpec::*>(&pin.member);
    const bool is_degree = std::string_view(pin.key).ends_with("_degree") && pin.of_layout;
    const bool counts = is_degree && !std::string_view(pin.name).starts_with("zero");
    if (!counts || member == nullptr || parallel.**member <= 1) continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", pin.key, parallel.**member);
  }
  return text.empty() ? "" : fmt::format(" (pinned by {})", text);
}

std::string InfeasibleText(const ir::ParallelSpec& parallel, const Need& need, int64_t has) {
  const int64_t replica = ReplicaOf(parallel);
  std::string fix = "add workers";
  if (!parallel.stage_meshes.empty()) {
    fix += ", or choose smaller meshes";
  } else if (replica <= has) {
    fix += fmt::format(", or set data <= {} (tensor x pipeline = {})", has / replica, replica);
  } else {
    fix += fmt::format(", or lower tensor x pipeline (= {}) to at most {}", replica, has);
  }
  return fmt::format("{} needs {} devices, the cluster has {}; {}{}", DegreesText(parallel),
                     need.least, has, fix, PinsText(parallel));
}

}  // namespace

Placement Place(const ir::ParallelSpec& parallel, std::vector<mesh::Device> free,
                const ReturningDevices& returning, int64_t cluster_devices) {
  const Need need = NeedOf(parallel);
  const auto available = static_cast<int64_t>(free.size());
  Placement placement;
  placement.least = need.least;
  if (cluster_devices == 0) {
    placement.outcome = PlacementOutcome::kNoWorkers;
    placement.message = fmt::format(
        "{} needs {} devices and no worker has joined; start one with "
        "'meshwright worker --address HOST:PORT'",
        DegreesText(parallel), need.least);
    return placement;
  }
  if (need.least > cluster_devices) {
    placement.outcome = PlacementOutcome::kInfeasible;
    placement.message = InfeasibleText(parallel, need, cluster_devices);
    return placement;
  }
  if (need.least > available) {
    placement.outcome = PlacementOutcome::kNoCapacity;
    placement.message = fmt::format("{} needs {} devices; {} of {} are free", DegreesText(parallel),
                                    need.least, available, cluster_devices);
    return placement;
  }
  MW_CHECK(need.least >= 1 && need.granule >= 1) << need.least << " devices, " << need.granule;
  const int64_t taken = need.TakenOf(available);
  if (need.TakenOf(available + returning.count) > taken) {
    placement.outcome = PlacementOutcome::kNoCapacity;
    placement.message =
        fmt::format("{} takes every free device: waits for {} more that job {} {} letting go of",
                    DegreesText(parallel), returning.count, fmt::join(returning.jobs, " and job "),
                    returning.jobs.size() == 1 ? "is" : "are");
    return placement;
  }
  mesh::SortForPlacement(free);
  MW_CHECK(taken >= need.least && taken <= available) << taken << " of " << available << " devices";
  free.resize(static_cast<size_t>(taken));
  placement.outcome = PlacementOutcome::kPlaced;
  placement.devices = std::move(free);
  return placement;
}

}  // namespace meshwright::controller
