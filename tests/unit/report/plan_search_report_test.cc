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

// A forecast is no estimate: the factor between the two of the plan is not for it.
TEST(FormatSearch, LeavesForecastsAsTheyAre) {
  search::FoundLayout found;
  found.best = {Cost(0.1, 1, 1 << 20), Cost(0.11, 2, 1 << 20), Cost(0.2, 4, 1 << 20)};
  found.best[1].layout.tensor_axes = {2, 1};
  found.best[1].is_forecast = true;
  PlanFigures plan;
  plan.step_s = 0.08;
  plan.layout = found.best[0].layout.ToString();
  const std::string text = FormatSearch(found, plan);
  EXPECT_THAT(text, testing::ContainsRegex("80 ms +x1.000"));
  EXPECT_THAT(text, testing::ContainsRegex("110 ms +x1.375 .*tensor=2 .* \\(forecast\\)\n"));
  EXPECT_THAT(text, testing::ContainsRegex("160 ms +x2.000"));
  // A plan that is one of them, too: what it was estimated to take is not known.
  found.best[0].is_forecast = true;
  EXPECT_THAT(FormatSearch(found, plan), testing::ContainsRegex("200 ms +x2.500"));
  found.best[2].is_forecast = true;
  const std::string all = FormatSearch(found, plan);
  EXPECT_THAT(all, testing::HasSubstr("LAYOUT (forecasts)\n"));
  EXPECT_THAT(all, testing::Not(testing::HasSubstr("(forecast)")));
}

search::MicrobatchPrice Price(int64_t microbatches, double step_s, double least_s,
                              int64_t missing_bytes) {
  search::MicrobatchPrice price;
  price.microbatches = microbatches;
  price.step_s = step_s;
  price.least_s = least_s;
  price.missing_bytes = missing_bytes;
  return price;
}

TEST(MicrobatchesLine, SaysWhatTheNextNumbersWouldCost) {
  ir::JobRequest job;
  job.programs.resize(1);
  job.programs[0].trained = true;
  search::FoundLayout found;
  planner::Layout layout;
  layout.microbatches = 4;
  EXPECT_EQ(MicrobatchesLine(found, layout, job),
            "microbatches 4: by rule, one where there are no stages\n");
  found.best = {Cost(0.1, 1, 1)};
  found.microbatches = {Price(1, 0, 0, 5), Price(2, 0.103, 0, 0), Price(4, 0.1, 0, 0),
                        Price(8, 0, 0, 1 << 20)};
  EXPECT_EQ(MicrobatchesLine(found, layout, job),
            "microbatches 4: with these degrees 2 is estimated 3.0 % slower, 8 does not fit (by "
            "1.00 MiB a device)\n");
  found.microbatches = {Price(2, 0, 0.15, 0), Price(4, 0.1, 0, 0), Price(8, 0, 0.1, 0)};
  EXPECT_EQ(MicrobatchesLine(found, layout, job),
            "microbatches 4: with these degrees 2 is at least 50.0 % slower, 8 is not faster\n");
  found.microbatches = {Price(4, 0.1, 0, 0)};
  EXPECT_EQ(MicrobatchesLine(found, layout, job), "") << "nothing else was looked at";
  found.microbatches = {Price(2, 0.2, 0, 0), Price(4, 0.1, 0, 0)};
  job.parallel.microbatches = 4;
  EXPECT_EQ(MicrobatchesLine(found, layout, job), "") << "the job says it";
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
