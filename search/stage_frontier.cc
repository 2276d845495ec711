#include "search/stage_frontier.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace meshwright::search {
namespace {

constexpr double kUnreached = std::numeric_limits<double>::infinity();
constexpr double kDeviceRounding = 1e-9;  // of all devices

// values[i] = min(values[i], cost_s + next[i]), in blocks that compile to vector instructions.
void AddMin(double* __restrict values, const double* __restrict next, double cost_s, int count) {
  constexpr int kBlock = 4;
  int i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (int k = 0; k < kBlock; ++k) {
      const double sum = cost_s + next[i + k];
      values[i + k] = sum < values[i + k] ? sum : values[i + k];
    }
  }
  for (; i < count; ++i) values[i] = std::min(values[i], cost_s + next[i]);
}

}  // namespace

StageFrontier::StageFrontier(const StageTable& table, const StageInventory& inventory,
                             StageDepths depths, StageTies ties)
    : table_(table), inventory_(inventory), depths_(std::move(depths)), ties_(ties) {
  for (const InventorySlot& slot : inventory.slots()) chains_ = std::max(chains_, slot.chain + 1);
  const auto pairs = static_cast<size_t>(table.ports()) * static_cast<size_t>(table.ports());
  slot_cost_s_.resize(pairs);
  chain_cost_s_.resize(static_cast<size_t>(chains_) * pairs);
  // Row 0 is behind the last layer: nothing is left to do, and that costs nothing.
  const size_t rows = RowOf(table.layers(), 1, 0);
  values_.resize(rows * static_cast<size_t>(inventory.states()));
  extents_.resize(rows);
  extents_[0] = {0, inventory.states(), 0};
  Weigh();
}

void StageFrontier::Weigh() {
  free_.resize(static_cast<size_t>(inventory_.states()));
  for (int state = 0; state < inventory_.states(); ++state) {
    double& free = free_[static_cast<size_t>(state)];
    for (int c = 0; c < inventory_.classes(); ++c) {
      free += table_.class_weight(c) * inventory_.free_devices(c, state);
    }
  }
  tolerance_ = kDeviceRounding * free_[static_cast<size_t>(inventory_.full())];
}

size_t StageFrontier::RowOf(int first, int depth, int port) const {
  return static_cast<size_t>(1 + (first * depths_.count() + depth - 1) * table_.ports() + port);
}

double* StageFrontier::Values(size_t row) {
  return values_.data() + row * static_cast<size_t>(inventory_.states());
}

bool StageFrontier::Allows(const Candidate& candidate, int depth) const {
  const auto d = static_cast<size_t>(depth - 1);
  if (depths_.in_flight[d] > candidate.in_flight_max) return false;
  return depths_.pinned_option[d] < 0 || depths_.pinned_option[d] == candidate.option;
}

void StageFrontier::FindCandidates(int first, int end, const StageLimits& limits) {
  candidates_.clear();
  const int next_ports = end == table_.layers() ? 1 : table_.ports();
  for (const StageEntry& entry : table_.entries(first, end)) {
    if (entry.tail_s > limits.tail_s || entry.compute_s > limits.period_s) continue;
    for (int next = 0; next < next_ports; ++next) {
      const double transfer_s = table_.transfer_s(end, entry.port, next);
      if (table_.period_s(entry.compute_s, transfer_s) > limits.period_s) continue;
      candidates_.push_back(
          {entry.slot, entry.port, next, entry.option, entry.in_flight_max,
           entry.fill_s + transfer_s + ties_.stage_s + ties_.device_s * entry.devices});
    }
  }
}

// Calls `visit` with the rows (and their depth) of stages that may follow; true once it says so.
template <typename Visit>
bool StageFrontier::VisitNext(int end, int depth, int next_port, const Visit& visit) const {
  if (end == table_.layers()) return depth == 1 && visit(size_t{0}, 0);
  if (depth > 1 && visit(RowOf(end, depth - 1, next_port), depth - 1)) return true;
  const bool again = depths_.open && depth == depths_.count();
  return again && visit(RowOf(end, depth, next_port), depth);
}

void StageFrontier::Apply(size_t to_row, size_t from_row, int slot, double cost_s) {
  const Extent& next = extents_[from_row];
  double* values = Values(to_row);
  const double* next_values = Values(from_row);
  for (const InventoryRun& run : inventory_.slots()[static_cast<size_t>(slot)].runs) {
    const double* free = free_.data() + run.from;
    const double* free_next = free_.data() + run.to;
    int begin = std::max(0, next.begin - run.to);
    int end = std::min(run.count, next.end - run.to);
    if (begin >= end) continue;
    // Free devices grow evenly along a run.
    const double step = run.count > 1 ? free[1] - free[0] : 1;
    const double least = (window_.least - free_next[0]) / step;
    const double most = (window_.most - free[0]) / step;
    if (most < begin || least > end) continue;
    if (least > begin) begin = static_cast<int>(std::ceil(least));
    if (most < end) end = static_cast<int>(most) + 1;
    if (begin >= end) continue;
    AddMin(values + run.from + begin, next_values + run.to + begin, cost_s, end - begin);
  }
}

// The least costs of one slot, per pair of ports, unless a smaller slot of its chain is as cheap.
void StageFrontier::ApplySlot(int first, int end, int depth, int slot, const StageLimits& limits) {
  const int chain = inventory_.slots()[static_cast<size_t>(slot)].chain;
  for (size_t pair = 0; pair < slot_cost_s_.size(); ++pair) {
    const double cost_s = std::exchange(slot_cost_s_[pair], kUnreached);
    if (cost_s == kUnreached) continue;
    if (chain >= 0) {
      double& least_s = chain_cost_s_[static_cast<size_t>(chain) * slot_cost_s_.size() + pair];
      if (least_s <= cost_s) continue;
      least_s = cost_s;
    }
    const int port = static_cast<int>(pair) / table_.ports();
    const int next_port = static_cast<int>(pair) % table_.ports();
    VisitNext(end, depth, next_port, [&](size_t row, int) {
      const double least_s = table_.prefix_fill_s(first) + cost_s + extents_[row].least_s;
      if (least_s < limits.fill_s) Apply(RowOf(first, depth, port), row, slot, cost_s);
      return false;
    });
  }
}

void StageFrontier::ApplyDepth(int first, int end, int depth, const StageLimits& limits) {
  std::fill(slot_cost_s_.begin(), slot_cost_s_.end(), kUnreached);
  std::fill(chain_cost_s_.begin(), chain_cost_s_.end(), kUnreached);
  int slot = -1;
  for (const Candidate& candidate : candidates_) {
    if (!Allows(candidate, depth)) continue;
    if (slot >= 0 && slot != candidate.slot) ApplySlot(first, end, depth, slot, limits);
    slot = candidate.slot;
    const auto pair = static_cast<size_t>(candidate.port * table_.ports() + candidate.next_port);
    slot_cost_s_[pair] = std::min(slot_cost_s_[pair], candidate.cost_s);
  }
  if (slot >= 0) ApplySlot(first, end, depth, slot, limits);
}

void StageFrontier::Close(size_t row) {
  const double* values = Values(row);
  Extent extent{inventory_.states(), 0, kUnreached};
  for (int state = 0; state < inventory_.states(); ++state) {
    if (values[state] == kUnreached) continue;
    extent.begin = std::min(extent.begin, state);
    extent.end = state + 1;
    extent.least_s = std::min(extent.least_s, values[state]);
  }
  extents_[row] = extent;
}

void StageFrontier::FillFirst(int first, const StageLimits& limits) {
  const size_t begin = RowOf(first, 1, 0), end = RowOf(first + 1, 1, 0);
  for (size_t row = begin; row < end; ++row) extents_[row] = {};
  const double all = free_[static_cast<size_t>(inventory_.full())];
  // Zero work under no limit takes nothing.
  const auto devices = [&](double work_s) { return work_s > 0 ? work_s / limits.period_s : 0; };
  window_.most = all - devices(table_.prefix_work_s(first)) + tolerance_;
  if (!(window_.most >= 0)) return;
  std::fill(Values(begin), Values(end), kUnreached);
  for (int last = first + 1; last <= table_.layers(); ++last) {
    FindCandidates(first, last, limits);
    if (candidates_.empty()) continue;
    window_.least = devices(table_.suffix_work_s(last)) - tolerance_;
    const int deepest = std::min(depths_.count(), table_.layers() - last + 1);
    for (int depth = 1; depth <= deepest; ++depth) ApplyDepth(first, last, depth, limits);
  }
  for (size_t row = begin; row < end; ++row) Close(row);
}

std::optional<StageFill> StageFrontier::Minimize(const StageLimits& limits,
                                                 const std::function<bool()>& stop) {
  stopped_ = false;
  for (int first = table_.layers() - 1; first >= 0; --first) {
    if (stop()) {
      stopped_ = true;
      return std::nullopt;
    }
    FillFirst(first, limits);
  }
  return Walk(limits);
}

std::optional<StageFill> StageFrontier::Walk(const StageLimits& limits) {
  StageFill fill;
  fill.fill_s = kUnreached;
  int depth = 0, port = 0, state = inventory_.full();
  for (int d = depths_.open ? 1 : depths_.count(); d <= depths_.count(); ++d) {
    for (int p = 0; p < table_.ports(); ++p) {
      const size_t row = RowOf(0, d, p);
      if (extents_[row].end <= state || Values(row)[state] >= fill.fill_s) continue;
      fill.fill_s = Values(row)[state];
      depth = d;
      port = p;
    }
  }
  if (fill.fill_s >= limits.fill_s) return std::nullopt;
  for (int first = 0; first < table_.layers(); first = fill.stages.back().end_layer) {
    StageChoice stage{first, 0, 0};
    if (!WalkStage(stage, depth, port, state, limits)) return std::nullopt;
    fill.stages.push_back(stage);
  }
  return fill;
}

// Finds the stage that a value came from, and goes on to the state behind it.
bool StageFrontier::WalkStage(StageChoice& stage, int& depth, int& port, int& state,
                              const StageLimits& limits) {
  const double value = Values(RowOf(stage.first_layer, depth, port))[state];
  for (int end = stage.first_layer + 1; end <= table_.layers(); ++end) {
    FindCandidates(stage.first_layer, end, limits);
    for (const Candidate& candidate : candidates_) {
      if (candidate.port != port || !Allows(candidate, depth)) continue;
      const auto& runs = inventory_.slots()[static_cast<size_t>(candidate.slot)].runs;
      const auto from = std::find_if(runs.begin(), runs.end(), [&](const InventoryRun& run) {
        if (state < run.from || state >= run.from + run.count) return false;
        const int next_state = run.to + state - run.from;
        return VisitNext(end, depth, candidate.next_port, [&](size_t row, int next_depth) {
          const Extent& next = extents_[row];
          if (next_state < next.begin || next_state >= next.end) return false;
          if (candidate.cost_s + Values(row)[next_state] != value) return false;
          depth = next_depth;
          return true;
        });
      });
      if (from == runs.end()) continue;
      state = from->to + state - from->from;
      port = candidate.next_port;
      stage.end_layer = end;
      stage.option = candidate.option;
      return true;
    }
  }
  return false;
}

}  // namespace meshwright::search
