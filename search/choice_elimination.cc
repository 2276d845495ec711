#include "search/choice_elimination.h"

#include <algorithm>
#include <set>
#include <utility>

namespace meshwright::search {
namespace {

// Walks all combinations of the choices of some nodes, the last one fastest.
class Odometer {
 public:
  Odometer(const ChoiceProblem& problem, const std::vector<int>& nodes) {
    for (int node : nodes) sizes_.push_back(problem.choices_of(node));
    at_.resize(nodes.size());
  }

  const std::vector<int>& at() const { return at_; }

  void Next() {
    for (size_t i = at_.size(); i-- > 0;) {
      if (++at_[i] < sizes_[i]) return;
      at_[i] = 0;
    }
  }

 private:
  std::vector<int> sizes_;
  std::vector<int> at_;
};

size_t PositionOf(const std::vector<int>& scope, int node) {
  return static_cast<size_t>(std::lower_bound(scope.begin(), scope.end(), node) - scope.begin());
}

// Where a step finds, in a table over `scope`, the entry of its own combination.
struct Strides {
  std::vector<size_t> of_scope;  // per node of the step's scope
  size_t of_node = 0;
};

Strides StridesIn(const ChoiceProblem& problem, const std::vector<int>& scope,
                  const std::vector<int>& step_scope, int step_node) {
  Strides strides;
  strides.of_scope.resize(step_scope.size());
  size_t stride = 1;
  for (size_t i = scope.size(); i-- > 0;) {
    if (scope[i] == step_node) {
      strides.of_node = stride;
    } else {
      strides.of_scope[PositionOf(step_scope, scope[i])] = stride;
    }
    stride *= static_cast<size_t>(problem.choices_of(scope[i]));
  }
  return strides;
}

size_t OffsetOf(const Strides& strides, const std::vector<int>& at) {
  size_t offset = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    offset += strides.of_scope[i] * static_cast<size_t>(at[i]);
  }
  return offset;
}

// The neighbours that are left, and how many combinations of choices they have.
struct Neighbourhoods {
  std::vector<std::set<int>> of;

  int64_t Combinations(const ChoiceProblem& problem, int node, int64_t enough) const {
    int64_t count = problem.choices_of(node);
    for (int other : of[static_cast<size_t>(node)]) {
      count *= problem.choices_of(other);
      if (count > enough) return enough + 1;
    }
    return count;
  }

  // Neighbours of an eliminated node become each other's.
  std::vector<int> Eliminate(int node) {
    const std::vector<int> scope(of[static_cast<size_t>(node)].begin(),
                                 of[static_cast<size_t>(node)].end());
    for (int other : scope) {
      std::set<int>& theirs = of[static_cast<size_t>(other)];
      theirs.erase(node);
      for (int third : scope) {
        if (third != other) theirs.insert(third);
      }
    }
    of[static_cast<size_t>(node)].clear();
    return scope;
  }
};

}  // namespace

std::optional<ChoiceElimination> ChoiceElimination::Make(const ChoiceProblem& problem,
                                                         int64_t max_entries) {
  ChoiceElimination elimination(problem);
  if (!elimination.ChooseOrder(max_entries)) return std::nullopt;
  return elimination;
}

// Always the node whose table has the fewest entries; ties go to the lowest index.
bool ChoiceElimination::ChooseOrder(int64_t max_entries) {
  const auto count = static_cast<int>(problem_->nodes.size());
  Neighbourhoods neighbours{std::vector<std::set<int>>(problem_->nodes.size())};
  for (const ChoiceEdge& edge : problem_->edges) {
    neighbours.of[static_cast<size_t>(edge.from)].insert(edge.to);
    neighbours.of[static_cast<size_t>(edge.to)].insert(edge.from);
  }
  std::set<std::pair<int64_t, int>> waiting;
  std::vector<int64_t> size_of(problem_->nodes.size());
  const auto enter = [&](int node) {
    int64_t& size = size_of[static_cast<size_t>(node)];
    size = neighbours.Combinations(*problem_, node, max_entries);
    waiting.emplace(size, node);
  };
  for (int node = 0; node < count; ++node) enter(node);
  std::vector<int> step_of(problem_->nodes.size(), -1);
  while (!waiting.empty()) {
    const auto [size, node] = *waiting.begin();
    waiting.erase(waiting.begin());
    entries_ += size;
    if (entries_ > max_entries) return false;
    Step step{node, neighbours.Eliminate(node), {}, {}, size / problem_->choices_of(node)};
    step_of[static_cast<size_t>(node)] = static_cast<int>(steps_.size());
    for (int other : step.scope) {
      waiting.erase({size_of[static_cast<size_t>(other)], other});
      enter(other);
    }
    steps_.push_back(std::move(step));
  }
  // An edge belongs to the end that goes first; a table to the first of its scope that goes.
  const auto first = [&](int a, int b) {
    return std::min(step_of[static_cast<size_t>(a)], step_of[static_cast<size_t>(b)]);
  };
  for (size_t e = 0; e < problem_->edges.size(); ++e) {
    const ChoiceEdge& edge = problem_->edges[e];
    steps_[static_cast<size_t>(first(edge.from, edge.to))].edges.push_back(e);
  }
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (steps_[s].scope.empty()) continue;
    int next = step_of[static_cast<size_t>(steps_[s].scope[0])];
    for (int other : steps_[s].scope) next = std::min(next, step_of[static_cast<size_t>(other)]);
    steps_[static_cast<size_t>(next)].children.push_back(s);
  }
  return true;
}

void ChoiceElimination::FillStep(const Step& step, const std::vector<double>& own_cost_s,
                                 const std::vector<Table>& tables, Table& table) const {
  struct Term {
    const double* cost_s;
    Strides strides;
  };
  std::vector<Term> terms;
  for (size_t e : step.edges) {
    const ChoiceEdge& edge = problem_->edges[e];
    terms.push_back(
        {edge.cost_s.data(), StridesIn(*problem_, {edge.from, edge.to}, step.scope, step.node)});
  }
  for (size_t child : step.children) {
    terms.push_back({tables[child].cost_s.data(),
                     StridesIn(*problem_, steps_[child].scope, step.scope, step.node)});
  }
  table.cost_s.resize(static_cast<size_t>(step.entries));
  table.best.resize(static_cast<size_t>(step.entries));
  std::vector<double> total(own_cost_s.size());
  Odometer odometer(*problem_, step.scope);
  for (int64_t entry = 0; entry < step.entries; ++entry, odometer.Next()) {
    total = own_cost_s;
    for (const Term& term : terms) {
      const double* cost = term.cost_s + OffsetOf(term.strides, odometer.at());
      for (size_t c = 0; c < total.size(); ++c) total[c] += cost[c * term.strides.of_node];
    }
    const auto best = std::min_element(total.begin(), total.end());
    table.cost_s[static_cast<size_t>(entry)] = *best;
    table.best[static_cast<size_t>(entry)] = static_cast<int>(best - total.begin());
  }
}

ChoiceElimination::Minimum ChoiceElimination::Minimize(
    const std::vector<std::vector<double>>& node_cost_s) const {
  std::vector<Table> tables(steps_.size());
  Minimum minimum;
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    FillStep(step, node_cost_s[static_cast<size_t>(step.node)], tables, tables[s]);
    for (size_t child : step.children) std::vector<double>().swap(tables[child].cost_s);
    if (step.scope.empty()) minimum.cost_s += tables[s].cost_s[0];
  }
  minimum.choices.resize(problem_->nodes.size());
  for (size_t s = steps_.size(); s-- > 0;) {
    size_t entry = 0;
    for (int other : steps_[s].scope) {
      entry = entry * static_cast<size_t>(problem_->choices_of(other)) +
              static_cast<size_t>(minimum.choices[static_cast<size_t>(other)]);
    }
    minimum.choices[static_cast<size_t>(steps_[s].node)] = tables[s].best[entry];
  }
  return minimum;
}

}  // namespace meshwright::search
