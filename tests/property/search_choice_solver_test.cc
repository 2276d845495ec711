// The solver of choice problems against brute force.
#include "search/choice_solver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "base/clock.h"
#include "search/choice_problem.h"
#include "tests/still_clock.h"

namespace meshwright::search {
namespace {

struct Sizes {
  int nodes, choices, moments;
};

// Costs are small whole numbers, so that ties are frequent and sums exact.
ChoiceProblem Arbitrary(const Sizes& most) {
  const auto below = [](int end) { return *rc::gen::inRange(0, end); };
  const auto cost = [&] { return below(12) == 0 ? kForbidden : static_cast<double>(below(10)); };
  ChoiceProblem problem;
  const int count = 1 + below(most.nodes);
  for (int i = 0; i < count; ++i) {
    ChoiceNode node{"n", {}, {}};
    for (int c = 1 + below(most.choices); c > 0; --c) {
      node.cost_s.push_back(cost());
      node.memory_bytes.push_back(below(20));
    }
    problem.nodes.push_back(std::move(node));
  }
  for (int i = 0; i < count; ++i) {
    for (int j = i + 1; j < count; ++j) {
      if (below(3) == 0) continue;
      ChoiceEdge edge{i, j, {}};
      for (int pair = problem.choices_of(i) * problem.choices_of(j); pair > 0; --pair) {
        edge.cost_s.push_back(cost());
      }
      problem.edges.push_back(std::move(edge));
    }
  }
  for (int m = below(most.moments + 1); m > 0; --m) {
    ChoiceMoment moment{{}, 5 + below(count * 10)};
    for (int i = 0; i < count; ++i) {
      if (below(3) > 0) moment.nodes.push_back(i);
    }
    problem.moments.push_back(std::move(moment));
  }
  return problem;
}

// The least cost of all combinations that fit; nothing: none does.
std::optional<double> BruteForce(const ChoiceProblem& problem) {
  std::vector<int> choices(problem.nodes.size());
  std::optional<double> best;
  while (true) {
    const ChoiceEvaluation evaluation = EvaluateChoices(problem, choices);
    if (evaluation.feasible()) best = std::min(best.value_or(kForbidden), evaluation.cost_s);
    size_t i = 0;
    while (i < choices.size() && ++choices[i] == problem.choices_of(static_cast<int>(i))) {
      choices[i++] = 0;
    }
    if (i == choices.size()) return best;
  }
}

RC_GTEST_PROP(SolverProperty, FindsWhatBruteForceFinds, ()) {
  const ChoiceProblem problem = Arbitrary({6, 4, 3});
  RC_ASSERT(CheckChoiceProblem(problem).ok());
  const std::optional<double> wanted = BruteForce(problem);
  const Result<ChoiceAnswer> answer = SolveChoices(problem, {}, kStill);
  RC_ASSERT(answer.has_value() == wanted.has_value());
  if (!wanted) {
    RC_ASSERT(answer.error().code() == StatusCode::kResourceExhausted);
    return;
  }
  const ChoiceEvaluation evaluation = EvaluateChoices(problem, answer->choices);
  RC_ASSERT(evaluation.feasible());
  RC_ASSERT(evaluation.cost_s == answer->cost_s);
  RC_ASSERT(answer->cost_s == *wanted);
  RC_ASSERT(answer->gap() < 1e-6);
}

// The time is over at once, or as soon as a few percent are all that is left to find.
RC_GTEST_PROP(SolverProperty, ItsBoundHoldsWhereverItEnds, ()) {
  const ChoiceProblem problem = Arbitrary({6, 4, 3});
  const std::optional<double> wanted = BruteForce(problem);
  const bool in_time = *rc::gen::arbitrary<bool>();
  const SolveOptions options = {.timeout_ms = in_time ? 1 : 0, .gap = in_time ? 0.1 : 0};
  const Result<ChoiceAnswer> answer = SolveChoices(problem, options, kStill);
  if (!answer.has_value()) {
    RC_ASSERT(!wanted || !in_time);
    return;
  }
  RC_ASSERT(wanted.has_value());
  RC_ASSERT(answer->bound_s <= *wanted * (1 + 1e-9) + 1e-9);
  RC_ASSERT(answer->cost_s >= *wanted);
  if (in_time) RC_ASSERT(answer->gap() <= 0.1 + 1e-6);
}

// Nodes read one another `back` places before; at most so many bytes together.
ChoiceProblem Ladder(std::mt19937& random, const std::vector<int>& back, int64_t budget_bytes) {
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  ChoiceProblem problem;
  ChoiceMoment all{{}, budget_bytes};
  for (int i = 0; i < 40; ++i) {
    ChoiceNode node{"n", {}, {}};
    for (int c = 0; c < 5; ++c) {
      node.cost_s.push_back(1e-6 * below(1000));
      node.memory_bytes.push_back(int64_t{1} << below(6));
    }
    problem.nodes.push_back(std::move(node));
    all.nodes.push_back(i);
    for (const int from : back) {
      if (i < from) continue;
      ChoiceEdge edge{i - from, i, {}};
      for (int pair = 0; pair < 25; ++pair) {
        edge.cost_s.push_back(below(10) == 0 ? kForbidden : 1e-6 * below(1000));
      }
      problem.edges.push_back(std::move(edge));
    }
  }
  problem.moments.push_back(std::move(all));
  return problem;
}

// Of a ladder whose nodes read the one before: the best by choice of the last node and bytes.
double BestOfChain(const ChoiceProblem& problem) {
  const auto bytes = static_cast<size_t>(problem.moments[0].budget_bytes) + 1;
  std::vector<std::vector<double>> best(5, std::vector<double>(bytes, kForbidden));
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const ChoiceNode& node = problem.nodes[i];
    std::vector<std::vector<double>> next(5, std::vector<double>(bytes, kForbidden));
    for (size_t c = 0; c < 5; ++c) {
      const auto own = static_cast<size_t>(node.memory_bytes[c]);
      for (size_t before = 0; before < (i == 0 ? 1 : 5); ++before) {
        const double pair_s = i == 0 ? 0 : problem.edges[i - 1].cost_s[before * 5 + c];
        for (size_t held = own; held < bytes; ++held) {
          const double before_s = i == 0 ? 0 : best[before][held - own];
          next[c][held] = std::min(next[c][held], before_s + pair_s + node.cost_s[c]);
        }
      }
    }
    best = std::move(next);
  }
  double least_s = kForbidden;
  for (const auto& of_choice : best) least_s = std::min(least_s, of_choice.back());
  return least_s;
}

TEST(Solver, FindsTheBestOfLongChainsWithAndWithoutABindingBudget) {
  std::mt19937 random(7);
  for (const int64_t budget : {2560, 400, 120}) {
    const ChoiceProblem problem = Ladder(random, {1}, budget);
    const auto answer = SolveChoices(problem, {}, kStill);
    ASSERT_TRUE(answer.has_value()) << answer.error();
    EXPECT_NEAR(answer->cost_s / BestOfChain(problem), 1, 1e-6) << budget;
    EXPECT_LE(answer->gap(), 1e-6) << budget << ", " << answer->branches << " branches";
  }
}

// Too many for brute force, and no chain: the bound proves the answer.
TEST(Solver, ClosesTheGapByBranches) {
  std::mt19937 random(7);
  int by_branches = 0;
  for (int round = 0; round < 3; ++round) {
    const auto answer = SolveChoices(Ladder(random, {1, 5}, 40 * 32), {}, kStill);
    ASSERT_TRUE(answer.has_value()) << answer.error();
    EXPECT_LE(answer->gap(), 1e-6) << answer->branches << " branches";
    EXPECT_EQ(answer->decider == Decider::kBranches, answer->branches > 0);
    by_branches += answer->branches > 0 ? 1 : 0;
  }
  EXPECT_GT(by_branches, 0) << "messages are not exact here";
}

TEST(Solver, TakesProblemsInWhichEveryNodeMeetsEveryOther) {
  ChoiceProblem problem;
  for (int i = 0; i < 16; ++i) {
    problem.nodes.push_back({"n", std::vector<double>(6, 0.0), std::vector<int64_t>(6, 0)});
    for (int j = 0; j < i; ++j) {
      ChoiceEdge edge{j, i, {}};
      // Alike costs nothing.
      for (int pair = 0; pair < 36; ++pair)
        edge.cost_s.push_back(pair / 6 == pair % 6 ? 0 : 1 + pair);
      problem.edges.push_back(std::move(edge));
    }
  }
  const auto answer = SolveChoices(problem, {}, kStill);
  ASSERT_TRUE(answer.has_value()) << answer.error();
  EXPECT_EQ(answer->cost_s, 0);
}

// The least cost of a reduced problem, put back into the full one.
RC_GTEST_PROP(ReductionProperty, KeepsABestAnswer, ()) {
  const ChoiceProblem problem = Arbitrary({7, 4, 2});
  const ChoiceReduction reduction = ReduceChoices(problem);
  RC_ASSERT(CheckChoiceProblem(reduction.problem).ok());
  const std::optional<double> wanted = BruteForce(problem);
  RC_ASSERT(BruteForce(reduction.problem) == wanted);
  if (!wanted) return;
  const auto answer = SolveChoices(reduction.problem, {}, kStill);
  RC_ASSERT(answer.has_value());
  const ChoiceEvaluation evaluation = EvaluateChoices(problem, reduction.Expand(answer->choices));
  RC_ASSERT(evaluation.feasible());
  RC_ASSERT(evaluation.cost_s == *wanted);
}

// A chain of `count` nodes with two choices: 0 is cheap and large, 1 dear and small; changing
// costs.
ChoiceProblem Chain(int count, int64_t budget_bytes) {
  ChoiceProblem problem;
  ChoiceMoment all{{}, budget_bytes};
  for (int i = 0; i < count; ++i) {
    problem.nodes.push_back({"n", {1, 3 + 0.01 * i}, {100, 10}});
    if (i > 0) problem.edges.push_back({i - 1, i, {0, 1, 1, 0}});
    all.nodes.push_back(i);
  }
  problem.moments.push_back(std::move(all));
  return problem;
}

TEST(Solver, LongChainsAreSolved) {
  const auto answer = SolveChoices(Chain(2000, 1'000'000), {}, kStill);
  ASSERT_TRUE(answer.has_value()) << answer.error().ToString();
  EXPECT_EQ(answer->cost_s, 2000);
  EXPECT_LE(answer->gap(), 1e-9);
}

TEST(Solver, ABudgetMakesSomeNodesSmall) {
  const ChoiceProblem problem = Chain(10, 640);
  const auto answer = SolveChoices(problem, {}, kStill);
  ASSERT_TRUE(answer.has_value()) << answer.error().ToString();
  // Four must be small, the first ones are the cheapest to be, and one change is enough.
  EXPECT_THAT(answer->choices, testing::ElementsAre(1, 1, 1, 1, 0, 0, 0, 0, 0, 0));
}

TEST(Solver, SaysWhatDoesNotFit) {
  const auto answer = SolveChoices(Chain(10, 99), {}, kStill);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(answer.error().ToString(), testing::HasSubstr("moment 0 by 1 bytes"));
}

TEST(Solver, NoTimeIsAnErrorOrAnAnswerWithItsGap) {
  const auto answer = SolveChoices(Chain(30, 1500), {.timeout_ms = 0}, kStill);
  if (answer.has_value()) {
    EXPECT_GE(answer->gap(), 0);
  } else {
    EXPECT_EQ(answer.error().code(), StatusCode::kDeadlineExceeded);
  }
}

TEST(CheckChoiceProblem, NamesWhatIsWrong) {
  ChoiceProblem good = Chain(3, 100);
  ASSERT_TRUE(CheckChoiceProblem(good).ok());
  const auto message = [](const ChoiceProblem& problem) {
    return CheckChoiceProblem(problem).ToString();
  };
  ChoiceProblem bad = good;
  bad.nodes[1].cost_s.clear();
  EXPECT_THAT(message(bad), testing::HasSubstr("node 1 (\"n\") has no choices"));
  bad = good;
  bad.nodes[2].memory_bytes[0] = -1;
  EXPECT_THAT(message(bad), testing::HasSubstr("node 2 (\"n\") has negative memory"));
  bad = good;
  bad.edges[0].to = 7;
  EXPECT_THAT(message(bad), testing::HasSubstr("edge 0 joins 0 and 7 of 3 nodes"));
  bad = good;
  bad.edges.push_back(good.edges[0]);
  EXPECT_THAT(message(bad), testing::HasSubstr("edge 2 is the second one of nodes 0 and 1"));
  bad = good;
  bad.edges[1].cost_s.pop_back();
  EXPECT_THAT(message(bad), testing::HasSubstr("has 3 costs for 4 pairs"));
  bad = good;
  bad.moments[0].nodes = {0, 0};
  EXPECT_THAT(message(bad), testing::HasSubstr("moment 0"));
}

}  // namespace
}  // namespace meshwright::search
