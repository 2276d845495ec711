// Explanations of plans by rules and by search, on a model that is small enough to price by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/plan_reasons.h"
#include "report/sharding_reasons.h"
#include "search/choice_problem.h"
#include "search/find_layout.h"
#include "tests/still_clock.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

using report::BoundaryMove;
using report::ExplainOptions;
using report::ExplainShardings;
using report::ExplainStage;
using report::ExplainStageInput;
using report::ShardingAlternative;
using report::ShardingExplanation;
using report::ShardingExplanations;
using report::StagesOfLayers;

ir::JobRequest SmallJob(int64_t data, int64_t tensor, int64_t pipeline) {
  ir::JobRequest job = SmallGpt2Job(4);
  job.parallel.data = data;
  job.parallel.tensor = tensor;
  job.parallel.pipeline = pipeline;
  return job;
}

struct Explained {
  ir::JobRequest job;
  mesh::Topology topology;
  FoundPlan found;

  Result<ShardingExplanations> Explain(const std::string& pattern,
                                       ExplainOptions options = {}) const {
    options.by_search = found.by_search;
    return ExplainShardings({job, topology, found.plan, options}, pattern, kStill);
  }
};

Explained PlanOf(ir::JobRequest job) {
  const int devices =
      static_cast<int>(job.parallel.data * job.parallel.tensor * job.parallel.pipeline);
  Explained explained{std::move(job), mesh::Topology::Local(devices, 1), {}};
  auto found = FindPlan(explained.job, explained.topology, {}, kStill);
  EXPECT_TRUE(found.has_value()) << found.error();
  if (found) explained.found = *std::move(found);
  return explained;
}

const ShardingAlternative* ChosenOf(const ShardingExplanation& table) {
  for (const ShardingAlternative& row : table.alternatives) {
    if (row.chosen) return &row;
  }
  return nullptr;
}

TEST(ExplainShardings, TheChosenRowIsWhatThePlanStores) {
  const Explained plan = PlanOf(SmallJob(2, 2, 1));
  for (const planner::ParamInfo& param : plan.found.plan.params) {
    const auto answer = plan.Explain(param.name, {.most_tables = 1, .most_priced = 1});
    ASSERT_TRUE(answer.has_value()) << answer.error();
    const ShardingAlternative* chosen = ChosenOf(answer->tables[0]);
    ASSERT_NE(chosen, nullptr) << param.name;
    EXPECT_EQ(chosen->text, mesh::FormatSharding(param.type, param.sharding));
    EXPECT_EQ(chosen->alone_s, 0);
  }
}

TEST(ExplainShardings, EqualLayersAreOneTable) {
  const Explained plan = PlanOf(SmallJob(1, 2, 1));
  const auto answer = plan.Explain("*.c_fc.weight");
  ASSERT_TRUE(answer.has_value()) << answer.error();
  // The first layer and the last one have other neighbours.
  ASSERT_EQ(answer->tables.size(), 6u);
  EXPECT_EQ(answer->tables[2].alike,
            (std::vector<std::string>{"param transformer.h.1.mlp.c_fc.weight",
                                      "param transformer.h.2.mlp.c_fc.weight"}));
  for (size_t t = 0; t < answer->tables.size(); t += 2) {
    EXPECT_THAT(answer->tables[t].name, ::testing::StartsWith("param "));
    EXPECT_THAT(answer->tables[t + 1].name, ::testing::StartsWith("einsum %"));
    EXPECT_EQ(answer->tables[t].alternatives.size(), 3u) << "whole, by rows, by columns";
  }
  const auto narrow = plan.Explain("*.h.*");
  EXPECT_TRUE(!narrow.has_value() || narrow->tables.size() <= ExplainOptions().most_tables);
}

TEST(ExplainShardings, RowsAscendAndTheSearchsOwnWayIsTheBest) {
  ir::JobRequest job = SmallJob(2, 2, 1);
  job.parallel.shardings = "search";
  Explained plan = PlanOf(job);
  plan.found.by_search = true;
  const auto answer = plan.Explain("*.c_fc.weight");
  ASSERT_TRUE(answer.has_value()) << answer.error();
  for (const ShardingExplanation& table : answer->tables) {
    ASSERT_NE(ChosenOf(table), nullptr);
    for (size_t i = 1; i < table.alternatives.size(); ++i) {
      const ShardingAlternative& row = table.alternatives[i];
      if (!row.possible) continue;
      EXPECT_GE(row.costs.total_s(), table.alternatives[i - 1].costs.total_s());
    }
    // What moves alone cannot be better than the best with it.
    for (const ShardingAlternative& row : table.alternatives) {
      if (!row.possible || row.alone_s == kForbidden) continue;
      EXPECT_LE(row.costs.total_s(), (answer->planned.total_s() + row.alone_s) * (1 + 2e-3));
    }
  }
}

TEST(ExplainShardings, NamesOfGradientsStateAndValuesAreKnown) {
  const Explained plan = PlanOf(SmallJob(2, 1, 1));
  const std::string name = plan.found.plan.params[2].name;
  EXPECT_TRUE(plan.Explain("grad/" + name).has_value());
  const auto state = plan.Explain("opt.m/" + name);
  ASSERT_TRUE(state.has_value()) << state.error();
  EXPECT_THAT(state->tables[0].name, ::testing::StartsWith("adamw"));
  const auto table = plan.Explain(name)->tables[1];
  const size_t at = table.name.find('%');
  const auto value = plan.Explain(table.name.substr(at, table.name.find(' ', at) - at));
  ASSERT_TRUE(value.has_value()) << value.error();
  EXPECT_EQ(value->tables[0].name, table.name);
  EXPECT_EQ(plan.Explain("none").error().code(), StatusCode::kNotFound);
}

TEST(ExplainStage, SecondsAndMemoryAreThoseOfTheForecast) {
  const Explained plan = PlanOf(SmallJob(1, 1, 2));
  const auto forecast = planner::ForecastStep(plan.found.plan, plan.topology);
  ASSERT_TRUE(forecast.has_value()) << forecast.error();
  const ExplainStageInput input{plan.job, plan.topology, plan.found.plan, *forecast};
  double busy_s = 0;
  const auto stage = ExplainStage(input, 1, kStill);
  ASSERT_TRUE(stage.has_value()) << stage.error();
  for (const auto& [piece, seconds] : stage->seconds) busy_s += seconds;
  EXPECT_NEAR(busy_s, forecast->simulation.busy_s[1], 1e-12);
  EXPECT_EQ(stage->memory.total_bytes, plan.found.plan.memory[1].total_bytes);
  EXPECT_EQ(stage->info.layers, plan.found.plan.stages[1].layers);
}

TEST(ExplainStage, AMovedBoundaryIsThePlanWithThoseLayers) {
  const Explained plan = PlanOf(SmallJob(1, 1, 2));
  const auto forecast = planner::ForecastStep(plan.found.plan, plan.topology);
  ASSERT_TRUE(forecast.has_value()) << forecast.error();
  const ExplainStageInput input{plan.job, plan.topology, plan.found.plan, *forecast};
  const auto stage = ExplainStage(input, 0, kStill);
  ASSERT_TRUE(stage.has_value()) << stage.error();
  ASSERT_EQ(stage->moves.size(), 2u);
  for (const BoundaryMove& move : stage->moves) {
    planner::Layout layout = plan.found.plan.layout;
    layout.part_layers = move.to_stage == 0 ? std::vector<int>{3, 1} : std::vector<int>{1, 3};
    const auto moved = planner::MakePlanOf(plan.job, plan.topology, layout);
    ASSERT_TRUE(moved.has_value()) << moved.error();
    EXPECT_EQ(move.step_s, planner::ForecastStep(*moved, plan.topology)->step_s);
    EXPECT_EQ(move.layer, move.to_stage == 0 ? 2 : 1);
  }
}

TEST(StagesOfLayers, AreThoseThatHoldAnyOfThem) {
  const Explained plan = PlanOf(SmallJob(1, 1, 2));
  EXPECT_EQ(StagesOfLayers(plan.found.plan, 0, 1).value(), std::vector<int>{0});
  EXPECT_EQ(StagesOfLayers(plan.found.plan, 1, 2).value(), (std::vector<int>{0, 1}));
  EXPECT_FALSE(StagesOfLayers(plan.found.plan, 2, 4).has_value());
  EXPECT_FALSE(StagesOfLayers(plan.found.plan, 2, 1).has_value());
}

}  // namespace
}  // namespace meshwright::search
