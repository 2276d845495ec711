#include "controller/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace meshwright::controller {
namespace {

using ::testing::ElementsAre;

PlannedJob PlacedPlan(size_t devices, std::vector<int> placement) {
  PlannedJob plan;
  plan.devices.resize(devices);
  plan.placement = std::move(placement);
  return plan;
}

// As many steps as one likes, after an init.
class Endless final : public Driver {
 public:
  std::optional<PlannedLaunch> Next() override {
    return PlannedLaunch{next_ < 0 ? ir::kInitProgram : ir::kStepProgram,
                         std::exchange(next_, next_ + 1), 1};
  }
  bool done() const override { return false; }
  DriverNews On(const PlannedLaunch&, const std::vector<proto::StepReport>&) override {
    DriverNews news;
    news.steps_done = 1;
    return news;
  }

 private:
  int64_t next_ = -1;
};

TEST(Run, TakesTheDevicesOfThePlanByRankAndGivesTheRestBack) {
  controller::Run run(1, {{"a", 0}, {"a", 1}, {"b", 0}});
  EXPECT_THAT(run.TakeRanks(PlacedPlan(2, {2, 0})), ElementsAre(RankPlace{"a", 1}));
  EXPECT_THAT(run.ranks(), ElementsAre(RankPlace{"b", 0}, RankPlace{"a", 0}));
  EXPECT_TRUE(run.Uses("b"));
  EXPECT_FALSE(run.Uses("c"));
}

TEST(Run, DriverAndClientsTakeTurnsOnceTheStateIsThere) {
  controller::Run run(1, {{"a", 0}});
  run.Begin(MeshGeneration(5), std::make_unique<Endless>());
  uint64_t asked = 0;
  const auto take = [&](const CallSteps&) {
    return std::optional(
        ClientAsk{SeatId(1), ++asked, proto::CallProgram{"probe", {}, proto::Fetch::kAll, {}}});
  };
  std::vector<std::string> order;
  std::vector<int64_t> steps;
  for (int i = 0; i < 4; ++i) {
    const auto work = run.NextWork(take);
    ASSERT_TRUE(work.has_value());
    order.push_back(work->launch.program);
    if (work->client) steps.push_back(work->launch.first_step);
  }
  EXPECT_THAT(order, ElementsAre("init", "probe", "step", "probe"));
  EXPECT_THAT(steps, ElementsAre(0, 1)) << "calls of a program are counted";
  EXPECT_FALSE(run.OnLaunched({PlannedLaunch{"probe", 0, 1}, AskId{SeatId(1), 1}, {}, {}}))
      << "no driver hears of what clients call";
  EXPECT_TRUE(run.OnLaunched({PlannedLaunch{"step", 0, 1}, std::nullopt, {}, {}}).has_value());
}

}  // namespace
}  // namespace meshwright::controller
