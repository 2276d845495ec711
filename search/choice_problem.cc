#include "search/choice_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace meshwright::search {
namespace {

// Finite or forbidden, never negative or NaN.
bool IsCost(double value) { return value >= 0; }

Status CheckNode(const ChoiceProblem& problem, size_t i) {
  const ChoiceNode& node = problem.nodes[i];
  const auto wrong = [&](std::string_view what) {
    return InvalidArgument(fmt::format("choice node {} (\"{}\") {}", i, node.name, what));
  };
  if (node.cost_s.empty()) return wrong("has no choices");
  if (node.memory_bytes.size() != node.cost_s.size()) {
    return wrong(fmt::format("has {} choices with a cost and {} with memory", node.cost_s.size(),
                             node.memory_bytes.size()));
  }
  if (!std::all_of(node.cost_s.begin(), node.cost_s.end(), IsCost)) {
    return wrong("has a cost that is negative or no number");
  }
  if (std::any_of(node.memory_bytes.begin(), node.memory_bytes.end(),
                  [](int64_t bytes) { return bytes < 0; })) {
    return wrong("has negative memory");
  }
  return OkStatus();
}

Status CheckEdge(const ChoiceProblem& problem, size_t i) {
  const ChoiceEdge& edge = problem.edges[i];
  const int count = static_cast<int>(problem.nodes.size());
  if (edge.from < 0 || edge.from >= edge.to || edge.to >= count) {
    return InvalidArgument(
        fmt::format("choice edge {} joins {} and {} of {} nodes", i, edge.from, edge.to, count));
  }
  const auto wanted = static_cast<size_t>(problem.choices_of(edge.from)) *
                      static_cast<size_t>(problem.choices_of(edge.to));
  if (edge.cost_s.size() != wanted ||
      !std::all_of(edge.cost_s.begin(), edge.cost_s.end(), IsCost)) {
    return InvalidArgument(
        fmt::format("choice edge {} of nodes {} and {} has {} costs for {} pairs, "
                    "or one that is negative or no number",
                    i, edge.from, edge.to, edge.cost_s.size(), wanted));
  }
  return OkStatus();
}

Status CheckMoment(const ChoiceProblem& problem, size_t i) {
  const ChoiceMoment& moment = problem.moments[i];
  const int count = static_cast<int>(problem.nodes.size());
  const bool ascending = std::adjacent_find(moment.nodes.begin(), moment.nodes.end(),
                                            std::greater_equal<>()) == moment.nodes.end();
  const bool known = std::all_of(moment.nodes.begin(), moment.nodes.end(),
                                 [&](int node) { return node >= 0 && node < count; });
  if (ascending && known && moment.budget_bytes >= 0) return OkStatus();
  return InvalidArgument(
      fmt::format("choice moment {} names nodes twice, out of order or of {}, or has budget {}", i,
                  count, moment.budget_bytes));
}

}  // namespace

Status CheckChoiceProblem(const ChoiceProblem& problem) {
  for (size_t i = 0; i < problem.nodes.size(); ++i) MW_TRY(CheckNode(problem, i));
  std::set<std::pair<int, int>> seen;
  for (size_t i = 0; i < problem.edges.size(); ++i) {
    MW_TRY(CheckEdge(problem, i));
    if (!seen.emplace(problem.edges[i].from, problem.edges[i].to).second) {
      return InvalidArgument(fmt::format("choice edge {} is the second one of nodes {} and {}", i,
                                         problem.edges[i].from, problem.edges[i].to));
    }
  }
  for (size_t i = 0; i < problem.moments.size(); ++i) MW_TRY(CheckMoment(problem, i));
  return OkStatus();
}

ChoiceEvaluation EvaluateChoices(const ChoiceProblem& problem, std::span<const int> choices) {
  const auto choice = [&](int node) {
    return static_cast<size_t>(choices[static_cast<size_t>(node)]);
  };
  ChoiceEvaluation evaluation;
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    evaluation.cost_s += problem.nodes[i].cost_s[choice(static_cast<int>(i))];
  }
  for (const ChoiceEdge& edge : problem.edges) {
    const auto columns = static_cast<size_t>(problem.choices_of(edge.to));
    evaluation.cost_s += edge.cost_s[choice(edge.from) * columns + choice(edge.to)];
  }
  for (const ChoiceMoment& moment : problem.moments) {
    int64_t left_bytes = moment.budget_bytes;
    for (int node : moment.nodes) {
      left_bytes -= problem.nodes[static_cast<size_t>(node)].memory_bytes[choice(node)];
    }
    evaluation.left_bytes = std::min(evaluation.left_bytes, left_bytes);
  }
  return evaluation;
}

namespace {

// Stands for kForbidden where costs are subtracted.
constexpr double kWall = 1e30;

double Walled(double cost_s) { return cost_s < kForbidden ? cost_s : kWall; }
double Sum(double a, double b) { return std::min(a + b, kWall); }

// Costs of an edge, [choices of one end, choices of the other].
using Table = std::vector<double>;

class Reducer {
 public:
  Reducer(const ChoiceProblem& problem, std::vector<std::vector<int>> kept)
      : problem_(problem),
        cost_s_(problem.nodes.size()),
        tables_(problem.nodes.size()),
        counted_(problem.nodes.size(), false),
        stale_(problem.nodes.size(), true),
        kept_(std::move(kept)) {
    for (size_t i = 0; i < kept_.size(); ++i) {
      for (double cost_s : problem.nodes[i].cost_s) cost_s_[i].push_back(Walled(cost_s));
    }
    for (const ChoiceEdge& edge : problem.edges) {
      Table table;
      for (double cost_s : edge.cost_s) table.push_back(Walled(cost_s));
      AddTable(edge.from, edge.to, table);
    }
    for (const ChoiceMoment& moment : problem.moments) {
      if (FitsAlways(moment)) continue;
      for (int node : moment.nodes) counted_[Index(node)] = true;
    }
  }

  ChoiceReduction Run() {
    const int count = static_cast<int>(kept_.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (int node = 0; node < count; ++node) {
        if (gone(node) || !stale_[Index(node)]) continue;
        stale_[Index(node)] = false;
        const bool reduced = ReduceNode(node);
        if (reduced) Touch(node);
        if (kept_[Index(node)].size() == 1) CutOff(node);
        const bool fold = tables_[Index(node)].size() <= 2 && !counted_[Index(node)];
        if (fold) Fold(node);
        changed = changed || reduced || fold;
      }
    }
    return Finish();
  }

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }
  size_t Size(int node) const { return cost_s_[Index(node)].size(); }
  bool gone(int node) const { return kept_[Index(node)].empty(); }

  void Touch(int node) {
    for (const auto& [other, table] : tables_[Index(node)]) stale_[Index(other)] = true;
  }

  bool FitsAlways(const ChoiceMoment& moment) const {
    double bytes = 0;
    for (int node : moment.nodes) {
      const auto& memory = problem_.nodes[Index(node)].memory_bytes;
      bytes += static_cast<double>(*std::max_element(memory.begin(), memory.end()));
    }
    return bytes <= static_cast<double>(moment.budget_bytes);
  }

  // Adds to the edge of a and b, seen from both ends.
  void AddTable(int a, int b, const Table& costs) {
    Table& from = tables_[Index(a)][b];
    Table& to = tables_[Index(b)][a];
    from.resize(costs.size());
    to.resize(costs.size());
    for (size_t i = 0; i < Size(a); ++i) {
      for (size_t j = 0; j < Size(b); ++j) {
        const double cost_s = Sum(from[i * Size(b) + j], costs[i * Size(b) + j]);
        from[i * Size(b) + j] = cost_s;
        to[j * Size(a) + i] = cost_s;
      }
    }
  }

  // ---- choices ----

  // Late choices go first, so that of equals the first stays.
  bool ReduceNode(int node) {
    bool reduced = false;
    std::vector<int>& kept = kept_[Index(node)];
    for (size_t k = kept.size(); k-- > 0 && kept.size() > 1;) {
      const int choice = kept[k];
      const bool needless =
          Impossible(node, choice) || std::any_of(kept.begin(), kept.end(), [&](int other) {
            return other != choice && Dominates(node, other, choice);
          });
      if (!needless) continue;
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(k));
      reduced = true;
    }
    return reduced;
  }

  bool Impossible(int node, int choice) const {
    if (cost_s_[Index(node)][Index(choice)] >= kWall) return true;
    const auto& tables = tables_[Index(node)];
    return std::any_of(tables.begin(), tables.end(), [&](const auto& entry) {
      const double* row = &entry.second[Index(choice) * Size(entry.first)];
      const std::vector<int>& others = kept_[Index(entry.first)];
      return std::all_of(others.begin(), others.end(), [&](int j) { return row[j] >= kWall; });
    });
  }

  // Whether `better` is never worse than `choice`, which is possible.
  bool Dominates(int node, int better, int choice) const {
    const std::vector<int64_t>& memory = problem_.nodes[Index(node)].memory_bytes;
    if (counted_[Index(node)] && memory[Index(better)] > memory[Index(choice)]) return false;
    double gain_s = cost_s_[Index(node)][Index(choice)] - cost_s_[Index(node)][Index(better)];
    for (const auto& [other, table] : tables_[Index(node)]) {
      const double* better_row = &table[Index(better) * Size(other)];
      const double* row = &table[Index(choice) * Size(other)];
      double least = kWall;
      for (int j : kept_[Index(other)]) least = std::min(least, row[j] - better_row[j]);
      if (least <= -kWall / 2) return false;
      gain_s += least;
    }
    return gain_s >= 0;
  }

  // ---- nodes ----

  // What is decided costs its neighbours what it costs, each alone.
  void CutOff(int node) {
    const std::map<int, Table> tables = std::exchange(tables_[Index(node)], {});
    const int choice = kept_[Index(node)].front();
    for (const auto& [other, table] : tables) {
      tables_[Index(other)].erase(node);
      stale_[Index(other)] = true;
      std::vector<double>& other_s = cost_s_[Index(other)];
      for (size_t j = 0; j < other_s.size(); ++j) {
        other_s[j] = Sum(other_s[j], table[Index(choice) * other_s.size() + j]);
      }
    }
  }

  // Puts a node with at most two neighbours into their costs.
  void Fold(int node) {
    const std::map<int, Table> tables = std::move(tables_[Index(node)]);
    ChoiceReduction::Folded folded{node, {}, {}, {}};
    std::vector<const Table*> sides;
    for (const auto& [other, table] : tables) {
      folded.others.push_back(other);
      folded.sizes.push_back(static_cast<int>(Size(other)));
      sides.push_back(&table);
      tables_[Index(other)].erase(node);
      stale_[Index(other)] = true;
    }
    const size_t rows = sides.empty() ? 1 : Index(folded.sizes[0]);
    const size_t columns = sides.size() < 2 ? 1 : Index(folded.sizes[1]);
    Table costs(rows * columns, kWall);
    folded.best.assign(costs.size(), kept_[Index(node)].front());
    for (int c : kept_[Index(node)]) {
      const double own_s = cost_s_[Index(node)][Index(c)];
      for (size_t i = 0; i < rows; ++i) {
        const double row_s = sides.empty() ? own_s : Sum(own_s, (*sides[0])[Index(c) * rows + i]);
        for (size_t j = 0; j < columns; ++j) {
          const double cost_s =
              sides.size() < 2 ? row_s : Sum(row_s, (*sides[1])[Index(c) * columns + j]);
          if (cost_s >= costs[i * columns + j]) continue;
          costs[i * columns + j] = cost_s;
          folded.best[i * columns + j] = c;
        }
      }
    }
    if (sides.size() == 2) {
      AddTable(folded.others[0], folded.others[1], costs);
    } else if (sides.size() == 1) {
      std::vector<double>& other_s = cost_s_[Index(folded.others[0])];
      for (size_t i = 0; i < rows; ++i) other_s[i] = Sum(other_s[i], costs[i]);
    } else {
      constant_s_ = Sum(constant_s_, costs[0]);
    }
    kept_[Index(node)].clear();
    folded_.push_back(std::move(folded));
  }

  // ---- the result ----

  static double Unwalled(double cost_s) { return cost_s < kWall ? cost_s : kForbidden; }

  ChoiceReduction Finish() {
    ChoiceReduction reduction;
    std::vector<int> place(kept_.size(), -1);
    // What folded nodes cost by themselves stays with a node of one choice.
    if (constant_s_ > 0) {
      reduction.problem.nodes.push_back({"the rest", {Unwalled(constant_s_)}, {0}});
      reduction.nodes.push_back(-1);
    }
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i].empty()) continue;
      const ChoiceNode& full = problem_.nodes[i];
      ChoiceNode node{full.name, {}, {}};
      for (int c : kept_[i]) {
        node.cost_s.push_back(Unwalled(cost_s_[i][Index(c)]));
        node.memory_bytes.push_back(full.memory_bytes[Index(c)]);
      }
      place[i] = static_cast<int>(reduction.nodes.size());
      reduction.nodes.push_back(static_cast<int>(i));
      reduction.problem.nodes.push_back(std::move(node));
    }
    for (size_t i = 0; i < kept_.size(); ++i) {
      for (const auto& [other, table] : tables_[i]) {
        if (Index(other) <= i) continue;
        ChoiceEdge edge{place[i], place[Index(other)], {}};
        for (int a : kept_[i]) {
          for (int b : kept_[Index(other)]) {
            edge.cost_s.push_back(Unwalled(table[Index(a) * Size(other) + Index(b)]));
          }
        }
        reduction.problem.edges.push_back(std::move(edge));
      }
    }
    for (const ChoiceMoment& full : problem_.moments) {
      ChoiceMoment moment{{}, full.budget_bytes};
      for (int node : full.nodes) {
        if (!FitsAlways(full)) moment.nodes.push_back(place[Index(node)]);
      }
      reduction.problem.moments.push_back(std::move(moment));
    }
    reduction.kept = std::move(kept_);
    reduction.folded = std::move(folded_);
    return reduction;
  }

  const ChoiceProblem& problem_;
  std::vector<std::vector<double>> cost_s_;   // per node
  std::vector<std::map<int, Table>> tables_;  // per node, by neighbour
  std::vector<bool> counted_;                 // per node: its memory may be too much
  std::vector<bool> stale_;                   // per node: something about it has changed
  std::vector<std::vector<int>> kept_;        // per node; empty: folded
  std::vector<ChoiceReduction::Folded> folded_;
  double constant_s_ = 0;
};

}  // namespace

std::vector<int> ChoiceReduction::Expand(std::span<const int> choices) const {
  std::vector<int> full(kept.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] < 0) continue;
    const auto node = static_cast<size_t>(nodes[i]);
    full[node] = kept[node][static_cast<size_t>(choices[i])];
  }
  for (auto it = folded.rbegin(); it != folded.rend(); ++it) {
    size_t at = 0;
    for (size_t o = 0; o < it->others.size(); ++o) {
      at = at * static_cast<size_t>(it->sizes[o]) +
           static_cast<size_t>(full[static_cast<size_t>(it->others[o])]);
    }
    full[static_cast<size_t>(it->node)] = it->best[at];
  }
  return full;
}

ChoiceReduction ReduceChoices(const ChoiceProblem& problem) {
  std::vector<std::vector<int>> all;
  for (const ChoiceNode& node : problem.nodes) {
    all.emplace_back(node.cost_s.size());
    std::iota(all.back().begin(), all.back().end(), 0);
  }
  return ReduceChoices(problem, std::move(all));
}

ChoiceReduction ReduceChoices(const ChoiceProblem& problem, std::vector<std::vector<int>> kept) {
  return Reducer(problem, std::move(kept)).Run();
}

ChoiceProblem WithoutMoments(const ChoiceProblem& problem) {
  return {problem.nodes, problem.edges, {}};
}

}  // namespace meshwright::search
