// Clusters of layers against all splits.
#include "search/layer_clusters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

namespace meshwright::search {
namespace {

// What a split is judged by, the most important first.
struct Judged {
  double cost_max = 0;
  int64_t bytes_max = 0;
  int64_t bytes_sum = 0;
  int clusters = 0;
};

// Bit i of `cuts`: layer i + 1 begins a cluster.
Judged Judge(const LayerChain& layers, unsigned cuts) {
  Judged judged{0, 0, 0, 1};
  double cost = 0;
  for (size_t i = 0; i < layers.cost.size(); ++i) {
    if (i > 0 && (cuts >> (i - 1) & 1U) != 0) {
      cost = 0;
      judged.bytes_max = std::max(judged.bytes_max, layers.boundary_bytes[i - 1]);
      judged.bytes_sum += layers.boundary_bytes[i - 1];
      ++judged.clusters;
    }
    cost += layers.cost[i];
    judged.cost_max = std::max(judged.cost_max, cost);
  }
  return judged;
}

// The whole range from the first case on.
int Below(int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); }

LayerChain Arbitrary(int most) {
  LayerChain layers;
  const int count = 1 + Below(most);
  for (int i = 0; i < count; ++i) {
    layers.cost.push_back(Below(8));
    if (i > 0) layers.boundary_bytes.push_back(Below(6));
  }
  return layers;
}

RC_GTEST_PROP(LayerClustersProperty, NoSplitIsBetter, ()) {
  const LayerChain layers = Arbitrary(9);
  const int count = 1 + Below(9);
  const double tolerance = Below(4) * 0.25;
  const auto clusters = ClusterLayers(layers, count, tolerance);
  RC_ASSERT(clusters.has_value());

  const unsigned splits = 1U << (layers.cost.size() - 1);
  double total = 0, least_max = std::numeric_limits<double>::infinity();
  for (double cost : layers.cost) total += cost;
  for (unsigned cuts = 0; cuts < splits; ++cuts) {
    const Judged judged = Judge(layers, cuts);
    if (judged.clusters <= count) least_max = std::min(least_max, judged.cost_max);
  }
  const double limit = std::max((1 + tolerance) * total / count, least_max);
  std::tuple best{std::numeric_limits<int64_t>::max(), int64_t{0}, 0};
  for (unsigned cuts = 0; cuts < splits; ++cuts) {
    const Judged judged = Judge(layers, cuts);
    if (judged.clusters > count || judged.cost_max > limit * (1 + 1e-9)) continue;
    best = std::min(best, std::tuple(judged.bytes_max, judged.bytes_sum, judged.clusters));
  }

  unsigned cuts = 0;
  for (int begin : clusters->begins) cuts |= begin == 0 ? 0 : 1U << (begin - 1);
  const Judged found = Judge(layers, cuts);
  RC_ASSERT(clusters->begins.front() == 0);
  RC_ASSERT(std::tuple(found.bytes_max, found.bytes_sum, found.clusters) == best);
  RC_ASSERT(found.cost_max <= limit * (1 + 1e-9));
  RC_ASSERT(clusters->crossing_bytes_max == found.bytes_max);
  RC_ASSERT(clusters->crossing_bytes_sum == found.bytes_sum);
  RC_ASSERT(clusters->cluster_cost_max == found.cost_max);
}

TEST(LayerClusters, CutsBetweenBlocksAndNotInsideThem) {
  // Blocks of attention and MLP: much crosses inside of one, little between two.
  LayerChain layers;
  for (int i = 0; i < 12; ++i) {
    layers.cost.push_back(i % 2 == 0 ? 1 : 2);
    if (i > 0) layers.boundary_bytes.push_back(i % 2 == 0 ? 10 : 40);
  }
  const auto clusters = ClusterLayers(layers, 6, 0.1);
  ASSERT_TRUE(clusters.has_value());
  EXPECT_THAT(clusters->begins, testing::ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_EQ(clusters->crossing_bytes_max, 10);
}

TEST(LayerClusters, OneHugeLayerRelaxesTheLimit) {
  const auto clusters = ClusterLayers({{1, 1, 20, 1}, {1, 1, 1}}, 4, 0);
  ASSERT_TRUE(clusters.has_value());
  EXPECT_EQ(clusters->cluster_cost_allowed, 20);
  EXPECT_EQ(clusters->cluster_cost_max, 20);
}

TEST(LayerClusters, NamesWhatIsWrong) {
  const auto message = [](const LayerChain& layers, int count) {
    return ClusterLayers(layers, count).error().message();
  };
  EXPECT_THAT(message({}, 1), testing::HasSubstr("without layers"));
  EXPECT_THAT(message({{1, 1}, {}}, 1), testing::HasSubstr("2 layers have 0 boundaries"));
  EXPECT_THAT(message({{1, -1}, {1}}, 1), testing::HasSubstr("layer 1 costs -1"));
  EXPECT_THAT(message({{1, 1}, {-5}}, 1), testing::HasSubstr("-5 bytes cross into layer 1"));
  EXPECT_THAT(message({{1}, {}}, 0), testing::HasSubstr("at least 1 cluster"));
}

}  // namespace
}  // namespace meshwright::search
