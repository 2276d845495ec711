#include "report/plan_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/report/planned_job.h"

namespace meshwright::report {
namespace {

using ::testing::HasSubstr;

NamedPlan Plan(const std::string& name, const std::vector<std::string>& overrides) {
  NamedPlan plan;
  plan.name = name;
  auto config = SmallConfig(overrides);
  auto planned = PlanSmallJob(overrides, mesh::Topology::Local(4, 1));
  EXPECT_TRUE(config.has_value() && planned.has_value());
  if (config) plan.config = *std::move(config);
  if (planned) plan.planned = *std::move(planned);
  return plan;
}

std::vector<std::string> Pins(int data, int tensor, int pipeline) {
  return {"parallelism.data_parallel_replicate_degree=" + std::to_string(data),
          "parallelism.tensor_parallel_degree=" + std::to_string(tensor),
          "parallelism.pipeline_parallel_degree=" + std::to_string(pipeline),
          "parallelism.pipeline_parallel_schedule=1f1b", "parallelism.zero_stage=0"};
}

std::vector<std::string> NamesOf(const std::vector<DiffRow>& rows) {
  std::vector<std::string> names;
  for (const DiffRow& row : rows) names.push_back(row.what);
  return names;
}

TEST(PlanDiff, ShowsKeysStagesAndParamsThatDiffer) {
  const NamedPlan a = Plan("a", Pins(4, 1, 1));
  const NamedPlan b = Plan("b", Pins(1, 2, 2));
  const PlanDiff diff = DiffPlans(a, b);
  const std::vector<std::string> keys = NamesOf(diff.keys);
  EXPECT_THAT(keys, ::testing::IsSupersetOf({"parallelism.data_parallel_replicate_degree",
                                             "parallelism.tensor_parallel_degree",
                                             "parallelism.pipeline_parallel_layers"}));
  EXPECT_THAT(keys, ::testing::Not(::testing::Contains("parallelism.zero_stage")));
  ASSERT_EQ(diff.stages.size(), 2u);
  EXPECT_EQ(diff.stages[0].before, "layers 0-3 on 4 devices data=4 tensor=1");
  EXPECT_EQ(diff.stages[0].after, "layers 0-1 on 2 devices data=1 tensor=2");
  EXPECT_EQ(diff.stages[1].before, "-");
  ASSERT_FALSE(diff.params.empty());
  EXPECT_THAT(diff.params[0].after, HasSubstr("{tensor}"));
  EXPECT_EQ(diff.figures[0].name, "step_s");
  EXPECT_EQ(diff.figures[0].before, a.planned.forecast.step_s);
  EXPECT_EQ(diff.figures[0].after, b.planned.forecast.step_s);
  const std::string text = FormatPlanDiff(a, b, diff, 1);
  EXPECT_THAT(text, HasSubstr("A  a: data=4 tensor=1 pipeline=1"));
  EXPECT_THAT(text, HasSubstr("over_tensor_bytes"));
  EXPECT_THAT(text, HasSubstr("new"));
  EXPECT_THAT(text, HasSubstr("and " + std::to_string(diff.params.size() - 1) + " more"));
}

TEST(PlanDiff, OfOnePlanIsEmpty) {
  const NamedPlan a = Plan("a", Pins(2, 2, 1));
  const PlanDiff diff = DiffPlans(a, a);
  EXPECT_TRUE(diff.keys.empty());
  EXPECT_TRUE(diff.stages.empty());
  EXPECT_TRUE(diff.params.empty());
  const std::string text = FormatPlanDiff(a, a, diff);
  EXPECT_THAT(text, HasSubstr("(no keys differ)"));
  EXPECT_THAT(text, HasSubstr("(params are split alike)"));
}

TEST(PlanDiff, ComparesWhatWasDecidedAndNotWhatWasPinned) {
  const NamedPlan open = Plan("open", {});
  const planner::Layout& layout = open.planned.plan().layout;
  NamedPlan pinned = open;
  pinned.config.parallel.tensor = layout.tensor();
  EXPECT_TRUE(DiffPlans(open, pinned).keys.empty());
}

TEST(PlanDiff, JsonHasAllRows) {
  const NamedPlan a = Plan("a", Pins(4, 1, 1));
  const NamedPlan b = Plan("b", Pins(1, 4, 1));
  const PlanDiff diff = DiffPlans(a, b);
  const auto object = nlohmann::json::parse(PlanDiffJson(a, b, diff));
  EXPECT_EQ(object["a"]["file"], "a");
  EXPECT_EQ(object["params"].size(), diff.params.size());
  EXPECT_EQ(object["forecast"]["step_s"]["b"], b.planned.forecast.step_s);
}

}  // namespace
}  // namespace meshwright::report
