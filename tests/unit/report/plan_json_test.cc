#include "report/plan_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/report/planned_job.h"

namespace meshwright::report {
namespace {

using nlohmann::json;

TEST(PlanJson, SaysWhatTheTextSays) {
  const mesh::Topology topology = mesh::Topology::Local(4, 1);
  const auto planned = PlanSmallJob({}, topology);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  const json object = json::parse(PlanJson(*planned, topology));
  EXPECT_TRUE(object["fits"]);
  EXPECT_EQ(object["job"], "small");
  const planner::Layout& layout = planned->plan().layout;
  EXPECT_EQ(object["layout"]["text"], layout.ToString());
  EXPECT_EQ(object["layout"]["tensor"], layout.tensor());
  EXPECT_EQ(object["layout"]["recompute"].size(), 4u);
  EXPECT_EQ(object["forecast"]["step_s"], planned->forecast.step_s);
  EXPECT_EQ(object["forecast"]["mfu"], planned->forecast.model_flops_utilization);
  EXPECT_EQ(object["forecast"]["waiting_of_work"], planned->forecast.idle_of_busy);
  ASSERT_EQ(object["memory"].size(), planned->plan().memory.size());
  EXPECT_EQ(object["memory"][0]["allocated_bytes"], planned->plan().memory[0].total_bytes);
  EXPECT_TRUE(object["memory"][0]["kinds_bytes"].contains("weights"));
  EXPECT_TRUE(object["memory"][0]["budget_bytes"].is_null());
  const json& fullest = object["memory"][object["fullest_device"].get<size_t>()];
  for (const json& memory : object["memory"]) {
    EXPECT_GE(fullest["allocated_bytes"], memory["allocated_bytes"]);
  }
  EXPECT_EQ(object["params"].size(), planned->plan().params.size());
  ASSERT_FALSE(object["search"]["alternatives"].empty());
  EXPECT_EQ(object["search"]["alternatives"][0]["layout"], layout.ToString());
  EXPECT_EQ(object["search"]["gap"], 0.0);
  EXPECT_FALSE(object["search"]["deciders"].empty());
  EXPECT_EQ(object["search"]["lower_bound_s"], object["search"]["alternatives"][0]["step_s"]);
  EXPECT_FALSE(object.contains("what_if"));
}

TEST(PlanJson, TrafficHasWhatIsReceivedOverEveryAxisAndLink) {
  const mesh::Topology topology = mesh::Topology::Local(2, 1);
  const auto planned = PlanSmallJob({"parallelism.tensor_parallel_degree=2"}, topology);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  const json traffic = json::parse(PlanJson(*planned, topology))["forecast"]["traffic"];
  EXPECT_GT(traffic["by_axes"]["tensor"]["bytes"], 0);
  EXPECT_GT(traffic["by_axes"]["tensor"]["device_s"], 0);
  EXPECT_GT(traffic["by_link"]["host"]["bytes"], 0);
}

TEST(PlanJson, WhatIfStandsBesideThePlan) {
  const mesh::Topology topology = mesh::Topology::Local(1, 1);
  const auto planned = PlanSmallJob({}, topology);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  const NamedFigures what_if{"a.b=1", {0.25, 7, 0.5, "data=9"}, {"padded"}};
  const json object = json::parse(PlanJson(*planned, topology, what_if));
  EXPECT_EQ(object["what_if"], json({{"change", "a.b=1"},
                                     {"layout", "data=9"},
                                     {"step_s", 0.25},
                                     {"mfu", 0.5},
                                     {"memory_bytes", 7},
                                     {"notes", {"padded"}}}));
}

TEST(MisfitJson, SaysWhyAndWhatWouldDo) {
  const json object = json::parse(MisfitJson("small", ResourceExhausted("too \"big\""),
                                             {{{"set a = 1", 0.5, "data=1"}}, "no disk"}));
  EXPECT_FALSE(object["fits"]);
  EXPECT_EQ(object["reason"], "too \"big\"");
  EXPECT_EQ(object["changes"][0]["change"], "set a = 1");
  EXPECT_EQ(object["changes"][0]["step_s"], 0.5);
  EXPECT_EQ(object["why_no_tier"], "no disk");
}

}  // namespace
}  // namespace meshwright::report
