// One choice for every node of a graph, at the least cost within memory limits: what a search for
// shardings comes down to.
//
// A node costs by what it chooses, an edge by what both of its ends choose (resharding), and at
// every moment the memory of the nodes that are alive then must fit. Evaluate() recomputes an
// answer from nothing but the problem, so that no solver has to be believed.
//
// What no best answer needs to decide is left out before. A choice goes when another one of its
// node is at least as good whatever the neighbours choose: its cost, plus per edge the least by
// which its pairs are cheaper, does not exceed that of the first, and it takes no more memory where
// memory counts. A node with at most two neighbours, whose memory does not count, goes into a table
// of them that says what it costs at best. One makes the other possible, so that both are repeated;
// what is left is as good and often a fraction.
//
// Thread rule: values, pure functions. Source: Alpa (Zheng et al., OSDI'22) section 4.2, equation
// 1, with the memory limits that its solver leaves out; of what goes: dead-end elimination with
// Goldstein's criterion (Goldstein, Biophysical Journal 66, 1994).
#pragma once

#include <cstdint>
#include <limits>
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
  double cost_s = 0;  // kForbidden when a node or an edge forbids it
  // Of its budget at the fullest moment; below 0: over it.
  int64_t left_bytes = std::numeric_limits<int64_t>::max();
  bool feasible() const { return cost_s < kForbidden && left_bytes >= 0; }
};

// REQUIRES: CheckChoiceProblem is OK; one valid choice per node.
ChoiceEvaluation EvaluateChoices(const ChoiceProblem& problem, std::span<const int> choices);

// A choice problem without the choices and nodes that need not be decided.
struct ChoiceReduction {
  ChoiceProblem problem;
  std::vector<int> nodes;              // per node of `problem`: which one of the full problem it is
  std::vector<std::vector<int>> kept;  // per node of the full problem, ascending: its choices

  // A node that others decide.
  struct Folded {
    int node = 0;
    std::vector<int> others;  // at most two nodes
    std::vector<int> best;   // [choices of others]: its choice; all numbers are of the full problem
    std::vector<int> sizes;  // choices of others
  };
  std::vector<Folded> folded;  // later ones may decide earlier ones

  // Choices of the reduced problem as choices of the full one.
  std::vector<int> Expand(std::span<const int> choices) const;
};

// The least cost of the result is that of `problem`, and Expand() keeps costs. Moments that
// everything fits are left empty. REQUIRES: CheckChoiceProblem is OK.
ChoiceReduction ReduceChoices(const ChoiceProblem& problem);
// Of the choices that are left per node, at least one, ascending.
ChoiceReduction ReduceChoices(const ChoiceProblem& problem, std::vector<std::vector<int>> kept);

// `problem` without its moments: what memory costs is the difference of the two.
ChoiceProblem WithoutMoments(const ChoiceProblem& problem);

}  // namespace meshwright::search
