#include "generation/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace meshwright::generation {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kGone = -std::numeric_limits<double>::infinity();

Sampling Drawing() {
  Sampling sampling;
  sampling.draws = true;
  return sampling;
}

TEST(Sampling, TheLikeliestIsTakenAndOfEqualOnesTheLowest) {
  EXPECT_EQ(*NextToken(std::vector<double>{1, 3, 3, 2}, {}, {}, {}), 1);
}

TEST(Sampling, APenaltyCountsOncePerTokenAndAlsoWhereNothingIsDrawn) {
  Sampling sampling;
  sampling.repetition_penalty = 2;
  const std::vector<int32_t> text = {0, 0, 1};
  EXPECT_THAT(ProcessLogits(std::vector<double>{4, -1, 3}, text, sampling), ElementsAre(2, -2, 3));
  EXPECT_EQ(*NextToken(std::vector<double>{4, -1, 3}, text, sampling, {}), 2);
}

TEST(Sampling, TopKKeepsThoseThatAreAsLikelyAsTheLast) {
  Sampling sampling = Drawing();
  sampling.top_k = 2;
  EXPECT_THAT(ProcessLogits(std::vector<double>{3, 1, 2, 2}, {}, sampling),
              ElementsAre(3, kGone, 2, 2));
}

// Probabilities 0.4, 0.3, 0.2, 0.1.
TEST(Sampling, TopPKeepsTheLikeliestWithThatProbabilityTogether) {
  const std::vector<double> logits = {std::log(0.4), std::log(0.3), std::log(0.2), std::log(0.1)};
  Sampling sampling = Drawing();
  sampling.top_p = 0.65;
  std::vector<double> left = ProcessLogits(logits, {}, sampling);
  EXPECT_THAT(left, ElementsAre(logits[0], logits[1], kGone, kGone));
  sampling.top_p = 0.75;
  left = ProcessLogits(logits, {}, sampling);
  EXPECT_THAT(left, ElementsAre(logits[0], logits[1], logits[2], kGone));
  sampling.top_p = 1e-9;
  left = ProcessLogits(logits, {}, sampling);
  EXPECT_THAT(left, ElementsAre(logits[0], kGone, kGone, kGone));
}

TEST(Sampling, MinPComparesWithTheLikeliestBehindTheTemperature) {
  const std::vector<double> logits = {std::log(0.6), std::log(0.3), std::log(0.1)};
  Sampling sampling = Drawing();
  sampling.min_p = 0.3;
  EXPECT_THAT(ProcessLogits(logits, {}, sampling), ElementsAre(logits[0], logits[1], kGone));
  sampling.temperature = 0.5;  // shares 0.36, 0.09, 0.01 of 0.46
  EXPECT_THAT(ProcessLogits(logits, {}, sampling),
              ElementsAre(DoubleNear(2 * logits[0], 1e-12), kGone, kGone));
}

TEST(Sampling, DrawsHaveTheProbabilitiesThatTheLogitsSay) {
  const std::vector<double> logits = {std::log(0.5), std::log(0.2), kGone, std::log(0.3)};
  std::vector<int> counts(4);
  constexpr int kDraws = 20000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    ++counts[static_cast<size_t>(*NextToken(logits, {}, Drawing(), {7, i % 10, i / 10}))];
  }
  EXPECT_NEAR(counts[0], 0.5 * kDraws, 400);
  EXPECT_NEAR(counts[1], 0.2 * kDraws, 400);
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[3], 0.3 * kDraws, 400);
}

TEST(Sampling, ADrawIsAFunctionOfItsKey) {
  const std::vector<double> logits(1000, 0.0);
  const auto draw = [&](uint64_t seed, uint64_t request, uint64_t position) {
    return *NextToken(logits, {}, Drawing(), {seed, request, position});
  };
  EXPECT_EQ(draw(1, 2, 3), draw(1, 2, 3));
  EXPECT_NE(draw(1, 2, 3), draw(2, 2, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 3, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 2, 4));
}

TEST(Sampling, LogitsThatAreNoNumbersAreAnErrorHoweverTokensAreChosen) {
  Sampling penalised;
  penalised.repetition_penalty = 2;
  const std::vector<int32_t> text = {0};
  for (const std::vector<double>& logits :
       {std::vector<double>{NAN, NAN}, {1, NAN}, {NAN, 1}, {kGone, kGone}, {1, -kGone}, {}}) {
    for (const Sampling& sampling : {Sampling(), penalised, Drawing()}) {
      const auto token = NextToken(logits, text, sampling, {});
      ASSERT_FALSE(token);
      EXPECT_EQ(token.error().message(), "the model's logits are no numbers");
    }
  }
  EXPECT_EQ(*NextToken(std::vector<double>{kGone, 1, kGone}, text, Drawing(), {}), 1);
}

TEST(Sampling, ValuesOutOfRangeAreNamed) {
  const auto refused = [](auto change) {
    Sampling sampling;
    change(sampling);
    return CheckSampling(sampling).message();
  };
  EXPECT_TRUE(CheckSampling({}).ok());
  EXPECT_THAT(refused([](Sampling& s) { s.temperature = -1; }), HasSubstr("temperature is -1"));
  EXPECT_THAT(refused([](Sampling& s) { s.temperature = std::nan(""); }), HasSubstr("temperature"));
  EXPECT_THAT(refused([](Sampling& s) { s.top_k = -3; }), HasSubstr("top_k is -3"));
  EXPECT_THAT(refused([](Sampling& s) { s.top_p = 0; }), HasSubstr("top_p is 0"));
  EXPECT_THAT(refused([](Sampling& s) { s.min_p = 2; }), HasSubstr("min_p is 2"));
  EXPECT_THAT(refused([](Sampling& s) { s.repetition_penalty = 0; }),
              HasSubstr("repetition_penalty is 0"));
}

}  // namespace
}  // namespace meshwright::generation
