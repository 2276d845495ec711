#include "search/stage_space.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace meshwright::search {
namespace {

constexpr double kTieShare = 1e-8;  // of a step's least time: costs closer than this are equal

// Per number of microbatches: whether some range fits the memory with these, but with no more.
std::vector<bool> Thresholds(const StageTable& table) {
  std::vector<bool> thresholds(1);
  for (int first = 0; first < table.layers(); ++first) {
    for (int end = first + 1; end <= table.layers(); ++end) {
      for (const StageEntry& entry : table.entries(first, end)) {
        const auto in_flight_max = static_cast<size_t>(entry.in_flight_max);
        if (in_flight_max >= thresholds.size()) thresholds.resize(in_flight_max + 1);
        thresholds[in_flight_max] = true;
      }
    }
  }
  return thresholds;
}

// The number of stages from which on more of them change nothing: no range that fits the memory at
// one such depth fails to at another.
int DepthFromWhichAllAreEqual(const StageProblem& problem, const StageTable& table, int deepest) {
  const std::vector<bool> thresholds = Thresholds(table);
  const auto next_threshold = [&](int depth) {
    const int in_flight = problem.schedule.in_flight(depth, problem.microbatches);
    auto at = std::min(static_cast<size_t>(in_flight), thresholds.size());
    while (at < thresholds.size() && !thresholds[at]) ++at;
    return at;
  };
  int depth = deepest;
  while (depth > 1 && next_threshold(depth - 1) == next_threshold(deepest)) --depth;
  return depth;
}

StageDepths DepthsOf(const StageProblem& problem, const StageTable& table, int devices) {
  StageDepths depths;
  const std::optional<int> pinned = problem.pins.stage_count();
  const int deepest = std::max(1, std::min(problem.layers, devices));
  depths.open = !pinned.has_value();
  const int count = pinned ? *pinned : DepthFromWhichAllAreEqual(problem, table, deepest);
  depths.pinned_option.assign(static_cast<size_t>(count), -1);
  for (int depth = 1; depth <= count; ++depth) {
    depths.in_flight.push_back(problem.schedule.in_flight(depth, problem.microbatches));
  }
  for (const StagePins::Option& pin : problem.pins.options) {
    depths.pinned_option[static_cast<size_t>(count - 1 - pin.stage)] = pin.option;
  }
  return depths;
}

// A share of what any step takes: of the least fills, or, where these may be nothing, of the least
// that a stage may take at all.
double TieLimit(const StageTable& table) {
  const double fill_s = table.prefix_fill_s(table.layers());
  if (fill_s > 0) return std::isfinite(fill_s) ? kTieShare * fill_s : 0;
  double least_s = std::numeric_limits<double>::infinity();
  for (int first = 0; first < table.layers(); ++first) {
    for (int end = first + 1; end <= table.layers(); ++end) {
      for (const StageEntry& entry : table.entries(first, end)) {
        for (double cost_s : {entry.fill_s, entry.compute_s, entry.tail_s}) {
          if (cost_s > 0) least_s = std::min(least_s, cost_s);
        }
      }
    }
  }
  return kTieShare * (std::isfinite(least_s) ? least_s : 1);
}

// A stage weighs more than all devices together.
StageTies TiesOf(double limit_s, int layers, int devices) {
  const double stage_s = limit_s / (layers + 1);
  return {stage_s, stage_s / (devices + 1)};
}

}  // namespace

Result<std::unique_ptr<StageSpace>> StageSpace::Make(const StageProblem& problem,
                                                     const StageSpaceOptions& options) {
  StageInventory inventory = StageInventory::Make(problem, options.limits, options.counts);
  MW_ASSIGN_OR_RETURN(StageTable table, StageTable::Make(problem, inventory, options.extra_bytes));
  return std::make_unique<StageSpace>(problem, std::move(inventory), std::move(table));
}

StageSpace::StageSpace(const StageProblem& problem, StageInventory inventory, StageTable table)
    : inventory_(std::move(inventory)),
      table_(std::move(table)),
      tie_limit_s_(TieLimit(table_)),
      ties_(TiesOf(tie_limit_s_, problem.layers, inventory_.devices())),
      frontier_(table_, inventory_, DepthsOf(problem, table_, inventory_.devices()), ties_) {}

double StageSpace::weighted_devices() const {
  double devices = 0;
  for (int c = 0; c < inventory_.classes(); ++c) {
    devices += table_.class_weight(c) * inventory_.free_devices(c, inventory_.full());
  }
  return std::max(devices, std::numeric_limits<double>::min());
}

double StageSpace::TieCost(std::span<const StageChoice> stages) const {
  double cost_s = 0;
  for (const StageChoice& stage : stages) {
    const int slot = inventory_.slot_of(stage.option);
    const int devices = inventory_.slots()[static_cast<size_t>(slot)].devices;
    cost_s += ties_.stage_s + ties_.device_s * devices;
  }
  return cost_s;
}

}  // namespace meshwright::search
