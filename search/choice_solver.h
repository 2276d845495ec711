// Solvers of choice problems (search/choice_problem.h).
//
// Thread rule: Solve() from any threads at once. Ownership: the clock outlives the solver.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "search/choice_problem.h"

namespace meshwright::search {

struct ChoiceAnswer {
  std::vector<int> choices;
  double cost_s = 0;
  double bound_s = 0;  // nothing costs less
  // 0: optimal; 0.01: at most 1 % above the best.
  double gap() const { return cost_s > bound_s ? (cost_s - bound_s) / cost_s : 0; }
};

struct SolveOptions {
  int64_t timeout_ms = 10'000;
  double gap = 0;  // good enough
  // Choices that fit, known before: the search starts there and never answers with worse. Empty:
  // none.
  std::vector<int> start = {};
};

class ChoiceSolver {
 public:
  virtual ~ChoiceSolver() = default;

  // The best answer found in time, with a bound that says how good it is; equal problems give equal
  // answers when time does not end the search. Errors: kInvalidArgument: a malformed problem;
  // kResourceExhausted: nothing fits, naming the moment that is nearest to it; kDeadlineExceeded:
  // nothing that fits was found in time; kInternal: the solver's answer is not what
  // EvaluateChoices() says of it.
  virtual Result<ChoiceAnswer> Solve(const ChoiceProblem& problem,
                                     const SolveOptions& options) const = 0;
};

// Integer linear program for CBC (branch and cut): one 0-1 variable per choice, one per pair of
// choices of an edge whose sums over either end are the end's variables, a row per moment. CBC
// keeps state of the process, so that solves take turns. Source: Alpa section 4.2, equations 1
// to 5.
std::unique_ptr<const ChoiceSolver> MakeCbcSolver(const Clock& clock);

// What search/choice_reduction.h and search/choice_relaxation.h leave open is solved by CBC. The
// best answer and the best bound of all.
std::unique_ptr<const ChoiceSolver> MakeSolver(const Clock& clock);

}  // namespace meshwright::search
