#include "controller/snapshot_cadence.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace meshwright::controller {
namespace {

constexpr double kRarestSnapshot = 1e6;  // steps

}  // namespace

SnapshotCadence::SnapshotCadence(int64_t every, int64_t start)
    : every_(every < 0 ? 1 : every), by_cost_(every < 0), last_(start) {}

std::optional<int64_t> SnapshotCadence::Due(int64_t steps) const {
  if (every_ == 0 || under_way_) return std::nullopt;
  return halting_ ? steps + 1 : std::max(steps + 1, last_ + every_);
}

void SnapshotCadence::Begin(int64_t steps) {
  last_ = steps;
  under_way_ = true;
}

void SnapshotCadence::End(const proto::SnapshotTaken& taken, double step_seconds) {
  under_way_ = false;
  if (!taken.error.ok()) every_ = 0;
  if (taken.error.ok()) whole_ = taken.step;
  if (every_ == 0 || !by_cost_) return;
  seconds_[static_cast<size_t>(ended_++) % std::size(seconds_)] = taken.seconds;
  const auto known = static_cast<ptrdiff_t>(std::min<int64_t>(ended_, std::size(seconds_)));
  const double cost = *std::min_element(seconds_, seconds_ + known);
  const double steps = step_seconds > 0 ? std::ceil(cost / (kMostOfTime * step_seconds)) : 1;
  every_ = static_cast<int64_t>(std::clamp(steps, 1.0, kRarestSnapshot));
}

}  // namespace meshwright::controller
