// One choice for every node of a graph, at the least cost within memory limits: what a search for
// shardings comes down to.
//
// A node costs by what it chooses, an edge by what both of its ends choose (resharding), and at
// every moment the memory of the nodes that are alive then must fit. Evaluate() recomputes an
// answer from nothing but the problem, so that no solver has to be believed.
//
// Thread rule: values, pure functions. Source: Alpa (Zheng et al., OSDI'22) section 4.2, equation
// 1, with the memory limits that its solver leaves out.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace meshwright::search {

inline constexpr double kForbidden = std::numeric_limits<double>::infinity();

struct ChoiceNode {
  std::string name;                   // for messages
  std::vector<double> cost_s;         // per choice, at least one; >= 0 or kForbidden
  std::vector<int64_t> memory_bytes;  // per choice
};

struct ChoiceEdge {
  int from = 0;  // < to; at most one edge between two nodes
  int to = 0;
  std::vector<double> cost_s;  // [choices of from, choices of to]
};

// The nodes that are alive at a moment.
struct ChoiceMoment {
  std::vector<int> nodes;  // ascending
  int64_t budget_bytes = 0;
};

struct ChoiceProblem {
  std::vector<ChoiceNode> nodes;
  std::vector<ChoiceEdge> edges;
  std::vector<ChoiceMoment> moments;

  int choices_of(int node) const {
    return static_cast<int>(nodes[static_cast<size_t>(node)].cost_s.size());
  }
};

// Errors: kInvalidArgument naming the node, edge or moment that is not of the form above.
Status CheckChoiceProblem(const ChoiceProblem& problem);

struct ChoiceEvaluation {
  double cost_s = 0;       // kForbidden when a node or an edge forbids it
  int64_t over_bytes = 0;  // the most by which a moment is over its budget; 0: all fit
  bool feasible() const { return cost_s < kForbidden && over_bytes == 0; }
};

// REQUIRES: CheckChoiceProblem is OK; one valid choice per node.
ChoiceEvaluation EvaluateChoices(const ChoiceProblem& problem, std::span<const int> choices);

}  // namespace meshwright::search
