#include "search/stage_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

namespace meshwright::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The most microbatches in flight at any depth: memory for more of them is as good as for these.
int MostInFlight(const StageProblem& problem) {
  int most = 1;
  for (int depth = 1; depth <= problem.layers; ++depth) {
    most = std::max(most, problem.schedule.in_flight(depth, problem.microbatches));
  }
  return most;
}

// How many microbatches fit, up to `most`; -1: not even what is there without any.
int InFlightMax(const LayerCost& cost, int64_t memory_bytes, int most) {
  if (memory_bytes == 0) return most;
  const int64_t left_bytes = memory_bytes - cost.state_bytes - cost.transient_bytes;
  if (left_bytes < 0) return -1;
  if (cost.activation_bytes == 0) return most;
  return static_cast<int>(std::min<int64_t>(left_bytes / cost.activation_bytes, most));
}

// No worse in any respect.
bool Beats(const StageEntry& a, const StageEntry& b) {
  return a.fill_s <= b.fill_s && a.compute_s <= b.compute_s && a.tail_s <= b.tail_s &&
         a.in_flight_max >= b.in_flight_max;
}

// Keeps, of entries with equal slot and port, those that no other one beats; the first of equals.
void AppendBest(std::span<const StageEntry> entries, std::vector<StageEntry>& kept) {
  for (size_t i = 0; i < entries.size();) {
    const auto group = static_cast<std::ptrdiff_t>(kept.size());
    const StageEntry& first = entries[i];
    for (; i < entries.size() && entries[i].slot == first.slot && entries[i].port == first.port;
         ++i) {
      const StageEntry& entry = entries[i];
      const auto beats_entry = [&](const StageEntry& k) { return Beats(k, entry); };
      const auto is_beaten = [&](const StageEntry& k) { return Beats(entry, k); };
      if (std::any_of(kept.begin() + group, kept.end(), beats_entry)) continue;
      kept.erase(std::remove_if(kept.begin() + group, kept.end(), is_beaten), kept.end());
      kept.push_back(entry);
    }
  }
}

// Whether pinned beginnings allow a stage of layers [first, end).
bool IsAllowed(const StagePins& pins, int first, int end, int layers) {
  if (!pins.begins) return true;
  const auto at = std::find(pins.begins->begin(), pins.begins->end(), first);
  if (at == pins.begins->end()) return false;
  return end == (at + 1 == pins.begins->end() ? layers : *(at + 1));
}

// Options that have a place, in the order of entries.
std::vector<int> InSlotOrder(const StageProblem& problem, const StageInventory& inventory) {
  std::vector<int> order;
  for (int option = 0; option < static_cast<int>(problem.options.size()); ++option) {
    if (inventory.slot_of(option) >= 0) order.push_back(option);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const auto key = [&](int option) {
      return std::pair(inventory.slot_of(option),
                       problem.options[static_cast<size_t>(option)].port);
    };
    return key(a) < key(b);
  });
  return order;
}

// Entries of all ranges, those of one first layer after the other; sums grow by a layer at a time.
class TableBuilder {
 public:
  TableBuilder(const StageProblem& problem, const StageInventory& inventory, int64_t extra_bytes)
      : problem_(problem),
        inventory_(inventory),
        extra_bytes_(extra_bytes),
        most_in_flight_(MostInFlight(problem)),
        order_(InSlotOrder(problem, inventory)),
        sums_(problem.options.size()) {}

  Status AppendFrom(int first, std::vector<size_t>& begin, std::vector<StageEntry>& entries) {
    std::fill(sums_.begin(), sums_.end(), LayerCost{});
    for (int end = first + 1; end <= problem_.layers; ++end) {
      begin.push_back(entries.size());
      range_.clear();
      for (int option : order_) MW_TRY(AppendOption(option, first, end));
      // A pinned option may be one that another one beats.
      if (problem_.pins.options.empty()) {
        AppendBest(range_, entries);
      } else {
        entries.insert(entries.end(), range_.begin(), range_.end());
      }
    }
    return OkStatus();
  }

 private:
  Status AppendOption(int option, int first, int end) {
    const StageOption& o = problem_.options[static_cast<size_t>(option)];
    LayerCost& sum = sums_[static_cast<size_t>(option)];
    AddLayerCost(sum, o.layers[static_cast<size_t>(end - 1)]);
    if (!IsAllowed(problem_.pins, first, end, problem_.layers)) return OkStatus();
    LayerCost cost = sum;
    if (const auto whole = problem_.range_cost ? problem_.range_cost(option, first, end)
                                               : std::optional<LayerCost>()) {
      const Status status = CheckLayerCost(*whole, problem_.schedule);
      if (!status.ok()) {
        return InvalidArgument(fmt::format("the cost of layers {}..{} under option \"{}\" {}",
                                           first, end - 1, o.name, status.message()));
      }
      cost = *whole;
    }
    const auto device_class = static_cast<size_t>(o.device_class);
    const int64_t memory_bytes = problem_.classes[device_class].memory_bytes;
    const int in_flight_max =
        InFlightMax(cost, memory_bytes == 0 ? 0 : memory_bytes + extra_bytes_, most_in_flight_);
    if (in_flight_max < 1) return OkStatus();
    const int slot = inventory_.slot_of(option);
    const double delayed_s = problem_.schedule.delayed_weight * cost.weight_s;
    const double compute_s = cost.forward_s + cost.backward_s;
    range_.push_back({option, slot, o.port, inventory_.slots()[static_cast<size_t>(slot)].devices,
                      compute_s - delayed_s, compute_s,
                      cost.update_s + cost.gradient_sync_s + delayed_s, in_flight_max});
    return OkStatus();
  }

  const StageProblem& problem_;
  const StageInventory& inventory_;
  int64_t extra_bytes_;
  int most_in_flight_;
  std::vector<int> order_;
  std::vector<LayerCost> sums_;  // per option, of the layers so far
  std::vector<StageEntry> range_;
};

}  // namespace

StageTable::StageTable(const StageProblem& problem)
    : layers_(problem.layers), ports_(problem.ports()) {}

Result<StageTable> StageTable::Make(const StageProblem& problem, const StageInventory& inventory,
                                    int64_t extra_bytes) {
  StageTable table(problem);
  TableBuilder builder(problem, inventory, extra_bytes);
  for (int first = 0; first < problem.layers; ++first) {
    MW_TRY(builder.AppendFrom(first, table.begin_, table.entries_));
  }
  table.begin_.push_back(table.entries_.size());
  MW_TRY(table.AddTransfers(problem));
  table.AddBounds(inventory);
  return table;
}

Status StageTable::AddTransfers(const StageProblem& problem) {
  const auto ports = static_cast<size_t>(ports_);
  transfer_s_.resize(static_cast<size_t>(layers_ + 1) * ports * ports);
  if (!problem.transfer_s) return OkStatus();
  for (int cut = 1; cut < layers_; ++cut) {
    const int64_t bytes = problem.boundary_bytes[static_cast<size_t>(cut - 1)];
    for (int from = 0; from < ports_; ++from) {
      for (int to = 0; to < ports_; ++to) {
        const double seconds = problem.transfer_s(from, to, bytes);
        if (!(seconds >= 0) || !std::isfinite(seconds)) {
          return InvalidArgument(
              fmt::format("{} bytes take {} s from port {} to port {}", bytes, seconds, from, to));
        }
        transfer_s_[Transfer(cut, from, to)] = seconds;
      }
    }
  }
  return OkStatus();
}

// `cost` of the best entry of every range, then the least sum over ranges that cover the layers
// before each and behind each.
void StageTable::AddBounds(const StageInventory& inventory) {
  const auto sums = [&](const auto& cost) {
    const auto rows = static_cast<size_t>(layers_) + 1;
    std::pair sum{std::vector<double>(rows, kNever), std::vector<double>(rows, kNever)};
    std::vector<double> least(begin_.size() - 1, kNever);
    for (size_t range = 0; range < least.size(); ++range) {
      for (size_t i = begin_[range]; i < begin_[range + 1]; ++i) {
        least[range] = std::min(least[range], cost(entries_[i]));
      }
    }
    sum.first.front() = sum.second.back() = 0;
    for (int end = 1; end <= layers_; ++end) {
      for (int first = 0; first < end; ++first) {
        double& to = sum.first[static_cast<size_t>(end)];
        to = std::min(to, sum.first[static_cast<size_t>(first)] + least[Range(first, end)]);
      }
    }
    for (int first = layers_ - 1; first >= 0; --first) {
      for (int end = first + 1; end <= layers_; ++end) {
        double& to = sum.second[static_cast<size_t>(first)];
        to = std::min(to, sum.second[static_cast<size_t>(end)] + least[Range(first, end)]);
      }
    }
    return sum;
  };
  const auto class_of = [&](const StageEntry& entry) {
    return inventory.slots()[static_cast<size_t>(entry.slot)].device_class;
  };
  prefix_fill_s_ = sums([](const StageEntry& entry) { return entry.fill_s; }).first;
  class_weights_.clear();
  for (int c = 0; c < inventory.classes(); ++c) {
    const double work_s = sums([&](const StageEntry& entry) {
                            return class_of(entry) == c ? entry.devices * entry.compute_s : kNever;
                          }).first.back();
    // A class that cannot have all layers, or has them for nothing: any weight bounds from below.
    class_weights_.push_back(work_s > 0 && std::isfinite(work_s) ? 1 / work_s : 0);
  }
  double most = 0;
  for (double weight : class_weights_) most = std::max(most, weight);
  for (double& weight : class_weights_) weight = weight > 0 ? weight / most : 1;
  std::tie(prefix_work_s_, suffix_work_s_) = sums([&](const StageEntry& entry) {
    return class_weight(class_of(entry)) * entry.devices * entry.compute_s;
  });
}

size_t StageTable::Range(int first, int end) const {
  // Before the ranges from `first` on lie those of 0, ..., first - 1: one for each later end.
  const int before = first * layers_ - first * (first - 1) / 2;
  return static_cast<size_t>(before + end - first - 1);
}

size_t StageTable::Transfer(int cut, int from_port, int to_port) const {
  return static_cast<size_t>((cut * ports_ + from_port) * ports_ + to_port);
}

std::span<const StageEntry> StageTable::entries(int first, int end) const {
  const size_t range = Range(first, end);
  return std::span(entries_).subspan(begin_[range], begin_[range + 1] - begin_[range]);
}

double StageTable::transfer_s(int cut, int from_port, int to_port) const {
  return transfer_s_[Transfer(cut, from_port, to_port)];
}

double StageTable::period_s(double compute_s, double transfer_s) const {
  return compute_s + transfer_s;
}

}  // namespace meshwright::search
