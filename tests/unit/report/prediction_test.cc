#include "report/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace meshwright::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Prediction, LossIsThatOfTheTokensBehindAnotherAndTheLikeliestStandFirst) {
  // Rows with the probabilities (1/2, 1/4, 1/4) and (1/8, 1/8, 3/4), from any constant.
  const std::vector<double> logits = {std::log(2.0) + 700, 700, 700, -3, -3,
                                      std::log(6.0) - 3,   999, 999, 999};
  const Prediction said = Predict({0, 1}, logits, 3, 2);
  EXPECT_EQ(said.predicted, 1);
  EXPECT_NEAR(said.loss, std::log(4.0), 1e-12);
  ASSERT_EQ(said.next.size(), 2u);
  EXPECT_EQ(said.next[0].id, 2);
  EXPECT_NEAR(said.next[0].probability, 0.75, 1e-12);
  EXPECT_EQ(said.next[1].id, 0) << "of equal ones the lower";
}

TEST(Prediction, OneTokenHasNoLossAndTopIsAtMostTheVocabulary) {
  const Prediction said = Predict({1}, {0, 0}, 2, 10);
  EXPECT_EQ(said.predicted, 0);
  EXPECT_TRUE(std::isnan(said.loss));
  EXPECT_EQ(said.next.size(), 2u);
}

TEST(Prediction, TokensAreNumbersFromZero) {
  EXPECT_THAT(*ParseTokens("12, 7,0"), ElementsAre(12, 7, 0));
  EXPECT_THAT(ParseTokens("12,x").error().message(), HasSubstr("'x' is no token"));
  EXPECT_FALSE(ParseTokens("-1").has_value());
  EXPECT_FALSE(ParseTokens("").has_value());
  EXPECT_EQ(ByteText('\n') + ByteText('e') + ByteText(255), "\\ne\\xff");
}

}  // namespace
}  // namespace meshwright::report
