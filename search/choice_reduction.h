// A choice problem without the choices and nodes that no best answer needs to decide.
//
// A choice goes when another one of its node is at least as good whatever the neighbours choose:
// its cost, plus per edge the least by which its pairs are cheaper, does not exceed that of the
// first, and it takes no more memory where memory counts. A node with at most two neighbours, whose
// memory does not count, goes into a table of them that says what it costs at best. One makes the
// other possible, so that both are repeated; what is left is as good and often a fraction.
//
// Thread rule: pure functions. Source: dead-end elimination with Goldstein's criterion (Goldstein,
// Biophysical Journal 66, 1994).
#pragma once

#include <span>
#include <vector>

#include "search/choice_problem.h"

namespace meshwright::search {

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
