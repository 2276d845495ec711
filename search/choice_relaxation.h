// A bound, an answer and what cannot be in a better one, for choice problems of any size.
//
// Costs are moved between nodes and their edges, which changes no sum; the least of every node and
// edge then add up to a bound, and messages between neighbours move costs so that it rises. Memory
// limits have prices (Lagrange multipliers). A node's choice whose cost above the node's least
// lifts the bound over a known answer is in no better one. On shardings the bound is mostly the
// answer.
//
// Thread rule: pure function. Source: sequential reweighted message passing (Kolmogorov, "A New
// Look at Reweighted Message Passing", PAMI 2015), for pairs the same as TRW-S; use for shardings
// after planner.md 9.6.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "search/choice_problem.h"
#include "search/choice_reduction.h"
#include "search/choice_solver.h"

namespace meshwright::search {

struct ChoiceRelaxation {
  double bound_s = 0;                  // kForbidden: no choices are allowed together
  std::optional<ChoiceAnswer> best;    // that was met and fits
  std::vector<std::vector<int>> kept;  // per node, ascending: what an answer below best may take
};

// REQUIRES: CheckChoiceProblem is OK; options.start is empty or one valid choice per node.
ChoiceRelaxation RelaxChoices(const ChoiceProblem& problem, const SolveOptions& options,
                              const Clock& clock);

// The problem with fewer choices. REQUIRES: kept has at least one choice per node, ascending.
ChoiceReduction KeepChoices(const ChoiceProblem& problem, std::vector<std::vector<int>> kept);

}  // namespace meshwright::search
