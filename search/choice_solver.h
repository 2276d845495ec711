// The solver of choice problems (search/choice_problem.h): a bound by messages, then branches where
// it leaves a gap.
//
// Messages. Costs are moved between nodes and their edges, which changes no sum; the least of every
// node and edge then add up to a bound, and messages between neighbours move costs so that it
// rises. Memory limits have prices (Lagrange multipliers). A node's choice whose cost above the
// node's least lifts the bound over a known answer is in no better one. On shardings the bound is
// mostly the answer.
//
// Branches. Where it is not, the most doubtful node takes its likely choice, and then any other:
// both are bounded anew, from where the messages stand, until no branch can have a better answer.
//
// Thread rule: pure function. Source: sequential reweighted message passing (Kolmogorov, "A New
// Look at Reweighted Message Passing", PAMI 2015), for pairs the same as TRW-S; use for shardings
// after planner.md 9.6.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "search/choice_problem.h"
#include "search/deciders.h"

namespace meshwright::search {

struct ChoiceAnswer {
  std::vector<int> choices;
  double cost_s = 0;
  double bound_s = 0;                    // nothing costs less
  int64_t branches = 0;                  // that were bounded besides the whole
  Decider decider = Decider::kMessages;  // or kBranches, or kTime: more might be found
  // 0: optimal; 0.01: at most 1 % above the best.
  double gap() const { return cost_s > bound_s ? (cost_s - bound_s) / cost_s : 0; }
};

struct SolveOptions {
  int64_t timeout_ms = 10'000;
  double gap = 0;  // good enough
};

// The best answer found in time and in 20,000 branches, with a bound that says how good it is;
// equal problems give equal answers when time does not end the search. Errors: kInvalidArgument: a
// malformed problem; kResourceExhausted: nothing fits, naming the moment that is nearest to it;
// kDeadlineExceeded: nothing that fits was found in time.
Result<ChoiceAnswer> SolveChoices(const ChoiceProblem& problem, const SolveOptions& options,
                                  const Clock& clock);

}  // namespace meshwright::search
