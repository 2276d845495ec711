#include <algorithm>
#include <utility>

#include "search/choice_solver.h"

namespace meshwright::search {
namespace {

constexpr double kClosed = 1e-9;  // a gap of rounding

class BestSolver final : public ChoiceSolver {
 public:
  explicit BestSolver(const Clock& clock)
      : clock_(clock), elimination_(MakeEliminationSolver(clock)), cbc_(MakeCbcSolver(clock)) {}

  Result<ChoiceAnswer> Solve(const ChoiceProblem& problem,
                             const SolveOptions& options) const override {
    const int64_t end_ms = clock_.NowMs() + options.timeout_ms;
    bool enough = false;
    SolveOptions part = options;
    part.timeout_ms = (options.timeout_ms + 1) / 2;
    if (options.progress) {
      part.progress = [&](const ChoiceAnswer& answer) {
        enough = !options.progress(answer);
        return !enough;
      };
    }
    Result<ChoiceAnswer> first = elimination_->Solve(problem, part);
    const bool done = first.has_value() ? enough || first->gap() <= options.gap + kClosed
                                        : IsFinal(first.error());
    if (done) return first;
    part.timeout_ms = std::max<int64_t>(0, end_ms - clock_.NowMs());
    if (first.has_value()) part.start = first->choices;
    Result<ChoiceAnswer> second = cbc_->Solve(problem, part);
    if (!first.has_value()) return second;
    if (!second.has_value()) return first;
    ChoiceAnswer best = second->cost_s < first->cost_s ? *second : *first;
    best.bound_s = std::min(best.cost_s, std::max(first->bound_s, second->bound_s));
    return best;
  }

 private:
  // The answer would be the same from any solver.
  static bool IsFinal(const Status& status) {
    return status.code() != StatusCode::kUnimplemented &&
           status.code() != StatusCode::kDeadlineExceeded;
  }

  const Clock& clock_;
  const std::unique_ptr<const ChoiceSolver> elimination_;
  const std::unique_ptr<const ChoiceSolver> cbc_;
};

}  // namespace

std::unique_ptr<const ChoiceSolver> MakeSolver(const Clock& clock) {
  return std::make_unique<BestSolver>(clock);
}

}  // namespace meshwright::search
