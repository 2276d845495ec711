#include "search/stage_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace meshwright::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kTieShare = 1e-8;  // of a step's least time: costs closer than this are equal
constexpr int kNarrow = 16;
constexpr size_t kSlack = 8;  // labels that wait, in times the width, before the worst go

size_t At(int index) { return static_cast<size_t>(index); }

// What is left of the hosts while stages take submeshes, as numbered states. Hosts of one class
// with as many devices are alike: a state says how many of them have how many devices free. Only
// states that are asked for are made.
class FreeHosts {
 public:
  explicit FreeHosts(const std::vector<StageDeviceClass>& classes) {
    State full;
    for (size_t c = 0; c < classes.size(); ++c) {
      std::map<int, Pool> pools;
      for (size_t host = 0; host < classes[c].host_devices.size(); ++host) {
        pools[classes[c].host_devices[host]].hosts.push_back(static_cast<int>(host));
      }
      for (auto& [devices, pool] : pools) {
        pool.device_class = static_cast<int>(c);
        pool.devices = devices;
        pool.first = static_cast<int>(full.size());
        full.resize(full.size() + At(devices) + 1);
        full.back() = static_cast<int32_t>(pool.hosts.size());
        pools_.push_back(std::move(pool));
      }
    }
    NumberOf(full);
  }

  int full() const { return 0; }  // nothing is taken
  int free_devices(int state) const { return free_devices_[At(state)]; }

  // The states that taking a submesh can lead to: of one host any that has room for it. The
  // reference holds until the next call.
  const std::vector<int>& After(int state, int device_class, const SubmeshShape& shape) {
    const auto [at, fresh] = after_[At(state)].try_emplace({device_class, shape});
    if (!fresh) return at->second;
    std::vector<int> next;
    for (const Pool& pool : pools_) {
      const int taken = shape.devices_per_host;
      const bool fits = shape.hosts == 1 ? taken <= pool.devices : taken == pool.devices;
      if (pool.device_class != device_class || !fits) continue;
      for (int f = taken; f <= pool.devices; ++f) {
        State left = states_[At(state)];
        if (left[At(pool.first + f)] < shape.hosts) continue;
        left[At(pool.first + f)] -= shape.hosts;
        left[At(pool.first + f - taken)] += shape.hosts;
        next.push_back(NumberOf(left));
      }
    }
    // Numbers of new states have moved what `at` pointed to.
    return after_[At(state)][{device_class, shape}] = std::move(next);
  }

  struct Taken {
    int state = 0;  // after it was taken
    int device_class = 0;
    SubmeshShape shape;
  };
  // Where submeshes lie that were taken one after the other: from the last devices of the last
  // hosts on. REQUIRES: each state is one of After() the one before.
  std::vector<SubmeshPlace> PlacesOf(const std::vector<Taken>& taken) const {
    std::vector<std::vector<int>> free;  // per pool and host
    for (const Pool& pool : pools_) free.emplace_back(pool.hosts.size(), pool.devices);
    std::vector<SubmeshPlace> places;
    const State* before = &states_.front();
    for (const Taken& one : taken) {
      const State& after = states_[At(one.state)];
      SubmeshPlace& place = places.emplace_back();
      const int count = one.shape.devices_per_host;
      for (size_t p = 0; p < pools_.size() && place.hosts.empty(); ++p) {
        const Pool& pool = pools_[p];
        // Of the hosts with as many devices free there are fewer now.
        int had = pool.devices;
        while (had >= count && (*before)[At(pool.first + had)] <= after[At(pool.first + had)])
          --had;
        if (pool.device_class != one.device_class || had < count) continue;
        place.first_device = had - count;
        for (size_t host = free[p].size(); host-- > 0;) {
          if (free[p][host] != had || place.hosts.size() == At(one.shape.hosts)) continue;
          free[p][host] -= count;
          place.hosts.insert(place.hosts.begin(), pool.hosts[host]);
        }
      }
      MW_CHECK(place.hosts.size() == At(one.shape.hosts)) << "no place for a submesh";
      before = &after;
    }
    return places;
  }

 private:
  // Hosts of a class with equally many devices: entries [first, first + devices] of a state are how
  // many of them have 0, 1, ... devices free.
  struct Pool {
    int device_class = 0;
    int devices = 0;
    int first = 0;
    std::vector<int> hosts;  // of the class, ascending
  };
  using State = std::vector<int32_t>;

  int NumberOf(const State& state) {
    const auto [at, fresh] = number_of_.try_emplace(state, static_cast<int>(states_.size()));
    if (!fresh) return at->second;
    int free = 0;
    for (const Pool& pool : pools_) {
      for (int f = 1; f <= pool.devices; ++f) free += f * state[At(pool.first + f)];
    }
    states_.push_back(state);
    free_devices_.push_back(free);
    after_.emplace_back();
    return at->second;
  }

  std::vector<Pool> pools_;
  std::vector<State> states_;
  std::vector<int> free_devices_;
  std::map<State, int> number_of_;
  std::vector<std::map<std::pair<int, SubmeshShape>, std::vector<int>>> after_;  // per state
};

// A range of layers under an option, but for the transfer to the next stage.
struct RangeEntry {
  int option = 0;
  double compute_s = 0;
  double tail_s = 0;
  int in_flight_max = 0;
};

// Every range of layers under the options that no other one of the same submesh and port beats.
class RangeTable {
 public:
  explicit RangeTable(const StageProblem& problem)
      : problem_(problem), entries_(At(problem.layers * problem.layers)) {
    for (int option = 0; option < static_cast<int>(problem.options.size()); ++option) {
      const StageOption& own = problem.options[At(option)];
      kinds_[{own.device_class, own.shape, own.port}].push_back(option);
    }
    for (int first = 0; first < problem.layers; ++first) AddFrom(first);
    AddBounds();
  }

  const std::vector<RangeEntry>& Of(int first, int end) const {
    return entries_[At(first * problem_.layers + end - 1)];
  }
  // The least that layers [0, end) take for a microbatch, and in seconds of devices.
  double least_s(int end) const { return least_s_[At(end)]; }
  double least_work_s(int end) const { return least_work_s_[At(end)]; }

 private:
  void AddFrom(int first) {
    for (const auto& [kind, options] : kinds_) {
      std::vector<LayerCost> sums(options.size());
      for (int end = first + 1; end <= problem_.layers; ++end) {
        std::vector<RangeEntry> best;
        for (size_t i = 0; i < options.size(); ++i) {
          const StageOption& option = problem_.options[At(options[i])];
          sums[i] += option.layers[At(end - 1)];
          const int in_flight_max = InFlightMax(problem_, options[i], sums[i]);
          if (in_flight_max < 1) continue;
          const RangeEntry entry = {options[i], sums[i].compute_s, sums[i].tail_s, in_flight_max};
          const auto beats = [](const RangeEntry& a, const RangeEntry& b) {
            return a.compute_s <= b.compute_s && a.tail_s <= b.tail_s &&
                   a.in_flight_max >= b.in_flight_max;
          };
          if (std::any_of(best.begin(), best.end(), [&](const auto& k) { return beats(k, entry); }))
            continue;
          std::erase_if(best, [&](const RangeEntry& k) { return beats(entry, k); });
          best.push_back(entry);
        }
        std::vector<RangeEntry>& all = entries_[At(first * problem_.layers + end - 1)];
        all.insert(all.end(), best.begin(), best.end());
      }
    }
  }

  void AddBounds() {
    least_s_.assign(At(problem_.layers + 1), kNever);
    least_work_s_ = least_s_;
    least_s_[0] = least_work_s_[0] = 0;
    for (int end = 1; end <= problem_.layers; ++end) {
      for (int first = 0; first < end; ++first) {
        for (const RangeEntry& entry : Of(first, end)) {
          const int devices = problem_.options[At(entry.option)].shape.devices();
          double& least = least_s_[At(end)];
          least = std::min(least, least_s_[At(first)] + entry.compute_s);
          double& work = least_work_s_[At(end)];
          work = std::min(work, least_work_s_[At(first)] + devices * entry.compute_s);
        }
      }
    }
  }

  const StageProblem& problem_;
  std::map<std::tuple<int, SubmeshShape, int>, std::vector<int>> kinds_;
  std::vector<std::vector<RangeEntry>> entries_;  // [first, end - 1]
  std::vector<double> least_s_;
  std::vector<double> least_work_s_;
};

// Stages of the layers from one on.
struct StageLabel {
  int depth = 0;  // how many
  int port = 0;   // of the first of them
  int state = 0;  // of the hosts
  double sum_s = 0;
  double period_s = 0;
  double tail_s = 0;
  double bound_s = 0;  // no stages that end with these take less
  int behind = -1;     // the label without the first stage
  StageChoice choice;  // that stage
};

class StageBeam {
 public:
  StageBeam(const StageProblem& problem, const Clock& clock, int64_t end_ms)
      : problem_(problem),
        clock_(clock),
        end_ms_(end_ms),
        table_(problem),
        hosts_(problem.classes) {
    const double least_s = table_.least_s(problem.layers);
    if (std::isfinite(least_s)) ScaleTies(least_s);
  }

  std::optional<StageAnswer> Run(int width) {
    if (std::isinf(table_.least_s(problem_.layers))) return std::nullopt;
    for (const int narrow : {std::min(kNarrow, width), width}) {
      if (Pass(narrow)) break;
      if (!best_.empty()) ScaleTies(best_s_);
    }
    if (best_.empty()) return std::nullopt;
    return Answer();
  }

 private:
  // Of equal plans the one of fewer stages is wanted, and then of fewer devices: each costs a share
  // of about a step that is too small to count otherwise. It must not vanish beside the step, most
  // of which may be what is done once.
  void ScaleTies(double step_s) {
    const double stage_s = kTieShare * std::max(step_s, 1e-9) / (problem_.layers + 1);
    const double device_s = stage_s / (hosts_.free_devices(hosts_.full()) + 1);
    for (const StageLabel& label : best_) {
      best_s_ += stage_s - tie_stage_s_ + (device_s - tie_device_s_) * DevicesOf(label.choice);
    }
    tie_stage_s_ = stage_s;
    tie_device_s_ = device_s;
  }

  int DevicesOf(const StageChoice& choice) const {
    return problem_.options[At(choice.option)].shape.devices();
  }

  // True when time is up.
  bool Pass(int width) {
    kept_.clear();
    waiting_.assign(At(problem_.layers + 1), {});
    waiting_.back().push_back({});
    for (int end = problem_.layers; end > 0; --end) {
      Cut(end, At(width));
      const size_t first = kept_.size();
      kept_.insert(kept_.end(), waiting_[At(end)].begin(), waiting_[At(end)].end());
      waiting_[At(end)].clear();
      for (size_t label = first; label < kept_.size(); ++label) {
        if (clock_.NowMs() >= end_ms_) return true;
        Extend(static_cast<int>(label), end, At(width));
      }
    }
    return false;
  }

  // Every stage that may stand before a label's.
  void Extend(int behind, int end, size_t width) {
    const StageLabel from = kept_[At(behind)];
    const int depth = from.depth + 1;
    if (problem_.stages > 0 && depth > problem_.stages) return;
    const int in_flight = problem_.InFlight(depth);
    for (int first = end - 1; first >= 0; --first) {
      bool any = false;
      for (const RangeEntry& entry : table_.Of(first, end)) {
        if (entry.in_flight_max < in_flight) continue;
        any = ExtendBy(entry, {first, end, entry.option}, from, behind, width) || any;
      }
      // More layers only cost more.
      if (!any) return;
    }
  }

  // False when nothing with as many layers or more can be better than the best.
  bool ExtendBy(const RangeEntry& entry, const StageChoice& choice, const StageLabel& from,
                int behind, size_t width) {
    const StageOption& option = problem_.options[At(entry.option)];
    StageLabel label;
    label.depth = from.depth + 1;
    label.port = option.port;
    label.behind = behind;
    label.choice = choice;
    double period_s = entry.compute_s;
    if (from.depth > 0) {
      period_s += problem_.TransferSeconds(option.port, from.port, choice.end_layer);
    }
    label.sum_s = from.sum_s + period_s + tie_stage_s_ + tie_device_s_ * option.shape.devices();
    label.period_s = std::max(from.period_s, period_s);
    label.tail_s = std::max(from.tail_s, entry.tail_s);
    const int first = choice.first_layer;
    const int repeats = problem_.microbatches - 1;
    const double least_s = label.sum_s + table_.least_s(first) + label.tail_s;
    if (least_s + repeats * label.period_s >= best_s_) return false;
    const int left = problem_.stages > 0 ? problem_.stages - label.depth : first;
    if (left > first || (left == 0) != (first == 0)) return true;
    for (const int state : hosts_.After(from.state, option.device_class, option.shape)) {
      label.state = state;
      const int free = hosts_.free_devices(state);
      if (first > 0 && free == 0) continue;
      const double needed_s = first > 0 ? table_.least_work_s(first) / free : 0;
      label.bound_s = least_s + repeats * std::max(label.period_s, needed_s);
      if (label.bound_s >= best_s_) continue;
      if (first == 0) {
        Offer(label);
        continue;
      }
      waiting_[At(first)].push_back(label);
      if (waiting_[At(first)].size() > kSlack * width) Cut(first, width);
    }
    return true;
  }

  // Keeps the likely best of the labels that wait at a layer.
  void Cut(int layer, size_t width) {
    std::vector<StageLabel>& labels = waiting_[At(layer)];
    std::stable_sort(labels.begin(), labels.end(), [](const StageLabel& a, const StageLabel& b) {
      return a.bound_s < b.bound_s;
    });
    std::map<std::tuple<int, int, int>, std::vector<size_t>> alike;
    std::vector<StageLabel> best;
    for (const StageLabel& label : labels) {
      if (best.size() == width || label.bound_s >= best_s_) break;
      // What the stages before must keep depends on how many there are behind them.
      const int depth = problem_.stages > 0 ? label.depth : problem_.InFlight(label.depth + 1);
      std::vector<size_t>& others = alike[{depth, label.port, label.state}];
      const bool beaten = std::any_of(others.begin(), others.end(), [&](size_t other) {
        return best[other].sum_s <= label.sum_s && best[other].period_s <= label.period_s &&
               best[other].tail_s <= label.tail_s;
      });
      if (beaten) continue;
      others.push_back(best.size());
      best.push_back(label);
    }
    labels = std::move(best);
  }

  void Offer(const StageLabel& label) {
    best_s_ = label.bound_s;
    best_ = {label};
    for (int at = label.behind; at > 0; at = kept_[At(at)].behind) best_.push_back(kept_[At(at)]);
  }

  StageAnswer Answer() const {
    StageAnswer answer;
    std::vector<FreeHosts::Taken> taken;
    for (const StageLabel& label : best_) {
      const StageOption& option = problem_.options[At(label.choice.option)];
      answer.stages.push_back(label.choice);
      taken.insert(taken.begin(), {label.state, option.device_class, option.shape});
    }
    answer.places = hosts_.PlacesOf(taken);
    std::reverse(answer.places.begin(), answer.places.end());
    return answer;
  }

  const StageProblem& problem_;
  const Clock& clock_;
  const int64_t end_ms_;
  const RangeTable table_;
  FreeHosts hosts_;
  double tie_stage_s_ = 0;  // added per stage, and per device that it takes
  double tie_device_s_ = 0;
  std::vector<StageLabel> kept_;                  // the first one has no stages
  std::vector<std::vector<StageLabel>> waiting_;  // per layer from which on they have stages
  std::vector<StageLabel> best_;                  // from the first stage on
  double best_s_ = kNever;
};

}  // namespace

std::optional<StageAnswer> SearchStages(const StageProblem& problem,
                                        const StageSearchOptions& options, const Clock& clock) {
  return StageBeam(problem, clock, clock.NowMs() + options.timeout_ms).Run(options.width);
}

}  // namespace meshwright::search
