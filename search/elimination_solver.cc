#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "search/choice_elimination.h"
#include "search/choice_solver.h"

namespace meshwright::search {
namespace {

constexpr int64_t kMaxEntries = 20'000'000;  // about a second of work
constexpr int kRootIterations = 60;          // of the search for prices
constexpr int kIterations = 12;              // below the root, which starts at its parent's prices
constexpr int kSmallestStep = 8;             // halvings of the step before prices count as found
constexpr double kEqualCosts = 1e-9;         // of a cost: costs that differ by less are equal

using NodeCosts = std::vector<std::vector<double>>;

// What a choice of prices says about a part of the problem.
struct Relaxation {
  double bound_s = 0;
  std::vector<int> choices;
  std::vector<double> prices_s;  // per byte over a moment's budget
};

class Search {
 public:
  Search(const ChoiceProblem& problem, const ChoiceElimination& elimination,
         const SolveOptions& options, const Clock& clock)
      : problem_(problem),
        elimination_(elimination),
        options_(options),
        clock_(clock),
        end_ms_(clock.NowMs() + options.timeout_ms),
        moments_of_(problem.nodes.size()) {
    for (const ChoiceNode& node : problem.nodes) allowed_.push_back(node.cost_s);
    for (size_t m = 0; m < problem.moments.size(); ++m) {
      for (int node : problem.moments[m].nodes) moments_of_[static_cast<size_t>(node)].push_back(m);
    }
  }

  Result<ChoiceAnswer> Run() {
    if (!options_.start.empty()) Offer(options_.start);
    const Relaxation root = Relax(std::vector<double>(problem_.moments.size()), kRootIterations);
    if (root.bound_s == kForbidden) {
      return Fail(ResourceExhausted("no choices are allowed together, whatever memory there is"));
    }
    const bool complete = Branch(root);
    if (!best_) return Fail(Nothing(complete));
    // What was cut off costs at least what the answer does, but for the gap that was asked for.
    const double searched_s = complete ? best_->cost_s * (1 - options_.gap) : 0;
    best_->bound_s = std::min(std::max(root_bound_s_, searched_s), best_->cost_s);
    return *std::move(best_);
  }

 private:
  bool TimeIsUp() const { return clock_.NowMs() >= end_ms_; }

  Status Nothing(bool complete) const {
    if (!complete) {
      return DeadlineExceeded(
          fmt::format("no choices that fit were found in {} ms; the best are "
                      "over the budget of moment {} by {} bytes",
                      options_.timeout_ms, nearest_.worst_moment, nearest_.over_bytes));
    }
    return ResourceExhausted(
        fmt::format("no choices fit; the nearest are over the budget of "
                    "moment {} by {} bytes",
                    nearest_.worst_moment, nearest_.over_bytes));
  }

  void Offer(const std::vector<int>& choices) {
    const ChoiceEvaluation evaluation = EvaluateChoices(problem_, choices);
    if (evaluation.cost_s == kForbidden) return;
    if (!evaluation.feasible()) {
      if (nearest_.worst_moment < 0 || evaluation.over_bytes < nearest_.over_bytes) {
        nearest_ = evaluation;
      }
      return;
    }
    if (best_ && evaluation.cost_s >= best_->cost_s) return;
    best_ = ChoiceAnswer{choices, evaluation.cost_s, root_bound_s_};
    if (options_.progress && !options_.progress(*best_)) enough_ = true;
  }

  NodeCosts Priced(const std::vector<double>& prices_s) const {
    NodeCosts costs = allowed_;
    for (size_t i = 0; i < costs.size(); ++i) {
      double price = 0;
      for (size_t m : moments_of_[i]) price += prices_s[m];
      if (price == 0) continue;
      for (size_t c = 0; c < costs[i].size(); ++c) {
        costs[i][c] += price * static_cast<double>(problem_.nodes[i].memory_bytes[c]);
      }
    }
    return costs;
  }

  // By how much each moment is over its budget: the direction in which prices rise.
  std::vector<double> Overdraft(const std::vector<int>& choices) const {
    std::vector<double> over;
    for (const ChoiceMoment& moment : problem_.moments) {
      double bytes = -static_cast<double>(moment.budget_bytes);
      for (int node : moment.nodes) {
        const auto i = static_cast<size_t>(node);
        bytes +=
            static_cast<double>(problem_.nodes[i].memory_bytes[static_cast<size_t>(choices[i])]);
      }
      over.push_back(bytes);
    }
    return over;
  }

  // The best bound that prices give, from `prices_s` on. Every choice met on the way is offered as
  // an answer.
  Relaxation Relax(std::vector<double> prices_s, int iterations) {
    Relaxation best;
    best.bound_s = -1;
    double step = 1;
    int stalled = 0;
    for (int i = 0; i < iterations; ++i) {
      double bound_s = 0;
      ChoiceElimination::Minimum minimum = elimination_.Minimize(Priced(prices_s));
      if (minimum.cost_s == kForbidden) return {kForbidden, {}, prices_s};
      Offer(minimum.choices);
      const std::vector<double> over = Overdraft(minimum.choices);
      bound_s = minimum.cost_s;
      for (size_t m = 0; m < over.size(); ++m) {
        bound_s -= prices_s[m] * static_cast<double>(problem_.moments[m].budget_bytes);
      }
      if (bound_s > best.bound_s) {
        best = {bound_s, std::move(minimum.choices), prices_s};
        stalled = 0;
        if (fixed_ == 0) root_bound_s_ = std::max(root_bound_s_, bound_s);
      } else if (++stalled % 3 == 0) {
        step /= 2;
        if (stalled > 3 * kSmallestStep) break;
      }
      if (!Raise(prices_s, over, bound_s, step) || Hopeless(best.bound_s) || TimeIsUp()) break;
    }
    best.bound_s = std::max(best.bound_s, 0.0);
    return best;
  }

  // A step along the overdrafts (Polyak's length); false when prices are where they belong: what
  // fits costs nothing, and nothing is over.
  bool Raise(std::vector<double>& prices_s, const std::vector<double>& over, double bound_s,
             double step) const {
    double norm = 0;
    for (size_t m = 0; m < over.size(); ++m) {
      if (over[m] > 0 || prices_s[m] > 0) norm += over[m] * over[m];
    }
    if (norm == 0) return false;
    const double above_s = best_ ? best_->cost_s : bound_s * 1.1 + 1e-9;
    const double length = step * std::max(above_s - bound_s, 1e-6 * std::abs(bound_s)) / norm;
    bool moved = false;
    for (size_t m = 0; m < over.size(); ++m) {
      if (over[m] <= 0 && prices_s[m] == 0) continue;
      const double price = std::max(0.0, prices_s[m] + length * over[m]);
      moved = moved || price != prices_s[m];
      prices_s[m] = price;
    }
    return moved;
  }

  bool Hopeless(double bound_s) const {
    return best_ && bound_s >= best_->cost_s * (1 - options_.gap - kEqualCosts);
  }

  // Searches what allowed_ leaves; `relaxation` is of that. True: nothing better is left in it.
  bool Branch(const Relaxation& relaxation) {
    if (relaxation.bound_s == kForbidden || Hopeless(relaxation.bound_s)) return true;
    if (CannotFit()) return true;
    if (enough_ || TimeIsUp()) return false;
    const int node = BranchNode(relaxation);
    if (node < 0) return true;  // one combination is left, and it was offered
    const auto i = static_cast<size_t>(node);
    const std::vector<double> saved = allowed_[i];
    bool complete = true;
    ++fixed_;
    for (int choice : InOrder(saved, relaxation.choices[i])) {
      const auto c = static_cast<size_t>(choice);
      allowed_[i].assign(saved.size(), kForbidden);
      allowed_[i][c] = saved[c];
      complete = Branch(Relax(relaxation.prices_s, kIterations)) && complete;
      if (enough_) break;
    }
    --fixed_;
    allowed_[i] = saved;
    return complete && !enough_;
  }

  // Whether the least memory of what is left is too much, whatever the edges allow.
  bool CannotFit() const {
    return std::any_of(problem_.moments.begin(), problem_.moments.end(),
                       [&](const ChoiceMoment& moment) {
                         int64_t bytes = 0;
                         for (int node : moment.nodes)
                           bytes += LeastMemory(static_cast<size_t>(node));
                         return bytes > moment.budget_bytes;
                       });
  }

  int64_t LeastMemory(size_t node) const {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t c = 0; c < allowed_[node].size(); ++c) {
      if (allowed_[node][c] == kForbidden) continue;
      least = std::min(least, problem_.nodes[node].memory_bytes[c]);
    }
    return least;
  }

  // The relaxation's own choice first, then the cheap ones.
  static std::vector<int> InOrder(const std::vector<double>& cost_s, int first) {
    std::vector<int> order;
    for (size_t c = 0; c < cost_s.size(); ++c) {
      if (cost_s[c] < kForbidden) order.push_back(static_cast<int>(c));
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      if ((a == first) != (b == first)) return a == first;
      return cost_s[static_cast<size_t>(a)] < cost_s[static_cast<size_t>(b)];
    });
    return order;
  }

  // The free node whose choices differ most in memory; without any, the first free one. -1: none.
  int BranchNode(const Relaxation& relaxation) const {
    int best = -1;
    int64_t widest = -1;
    for (size_t i = 0; i < allowed_.size(); ++i) {
      int64_t least = std::numeric_limits<int64_t>::max();
      int64_t most = -1;
      int free = 0;
      for (size_t c = 0; c < allowed_[i].size(); ++c) {
        if (allowed_[i][c] == kForbidden) continue;
        ++free;
        least = std::min(least, problem_.nodes[i].memory_bytes[c]);
        most = std::max(most, problem_.nodes[i].memory_bytes[c]);
      }
      if (free < 2) continue;
      double price = 0;
      for (size_t m : moments_of_[i]) price += relaxation.prices_s[m];
      const int64_t width = price > 0 ? most - least : 0;
      if (width <= widest) continue;
      widest = width;
      best = static_cast<int>(i);
    }
    return best;
  }

  const ChoiceProblem& problem_;
  const ChoiceElimination& elimination_;
  const SolveOptions& options_;
  const Clock& clock_;
  const int64_t end_ms_;
  std::vector<std::vector<size_t>> moments_of_;
  NodeCosts allowed_;  // kForbidden: not in this part of the search
  std::optional<ChoiceAnswer> best_;
  ChoiceEvaluation nearest_;  // of what did not fit
  double root_bound_s_ = 0;
  int fixed_ = 0;  // nodes that the search has fixed
  bool enough_ = false;
};

class EliminationSolver final : public ChoiceSolver {
 public:
  explicit EliminationSolver(const Clock& clock) : clock_(clock) {}

  Result<ChoiceAnswer> Solve(const ChoiceProblem& problem,
                             const SolveOptions& options) const override {
    MW_TRY(CheckChoiceProblem(problem));
    MW_TRY(CheckStart(problem, options.start));
    const std::optional<ChoiceElimination> elimination =
        ChoiceElimination::Make(problem, kMaxEntries);
    if (!elimination) {
      return Fail(Unimplemented(
          fmt::format("{} nodes and {} edges are too entangled to be eliminated: more than {} "
                      "entries of tables",
                      problem.nodes.size(), problem.edges.size(), kMaxEntries)));
    }
    return Search(problem, *elimination, options, clock_).Run();
  }

 private:
  const Clock& clock_;
};

}  // namespace

std::unique_ptr<const ChoiceSolver> MakeEliminationSolver(const Clock& clock) {
  return std::make_unique<EliminationSolver>(clock);
}

}  // namespace meshwright::search
