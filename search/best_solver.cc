#include <algorithm>
#include <utility>

#include "search/choice_reduction.h"
#include "search/choice_relaxation.h"
#include "search/choice_solver.h"

namespace meshwright::search {
namespace {

constexpr double kClosed = 1e-9;  // a gap of rounding

class BestSolver final : public ChoiceSolver {
 public:
  explicit BestSolver(const Clock& clock) : clock_(clock), cbc_(MakeCbcSolver(clock)) {}

  Result<ChoiceAnswer> Solve(const ChoiceProblem& problem,
                             const SolveOptions& options) const override {
    MW_TRY(CheckChoiceProblem(problem));
    MW_TRY(CheckStart(problem, options.start));
    const int64_t end_ms = clock_.NowMs() + options.timeout_ms;
    SolveOptions part{.timeout_ms = options.timeout_ms, .gap = options.gap};
    const ChoiceReduction first = ReduceChoices(problem);
    const ChoiceRelaxation relaxed = RelaxChoices(first.problem, part, clock_);
    std::optional<ChoiceAnswer> best = relaxed.best;
    if (best) best->choices = first.Expand(best->choices);
    Keep(problem, options.start, best);
    if (!best || best->gap() > options.gap + kClosed) {
      const ChoiceReduction fewer = KeepChoices(first.problem, relaxed.kept);
      const ChoiceReduction core = ReduceChoices(fewer.problem);
      part.timeout_ms = std::max<int64_t>(0, end_ms - clock_.NowMs());
      if (relaxed.best) part.start = InCore(relaxed.best->choices, fewer, core);
      Result<ChoiceAnswer> answer = cbc_->Solve(core.problem, part);
      if (!answer.has_value() && !best) return answer;
      if (answer.has_value()) {
        const double bound_s = std::max(relaxed.bound_s, answer->bound_s);
        answer->choices = first.Expand(fewer.Expand(core.Expand(answer->choices)));
        const double known_s = best ? best->cost_s : kForbidden;
        Keep(problem, answer->choices, best);
        // What was left out costs at least what was known.
        if (best) best->bound_s = std::min({best->cost_s, known_s, bound_s});
      }
    }
    if (!best) return Fail(Internal("a solver's choices do not fit"));
    return *std::move(best);
  }

 private:
  // The choices as those of the core; empty: the core has better ones instead of some.
  static std::vector<int> InCore(const std::vector<int>& choices, const ChoiceReduction& fewer,
                                 const ChoiceReduction& core) {
    std::vector<int> start;
    for (int node : core.nodes) {
      if (node < 0) {
        start.push_back(0);
        continue;
      }
      const auto i = static_cast<size_t>(node);
      const auto place = [](const std::vector<int>& kept, int choice) {
        const auto it = std::lower_bound(kept.begin(), kept.end(), choice);
        return it != kept.end() && *it == choice ? static_cast<int>(it - kept.begin()) : -1;
      };
      const int left = place(fewer.kept[i], choices[i]);
      start.push_back(left < 0 ? -1 : place(core.kept[i], left));
      if (start.back() < 0) return {};
    }
    return start;
  }

  // The better one of `best` and the choices, when these fit.
  static void Keep(const ChoiceProblem& problem, const std::vector<int>& choices,
                   std::optional<ChoiceAnswer>& best) {
    if (choices.empty()) return;
    const ChoiceEvaluation evaluation = EvaluateChoices(problem, choices);
    if (!evaluation.feasible() || (best && evaluation.cost_s >= best->cost_s)) return;
    const double bound_s = best ? best->bound_s : 0;
    best = ChoiceAnswer{choices, evaluation.cost_s, std::min(bound_s, evaluation.cost_s)};
  }

  const Clock& clock_;
  const std::unique_ptr<const ChoiceSolver> cbc_;
};

}  // namespace

std::unique_ptr<const ChoiceSolver> MakeSolver(const Clock& clock) {
  return std::make_unique<BestSolver>(clock);
}

}  // namespace meshwright::search
