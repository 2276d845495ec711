#include "web/curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace meshwright::web {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

proto::StepMetrics StepOf(int64_t step, double loss) {
  proto::StepMetrics metrics;
  metrics.step = step;
  metrics.loss = loss;
  metrics.tokens = 10;
  metrics.seconds = 0.5;
  metrics.validation_loss = kNone;
  return metrics;
}

TEST(Curve, KeepsEveryStepWhileThereAreFew) {
  Curve curve(4);
  for (int i = 0; i < 4; ++i) curve.Add(StepOf(i, i));
  ASSERT_EQ(curve.points().size(), 4u);
  EXPECT_EQ(curve.points()[3].step, 3);
  EXPECT_EQ(curve.stride(), 1);
}

TEST(Curve, BecomesCoarserInsteadOfLonger) {
  Curve curve(4);
  for (int i = 0; i < 1001; ++i) curve.Add(StepOf(i, i));
  ASSERT_LE(curve.points().size(), 4u);
  int64_t steps = 0;
  double tokens = 0;
  for (const CurvePoint& point : curve.points()) {
    steps += point.steps;
    tokens += point.tokens;
    // The mean of consecutive numbers is that of the first and the last one.
    EXPECT_DOUBLE_EQ(point.loss, (point.least_loss + point.most_loss) / 2);
    EXPECT_EQ(point.most_loss, static_cast<double>(point.step));
  }
  EXPECT_EQ(steps, 1001);
  EXPECT_EQ(tokens, 10010);
  EXPECT_EQ(curve.points().back().step, 1000);
  for (size_t i = 0; i + 1 < curve.points().size(); ++i) {
    EXPECT_EQ(curve.points()[i].steps, curve.stride());
  }
}

TEST(Curve, NumbersThatAreNoneDoNotSpoilThoseThatAre) {
  Curve curve(2);
  curve.Add(StepOf(0, 4));
  curve.Add(StepOf(1, kNone));
  proto::StepMetrics validated = StepOf(2, 2);
  validated.validation_loss = 3;
  curve.Add(validated);
  ASSERT_EQ(curve.points().size(), 2u);
  EXPECT_EQ(curve.points()[0].loss, 4);
  EXPECT_TRUE(std::isnan(curve.points()[0].validation_loss));
  EXPECT_EQ(curve.points()[1].validation_loss, 3);
}

TEST(Curve, CoarseHasAtMostSoManyPointsAndAllSteps) {
  Curve curve;
  for (int i = 0; i < 100; ++i) curve.Add(StepOf(i, i));
  for (const size_t most : {1u, 7u, 99u, 100u, 200u}) {
    const auto points = curve.Coarse(most);
    EXPECT_LE(points.size(), most);
    int64_t steps = 0;
    for (const CurvePoint& point : points) steps += point.steps;
    EXPECT_EQ(steps, 100) << most;
    EXPECT_EQ(points.back().step, 99);
  }
}

}  // namespace
}  // namespace meshwright::web
