#include "planner/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace meshwright::planner {
namespace {

double SlowestPart(const std::vector<std::vector<double>>& sums, const std::vector<int>& parts) {
  double slowest_s = 0;
  for (size_t part = 0; part < sums.size(); ++part) {
    const auto [begin, end] = std::equal_range(parts.begin(), parts.end(), static_cast<int>(part));
    EXPECT_NE(begin, end) << "part " << part << " is empty";
    slowest_s = std::max(slowest_s, sums[part][static_cast<size_t>(end - parts.begin())] -
                                        sums[part][static_cast<size_t>(begin - parts.begin())]);
  }
  return slowest_s;
}

// Over every way to cut [begin, n) for the parts from `part` on.
double LeastSlowest(const std::vector<std::vector<double>>& sums, size_t part, size_t begin) {
  const size_t layers = sums[0].size() - 1;
  const std::vector<double>& sum = sums[part];
  if (part + 1 == sums.size()) return sum[layers] - sum[begin];
  double least_s = std::numeric_limits<double>::infinity();
  for (size_t end = begin + 1; end + (sums.size() - 1 - part) <= layers; ++end) {
    least_s = std::min(least_s, std::max(sum[end] - sum[begin], LeastSlowest(sums, part + 1, end)));
  }
  return least_s;
}

TEST(BalanceParts, NoCutIsBetter) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 400; ++round) {
    const size_t layers = 1 + random() % 9;
    const size_t parts = 1 + random() % layers;
    std::vector<double> seconds;
    for (size_t i = 0; i < layers; ++i) seconds.push_back(static_cast<double>(random() % 6));
    std::vector<std::vector<double>> sums;
    for (size_t part = 0; part < parts; ++part) {
      const double speed = round % 2 == 0 ? 1 : static_cast<double>(1 + random() % 3);
      sums.push_back({0});
      for (const double s : seconds) sums.back().push_back(sums.back().back() + s / speed);
    }
    const std::vector<std::span<const double>> spans(sums.begin(), sums.end());
    const std::vector<int> part_of_layer = BalanceParts(spans);
    ASSERT_TRUE(std::is_sorted(part_of_layer.begin(), part_of_layer.end()));
    ASSERT_DOUBLE_EQ(SlowestPart(sums, part_of_layer), LeastSlowest(sums, 0, 0)) << round;
  }
}

}  // namespace
}  // namespace meshwright::planner
