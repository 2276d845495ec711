// Why each axis is used or not, in text and in JSON.
#include "report/plan_axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/still_clock.h"
#include "tests/unit/report/planned_job.h"

namespace meshwright::report {
namespace {

using report::AxisDecision;
using report::AxisReason;
using ::testing::HasSubstr;

AxisReason Tried(double other_s, double more_s) {
  AxisReason reason;
  reason.axis = "tensor";
  reason.degree = "1";
  reason.key = "parallelism.tensor_parallel_degree";
  reason.other = "2";
  reason.other_s = other_s;
  reason.more_s = more_s;
  reason.where = "collectives";
  reason.where_s = 0.003;
  return reason;
}

TEST(PlanAxes, SayWhatAnotherDegreeWouldTakeAndOfWhat) {
  EXPECT_EQ(WhyOf(Tried(0.012, 0.002)), "2 would take 2 ms more (12 ms): 3 ms more in collectives");
  EXPECT_EQ(WhyOf(Tried(0.010, 0.00001)), "2 would be as fast (10 ms)");
}

TEST(PlanAxes, SayWhatWasNotTriedAndWhatIsRefused) {
  AxisReason reason = Tried(0, 0);
  reason.refused = "the model has no experts";
  EXPECT_EQ(WhyOf(reason), "2: refused: the model has no experts");
  reason.decision = AxisDecision::kPinned;
  EXPECT_EQ(WhyOf(reason),
            "not tried otherwise: pinned by the job (parallelism.tensor_parallel_degree)");
}

TEST(PlanAxes, OfAPlanHaveALineEachInBothForms) {
  const mesh::Topology topology = mesh::Topology::Local(2);
  const auto planned = PlanSmallJob({"parallelism.zero_stage=0"}, topology);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  const std::string text = ExplainPlanAxes(*planned, topology, false, 1'000, kStill);
  const auto object =
      nlohmann::json::parse(ExplainPlanAxes(*planned, topology, true, 1'000, kStill));
  ASSERT_EQ(object["axes"].size(), 7u);
  EXPECT_EQ(object["step_s"], planned->forecast.step_s);
  EXPECT_EQ(object["deciders"]["equal stages"], 1);
  EXPECT_THAT(text, HasSubstr("\ndecided by equal stages 1"));
  for (const auto& axis : object["axes"]) {
    EXPECT_THAT(text, HasSubstr("\n" + axis["axis"].get<std::string>()));
    EXPECT_THAT(text, HasSubstr(axis["why"].get<std::string>()));
    EXPECT_FALSE(axis["why"].get<std::string>().empty()) << axis.dump();
  }
}

}  // namespace
}  // namespace meshwright::report
