#include "search/choice_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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
    int64_t bytes = 0;
    for (int node : moment.nodes) {
      bytes += problem.nodes[static_cast<size_t>(node)].memory_bytes[choice(node)];
    }
    evaluation.over_bytes = std::max(evaluation.over_bytes, bytes - moment.budget_bytes);
  }
  return evaluation;
}

}  // namespace meshwright::search
