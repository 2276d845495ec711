// The cheapest choices without regard to memory, exactly, by eliminating one node after the other.
//
// Eliminating a node puts, for every combination of its neighbours' choices, the least that it and
// its edges can cost into one table over the neighbours. On chains and trees tables have one or two
// dims; in general the largest one grows with the tree width of the graph, so an order is chosen
// first (fewest entries) and the work is known before any is done.
//
// Thread rule: immutable; Minimize() from any threads at once. Source: variable elimination for
// graphical models (Dechter, "Bucket elimination", 1999).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "search/choice_problem.h"

namespace meshwright::search {

class ChoiceElimination {
 public:
  // Nothing when the tables would have more than `max_entries` entries in all. The problem must
  // outlive it. REQUIRES: CheckChoiceProblem is OK.
  static std::optional<ChoiceElimination> Make(const ChoiceProblem& problem, int64_t max_entries);

  struct Minimum {
    double cost_s = 0;  // kForbidden: no choices are allowed together
    std::vector<int> choices;
  };
  // With node costs of one's own instead of the problem's: [node][choice]. Ties go to the lowest
  // choice of the node that is eliminated last.
  Minimum Minimize(const std::vector<std::vector<double>>& node_cost_s) const;

  int64_t entries() const { return entries_; }  // of all tables: the work of one Minimize()

 private:
  explicit ChoiceElimination(const ChoiceProblem& problem) : problem_(&problem) {}

  // The node and the neighbours that its table is over, ascending.
  struct Step {
    int node = 0;
    std::vector<int> scope;
    std::vector<size_t> edges;     // of the problem that join it to `scope`
    std::vector<size_t> children;  // steps whose tables it takes in
    int64_t entries = 0;
  };
  struct Table {
    std::vector<double> cost_s;
    std::vector<int> best;  // choice of the step's node
  };

  bool ChooseOrder(int64_t max_entries);
  void FillStep(const Step& step, const std::vector<double>& own_cost_s,
                const std::vector<Table>& tables, Table& table) const;

  const ChoiceProblem* problem_;
  std::vector<Step> steps_;
  int64_t entries_ = 0;
};

}  // namespace meshwright::search
