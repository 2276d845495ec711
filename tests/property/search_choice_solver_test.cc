// Solvers of choice problems against brute force.
#include "search/choice_solver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "base/clock.h"
#include "search/choice_reduction.h"
#include "search/choice_relaxation.h"
#include "tests/scale.h"

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

void ExpectFindsTheBest(const ChoiceSolver& solver) {
  const ChoiceProblem problem = Arbitrary({6, 4, 3});
  RC_ASSERT(CheckChoiceProblem(problem).ok());
  const std::optional<double> wanted = BruteForce(problem);
  const Result<ChoiceAnswer> answer = solver.Solve(problem, {.timeout_ms = 60'000});
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

RC_GTEST_PROP(CbcSolverProperty, FindsWhatBruteForceFinds, ()) {
  ExpectFindsTheBest(*MakeCbcSolver(SystemClock()));
}

RC_GTEST_PROP(SolverProperty, FindsWhatBruteForceFinds, ()) {
  ExpectFindsTheBest(*MakeSolver(SystemClock()));
}

// Too large for brute force: the integer program alone, and what messages leave of it, must agree.
TEST(Solver, AgreesWithTheIntegerProgramOnLargerProblems) {
  std::mt19937 random(7);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  for (int round = 0; round < 6; ++round) {
    if (LeavesOut(4)) continue;
    ChoiceProblem problem;
    const int count = 40;
    ChoiceMoment all{{}, 0};
    for (int i = 0; i < count; ++i) {
      ChoiceNode node{"n", {}, {}};
      for (int c = 0; c < 5; ++c) {
        node.cost_s.push_back(1e-6 * below(1000));
        node.memory_bytes.push_back(int64_t{1} << (20 + below(6)));
      }
      problem.nodes.push_back(std::move(node));
      all.nodes.push_back(i);
      for (int back : {1, 5}) {
        if (i < back) continue;
        ChoiceEdge edge{i - back, i, {}};
        for (int pair = 0; pair < 25; ++pair) {
          edge.cost_s.push_back(below(10) == 0 ? kForbidden : 1e-6 * below(1000));
        }
        problem.edges.push_back(std::move(edge));
      }
    }
    // Half of the rounds have a budget that costs something.
    all.budget_bytes = (round % 2 == 0 ? 64 : 10) * count * (int64_t{1} << 20);
    problem.moments.push_back(all);
    const auto theirs = MakeCbcSolver(SystemClock())->Solve(problem, {.timeout_ms = 60'000});
    ASSERT_TRUE(theirs.has_value()) << theirs.error();
    EXPECT_LE(theirs->gap(), 1e-6);
    const auto best = MakeSolver(SystemClock())->Solve(problem, {.timeout_ms = 60'000});
    ASSERT_TRUE(best.has_value()) << best.error();
    EXPECT_NEAR(best->cost_s / theirs->cost_s, 1, 1e-6);
    EXPECT_LE(best->gap(), 1e-6);
  }
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
  const auto answer = MakeSolver(SystemClock())->Solve(problem, {.timeout_ms = 60'000});
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
  const auto answer = MakeCbcSolver(SystemClock())->Solve(reduction.problem, {});
  RC_ASSERT(answer.has_value());
  const ChoiceEvaluation evaluation = EvaluateChoices(problem, reduction.Expand(answer->choices));
  RC_ASSERT(evaluation.feasible());
  RC_ASSERT(evaluation.cost_s == *wanted);
}

RC_GTEST_PROP(RelaxationProperty, BoundsTheBestAnswerAndKeepsIt, ()) {
  const ChoiceProblem problem = Arbitrary({7, 4, 2});
  const std::optional<double> wanted = BruteForce(problem);
  const ChoiceRelaxation relaxation = RelaxChoices(problem, {}, SystemClock());
  if (!wanted) {
    RC_ASSERT(!relaxation.best.has_value());
    return;
  }
  RC_ASSERT(relaxation.bound_s <= *wanted * (1 + 1e-9) + 1e-9);
  if (relaxation.best) {
    RC_ASSERT(EvaluateChoices(problem, relaxation.best->choices).cost_s >= *wanted);
  }
  RC_ASSERT(BruteForce(KeepChoices(problem, relaxation.kept).problem) == wanted);
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
  const auto answer = MakeSolver(SystemClock())->Solve(Chain(2000, 1'000'000), {});
  ASSERT_TRUE(answer.has_value()) << answer.error().ToString();
  EXPECT_EQ(answer->cost_s, 2000);
  EXPECT_LE(answer->gap(), 1e-9);
}

TEST(Solver, ABudgetMakesSomeNodesSmall) {
  const ChoiceProblem problem = Chain(10, 640);
  const auto answer = MakeSolver(SystemClock())->Solve(problem, {});
  ASSERT_TRUE(answer.has_value()) << answer.error().ToString();
  // Four must be small, the first ones are the cheapest to be, and one change is enough.
  EXPECT_THAT(answer->choices, testing::ElementsAre(1, 1, 1, 1, 0, 0, 0, 0, 0, 0));
}

TEST(CbcSolver, KeepsTheAnswerItStartsFrom) {
  // Without time it has nothing else.
  const ChoiceProblem problem = Chain(10, 640);
  const std::vector<int> start = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto answer =
      MakeCbcSolver(SystemClock())->Solve(problem, {.timeout_ms = 0, .start = start});
  ASSERT_TRUE(answer.has_value()) << answer.error();
  EXPECT_EQ(answer->choices, start);
  EXPECT_EQ(answer->bound_s, 0);
  const auto better = MakeCbcSolver(SystemClock())->Solve(problem, {.start = start});
  ASSERT_TRUE(better.has_value()) << better.error();
  EXPECT_THAT(better->choices, testing::ElementsAre(1, 1, 1, 1, 0, 0, 0, 0, 0, 0));
  EXPECT_LE(better->gap(), 1e-9);
  const auto wrong = MakeCbcSolver(SystemClock())->Solve(problem, {.start = {1, 2}});
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code(), StatusCode::kInvalidArgument);
}

TEST(Solver, SaysWhatDoesNotFit) {
  const auto answer = MakeSolver(SystemClock())->Solve(Chain(10, 99), {});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(answer.error().ToString(), testing::HasSubstr("moment 0 by 1 bytes"));
}

TEST(Solver, NoTimeIsAnErrorOrAnAnswerWithItsGap) {
  const auto answer = MakeSolver(SystemClock())->Solve(Chain(30, 1500), {.timeout_ms = 0});
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
