#include "report/plan_search_report.h"
#include "tests/fake_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace meshwright::report {
namespace {

search::LayoutCost Cost(double step_s, int64_t tensor, int64_t bytes) {
  search::LayoutCost cost;
  cost.step_s = step_s;
  cost.layout.degrees[planner::Axis::kTensor] = tensor;
  cost.stages.resize(2);
  cost.stages[0].kept_bytes = bytes / 2;
  cost.stages[1].state_bytes = bytes;
  return cost;
}

TEST(FormatSearch, ShowsAlternativesWithRatioAndTheGap) {
  search::FoundLayout found;
  found.best = {Cost(0.1, 1, 1 << 30), Cost(0.25, 2, 1 << 20)};
  found.priced = 1234;
  found.candidates = 56;
  PlanFigures plan;
  plan.step_s = 0.12;
  plan.memory_bytes = 3 << 20;
  plan.layout = found.best[0].layout.ToString();
  EXPECT_EQ(FormatSearch(found, plan),
            "STEP    RATIO   MEMORY    LAYOUT (estimates, but for the plan)\n"
            "120 ms  x1.000  3.00 MiB  data=1 tensor=1 pipeline=1 microbatches=1 schedule=1f1b\n"
            "300 ms  x2.500  1.00 MiB  data=1 tensor=2 pipeline=1 microbatches=1 schedule=1f1b\n"
            "1,234 layouts priced, 56 families of degrees and microbatches; gap 0: none of them is "
            "faster\n");
  found.gap = 0.034;
  EXPECT_NE(FormatSearch(found, plan).find("gap 3.4 %"), std::string::npos);
  for (int i = 0; i < 3; ++i) found.deciders.Add(search::Decider::kMessages);
  found.deciders.Add(search::Decider::kEqualStages);
  EXPECT_THAT(FormatSearch(found, plan),
              testing::EndsWith("\ndecided by equal stages 1, messages 3\n"));
}

TEST(FormatSearch, HasAtMostFiveLinesOfAlternativesAndNoneWithoutASearch) {
  EXPECT_EQ(FormatSearch({}, {}), "");
  search::FoundLayout found;
  found.best.assign(20, Cost(1, 1, 1));
  const std::string text = FormatSearch(found, {});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7);
}

TEST(SearchProgress, ShowsOneLineAfterASecondAndClearsIt) {
  FakeClock clock;
  std::vector<std::string> written;
  {
    SearchProgress progress(clock, [&](const std::string& text) { written.push_back(text); });
    clock.AdvanceMs(900);
    progress.Show({0.5, 0.25, 10, 100});
    EXPECT_TRUE(written.empty());
    clock.AdvanceMs(200);
    progress.Show({0.5, 0.25, 20, 100});
    clock.AdvanceMs(50);
    progress.Show({0.5, 0.2, 30, 100});
  }
  ASSERT_EQ(written.size(), 2u);
  EXPECT_EQ(written[0], "\r\x1b[Ksearch: best step 500 ms, gap 25.0 %, 20 layouts priced");
  EXPECT_EQ(written[1], "\r\x1b[K");
}

TEST(SearchProgress, AShortSearchWritesNothing) {
  FakeClock clock;
  bool wrote = false;
  {
    SearchProgress progress(clock, [&](const std::string&) { wrote = true; });
    progress.Show({0.5, 0.25, 10, 100});
  }
  EXPECT_FALSE(wrote);
}

}  // namespace
}  // namespace meshwright::report
