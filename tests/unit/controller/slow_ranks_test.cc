#include "controller/slow_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/unit/controller/step_noise.h"

namespace meshwright::controller {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using News = std::vector<SlowRanks::News>;

// Ranks whose steps have the recorded noise, each step and rank by its own draw.
struct NoisyRanks {
  explicit NoisyRanks(std::vector<int> stages, uint64_t seed)
      : factors(stages.size(), 1.0), slow(std::move(stages)), random(seed) {}

  News Step() {
    std::vector<proto::RankSeconds> busy;
    for (size_t rank = 0; rank < factors.size(); ++rank) {
      busy.push_back({static_cast<int32_t>(rank), 0.02 * factors[rank] * Draw()});
    }
    return slow.OnStep(busy);
  }
  // The first news within so many steps, and after how many.
  std::pair<News, int> Run(int steps) {
    for (int step = 1; step <= steps; ++step) {
      if (News news = Step(); !news.empty()) return {std::move(news), step};
    }
    return {{}, steps};
  }
  double Draw() {
    const double noise = kStepNoise[random() % std::size(kStepNoise)];
    return spread == 0 ? noise : noise * std::exp(spread * normal(random));
  }

  std::vector<double> factors;  // by rank
  double spread = 0;            // besides what was recorded
  std::normal_distribution<double> normal;
  SlowRanks slow;
  std::mt19937_64 random;
};

TEST(SlowRanks, HalfSpeedIsNamedWithinFiftySteps) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const size_t ranks : {2u, 3u, 8u}) {
      NoisyRanks mesh(std::vector<int>(ranks, 0), seed);
      ASSERT_THAT(mesh.Run(200).first, IsEmpty());
      mesh.factors[1] = 2;
      const auto [news, steps] = mesh.Run(50);
      ASSERT_THAT(news, SizeIs(1)) << "seed " << seed << ", " << ranks << " ranks";
      EXPECT_EQ(news[0].rank, 1);
      EXPECT_TRUE(news[0].slow);
    }
  }
}

TEST(SlowRanks, ATenthLateIsNamedAndTakenBackWhenItIsOver) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    NoisyRanks mesh({0, 0, 0, 0}, seed);
    mesh.factors[2] = 1.1;
    const auto [news, steps] = mesh.Run(6'000);
    ASSERT_THAT(news, SizeIs(1)) << "seed " << seed;
    EXPECT_EQ(news[0].rank, 2);
    EXPECT_NEAR(news[0].ratio, 1.1, 0.03);
    EXPECT_THAT(mesh.slow.slow(), SizeIs(1));
    mesh.factors[2] = 1;
    const auto [over, later] = mesh.Run(6'000);
    ASSERT_THAT(over, SizeIs(1)) << "seed " << seed;
    EXPECT_FALSE(over[0].slow);
    EXPECT_THAT(mesh.slow.slow(), IsEmpty());
  }
}

TEST(SlowRanks, AHundredThousandCleanStepsNameNobody) {
  NoisyRanks mesh({0, 0, 0, 0}, 7);
  EXPECT_THAT(mesh.Run(100'000).first, IsEmpty());
  NoisyRanks pair({0, 0}, 8);
  EXPECT_THAT(pair.Run(100'000).first, IsEmpty());
}

// Whose steps spread by a tenth more needs more steps, and names nobody that is clean either.
TEST(SlowRanks, ANoisierMachineTakesLonger) {
  NoisyRanks mesh({0, 0, 0, 0}, 9);
  mesh.spread = 0.1;
  ASSERT_THAT(mesh.Run(20'000).first, IsEmpty());
  mesh.factors[3] = 1.1;
  const auto [news, steps] = mesh.Run(6'000);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].rank, 3);
  EXPECT_GT(steps, 100);
}

// Stages do different work.
TEST(SlowRanks, PeersAreThoseOfTheStage) {
  NoisyRanks mesh({0, 0, 0, 1, 1, 1}, 3);
  mesh.factors = {1, 1, 1, 3, 3, 3};
  EXPECT_THAT(mesh.Run(2'000).first, IsEmpty());
  mesh.factors[4] = 6;
  const News news = mesh.Run(50).first;
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].rank, 4);
}

TEST(SlowRanks, ARankWithoutPeersIsComparedWithHowItBegan) {
  NoisyRanks mesh({0, 1}, 4);
  mesh.factors = {1, 3};
  ASSERT_THAT(mesh.Run(2'000).first, IsEmpty());
  mesh.factors[0] = 2;
  const News news = mesh.Run(50).first;
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].rank, 0);
}

// A machine that is busy with something else is no rank's fault.
TEST(SlowRanks, WhatSlowsAllThatAreAloneNamesNobody) {
  NoisyRanks mesh({0, 1}, 4);
  mesh.factors = {1, 3};
  ASSERT_THAT(mesh.Run(500).first, IsEmpty());
  mesh.factors = {2, 6};
  EXPECT_THAT(mesh.Run(2'000).first, IsEmpty());
  mesh.factors = {2, 18};
  const News news = mesh.Run(50).first;
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].rank, 1);
  EXPECT_FALSE(mesh.slow.HasPeers(1));

  NoisyRanks alone({0}, 4);
  ASSERT_THAT(alone.Run(500).first, IsEmpty());
  alone.factors[0] = 10;
  EXPECT_THAT(alone.Run(2'000).first, IsEmpty()) << "there is nobody to be slower than";
}

TEST(SlowRanks, AFewStepsOfAnyLengthAreNoNews) {
  NoisyRanks mesh({0, 0}, 5);
  ASSERT_THAT(mesh.Run(100).first, IsEmpty());
  mesh.factors[0] = 50;
  EXPECT_THAT(mesh.Run(10).first, IsEmpty());
  mesh.factors[0] = 1;
  EXPECT_THAT(mesh.Run(200).first, IsEmpty());
}

TEST(SlowRanks, WhatIsNotKnownIsLeftOut) {
  SlowRanks slow({0, 0});
  for (int step = 0; step < 100; ++step) {
    EXPECT_THAT(slow.OnStep({}), IsEmpty());
    EXPECT_THAT(slow.OnStep({{0, 0.1}, {5, 1}, {-1, 1}, {1, 0}}), IsEmpty());
  }
  EXPECT_THAT(SlowRanks().OnStep({{0, 1}}), IsEmpty());
}

}  // namespace
}  // namespace meshwright::controller
