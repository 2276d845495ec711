#include "search/stage_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "search/stage_buckets.h"
#include "search/stage_nearest.h"
#include "search/stage_space.h"

namespace meshwright::search {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kSumRounding = 1e-9;  // of a sum: sums in different orders differ by less
constexpr double kEqual = 1e-7;        // of a step: above what ties add

// Periods (or tails) of all stages that there may be.
CostBuckets PeriodBuckets(const StageTable& table, double ratio) {
  std::vector<double> values = {0};
  for (int first = 0; first < table.layers(); ++first) {
    for (int end = first + 1; end <= table.layers(); ++end) {
      const int next_ports = end == table.layers() ? 1 : table.ports();
      for (const StageEntry& entry : table.entries(first, end)) {
        for (int next = 0; next < next_ports; ++next) {
          const double transfer_s = table.transfer_s(end, entry.port, next);
          values.push_back(table.period_s(entry.compute_s, transfer_s));
        }
      }
    }
  }
  return {std::move(values), ratio};
}

CostBuckets TailBuckets(const StageTable& table, double ratio) {
  std::vector<double> values = {0};
  for (int first = 0; first < table.layers(); ++first) {
    for (int end = first + 1; end <= table.layers(); ++end) {
      for (const StageEntry& entry : table.entries(first, end)) values.push_back(entry.tail_s);
    }
  }
  return {std::move(values), ratio};
}

// Buckets [first, last] of periods and of tails. What is in it takes at least `bound_s`, and its
// fills add up to at least `fill_s`.
struct ThresholdBox {
  double bound_s = 0;
  int first_period = 0;
  int last_period = 0;
  int first_tail = 0;
  int last_tail = 0;
  double fill_s = 0;
  auto Key() const {
    return std::tuple(bound_s, first_period, last_period, first_tail, last_tail, fill_s);
  }
  bool empty() const { return first_period > last_period || first_tail > last_tail; }
  friend bool operator<(const ThresholdBox& a, const ThresholdBox& b) { return a.Key() < b.Key(); }
};

class StageSearch {
 public:
  StageSearch(const StageProblem& problem, const StageSearchOptions& options, const Clock& clock,
              StageSpace& space)
      : problem_(problem),
        options_(options),
        clock_(clock),
        end_ms_(clock.NowMs() + options.timeout_ms),
        space_(space),
        periods_(PeriodBuckets(space.table(), options.bucket_ratio)),
        tails_(TailBuckets(space.table(), options.bucket_ratio)) {}

  Result<StageAnswer> Run() {
    MW_TRY(Probe());
    while (!stopped_ && !boxes_.empty() && !GoodEnough()) MW_TRY(Divide());
    if (best_) {
      best_->bound_s = Bound();
      return *std::move(best_);
    }
    if (stopped_) {
      return Fail(DeadlineExceeded(
          fmt::format("no stages were found in {} ms; give the search more time, or larger units",
                      options_.timeout_ms)));
    }
    return Fail(NearestStages(problem_, options_.limits, [this] { return TimeIsUp(); }));
  }

 private:
  bool TimeIsUp() const { return clock_.NowMs() >= end_ms_; }

  double BoundOf(int period, int tail, double fill_s) const {
    return (problem_.microbatches - 1) * periods_.low(period) + tails_.low(tail) + fill_s;
  }

  // Below this, with what ties add, an answer is better than the best one.
  double best_s() const { return best_ ? best_tied_s_ : kUnbounded; }

  bool GoodEnough() const { return boxes_.begin()->bound_s >= best_s() * (1 - options_.gap); }

  double Bound() const {
    double bound_s = std::min(best_s(), closed_bound_s_);
    if (!boxes_.empty()) bound_s = std::min(bound_s, boxes_.begin()->bound_s);
    bound_s -= space_.tie_limit_s();
    const double step_s = best_->evaluation.step_s;
    return step_s - bound_s <= kEqual * step_s ? step_s : std::max(bound_s, 0.0);
  }

  void Push(ThresholdBox box) {
    if (box.empty()) return;
    box.bound_s = BoundOf(box.first_period, box.first_tail, box.fill_s);
    if (box.bound_s < best_s()) boxes_.insert(box);
  }

  // In halves by periods or tails: the lower half is tried first, and often nothing is in it.
  void PushPeriods(ThresholdBox box) {
    if (box.empty()) return;
    const int middle = (box.first_period + box.last_period) / 2;
    ThresholdBox lower = box;
    lower.last_period = middle;
    box.first_period = middle + 1;
    Push(lower);
    Push(box);
  }

  void PushTails(ThresholdBox box) {
    if (box.empty()) return;
    const int middle = (box.first_tail + box.last_tail) / 2;
    ThresholdBox lower = box;
    lower.last_tail = middle;
    box.first_tail = middle + 1;
    Push(lower);
    Push(box);
  }

  // The first answers, from the least period that the devices could keep upwards; then the boxes
  // below and above the one that worked.
  Status Probe() {
    const StageTable& table = space_.table();
    const double work_s = table.prefix_work_s(table.layers());
    const double fill_s = table.prefix_fill_s(table.layers());
    if (!std::isfinite(work_s)) return OkStatus();
    const double least_s = work_s / space_.weighted_devices() * (1 - kSumRounding);
    const int first = periods_.at(least_s);
    const int last = periods_.count() - 1, last_tail = tails_.count() - 1;
    int below = first - 1;  // nothing is in these buckets
    for (double factor = 1.02; !stopped_; factor *= factor) {
      const int period = std::min(last, std::max(below + 1, periods_.at(least_s * factor)));
      const std::optional<StageFill> fill = Minimize({0, first, period, 0, last_tail, fill_s});
      if (stopped_) return OkStatus();
      if (!fill && period == last) return OkStatus();
      if (!fill) {
        below = period;
        continue;
      }
      MW_TRY(Close({0, below + 1, period, 0, last_tail, fill_s}, *fill));
      PushPeriods({0, period + 1, last, 0, last_tail, fill_s});
      return OkStatus();
    }
    return OkStatus();
  }

  Status Divide() {
    const ThresholdBox box = *boxes_.begin();
    const std::optional<StageFill> fill = Minimize(box);
    if (stopped_) return OkStatus();
    boxes_.erase(boxes_.begin());
    return fill ? Close(box, *fill) : OkStatus();
  }

  std::optional<StageFill> Minimize(const ThresholdBox& box) {
    StageLimits limits{periods_.high(box.last_period), tails_.high(box.last_tail), kUnbounded};
    limits.fill_s = best_s() - BoundOf(box.first_period, box.first_tail, 0);
    auto fill = space_.frontier().Minimize(limits, [this] { return TimeIsUp(); });
    stopped_ |= space_.frontier().stopped();
    return fill;
  }

  // Offers the stages found in a box, and pushes what may be better. Stages with at least their
  // period and at least their tail are not.
  Status Close(const ThresholdBox& box, const StageFill& fill) {
    const StageEvaluation evaluation = EvaluateStages(problem_, fill.stages);
    MW_TRY(CheckFill(fill, evaluation));
    double period_s = 0, tail_s = 0;
    for (const StageNumbers& numbers : evaluation.stages) {
      period_s = std::max(period_s, numbers.period_s);
      tail_s = std::max(tail_s, numbers.tail_s);
    }
    const int period = std::clamp(periods_.at(period_s), box.first_period, box.last_period);
    const int tail = std::clamp(tails_.at(tail_s), box.first_tail, box.last_tail);
    if (evaluation.feasible()) {
      Offer(fill.stages, evaluation);
    } else if (space_.inventory().real()) {
      return Internal(fmt::format("the stage search found stages that do not fit: {}",
                                  evaluation.violations[0]));
    } else {
      MW_TRY(OfferRounded(box));
    }
    closed_bound_s_ = std::min(closed_bound_s_, BoundOf(period, tail, fill.fill_s));
    PushPeriods({0, box.first_period, period - 1, box.first_tail, box.last_tail, fill.fill_s});
    PushTails({0, period, box.last_period, box.first_tail, tail - 1, fill.fill_s});
    return OkStatus();
  }

  // Stages whose placement counts do not decide are searched for among those where they do.
  Status OfferRounded(const ThresholdBox& box) {
    if (!rounded_) {
      MW_ASSIGN_OR_RETURN(rounded_, StageSpace::Make(problem_, {options_.limits,
                                                                StageInventory::Counts::kRounded}));
    }
    StageLimits limits{periods_.high(box.last_period), tails_.high(box.last_tail), kUnbounded};
    limits.fill_s = best_s() - BoundOf(box.first_period, box.first_tail, 0);
    const auto fill = rounded_->frontier().Minimize(limits, [this] { return TimeIsUp(); });
    if (fill) Offer(fill->stages, EvaluateStages(problem_, fill->stages));
    return OkStatus();
  }

  void Offer(const std::vector<StageChoice>& stages, const StageEvaluation& evaluation) {
    if (!evaluation.feasible()) return;
    const double tied_s = evaluation.step_s + space_.TieCost(stages);
    if (tied_s >= best_s()) return;
    best_tied_s_ = tied_s;
    best_ = StageAnswer{stages, evaluation, 0, space_.inventory().units()};
    best_->bound_s = boxes_.empty() ? 0 : Bound();
    if (options_.progress && !options_.progress(*best_)) stopped_ = true;
  }

  // The table's fills are those of the evaluation.
  Status CheckFill(const StageFill& fill, const StageEvaluation& evaluation) const {
    double fill_s = space_.TieCost(fill.stages);
    for (const StageNumbers& numbers : evaluation.stages) fill_s += numbers.fill_s;
    if (std::abs(fill_s - fill.fill_s) <= kSumRounding * fill_s) return OkStatus();
    return Internal(
        fmt::format("the stage search expected fills of {} s and got {} s", fill.fill_s, fill_s));
  }

  const StageProblem& problem_;
  const StageSearchOptions& options_;
  const Clock& clock_;
  const int64_t end_ms_;
  StageSpace& space_;
  std::unique_ptr<StageSpace> rounded_;  // made when counts met stages that cannot be placed
  CostBuckets periods_;
  CostBuckets tails_;
  std::set<ThresholdBox> boxes_;
  std::optional<StageAnswer> best_;
  double best_tied_s_ = kUnbounded;
  double closed_bound_s_ = kUnbounded;  // of what was found, not of what is in boxes
  bool stopped_ = false;
};

}  // namespace

Result<StageAnswer> SearchStages(const StageProblem& problem, const StageSearchOptions& options,
                                 const Clock& clock) {
  MW_TRY(CheckStageProblem(problem));
  MW_ASSIGN_OR_RETURN(auto space, StageSpace::Make(problem, {options.limits}));
  return StageSearch(problem, options, clock, *space).Run();
}

}  // namespace meshwright::search
