#include "search/layer_clusters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace meshwright::search {
namespace {

constexpr double kCostRounding = 1e-9;  // prefix sums of equal costs differ by less than this

// Sums over ranges of layers, and which layers a cut may precede.
class ChainSplits {
 public:
  ChainSplits(const LayerChain& layers, int count)
      : layers_(layers), count_(count), prefix_(layers.cost.size() + 1) {
    for (size_t i = 0; i < layers.cost.size(); ++i) prefix_[i + 1] = prefix_[i] + layers.cost[i];
  }

  size_t layer_count() const { return layers_.cost.size(); }
  double total() const { return prefix_.back(); }
  double cost(size_t first, size_t end) const { return prefix_[end] - prefix_[first]; }
  int64_t bytes(size_t cut) const { return cut == 0 ? 0 : layers_.boundary_bytes[cut - 1]; }

  bool Within(size_t first, size_t end, double limit) const {
    return cost(first, end) <= limit + kCostRounding * total();
  }

  // Whether `count` clusters within `limit` exist that are cut where at most `bytes_max` cross. The
  // longest cluster that may end somewhere is never worse than a shorter one.
  bool Feasible(double limit, int64_t bytes_max) const {
    size_t first = 0;
    for (int used = 0; used < count_; ++used) {
      size_t farthest = first;
      for (size_t end = first + 1; end <= layer_count() && Within(first, end, limit); ++end) {
        if (end == layer_count() || bytes(end) <= bytes_max) farthest = end;
      }
      if (farthest == layer_count()) return true;
      if (farthest == first) return false;
      first = farthest;
    }
    return false;
  }

  // The least limit that some split keeps, at least `wanted`.
  double Limit(double wanted) const {
    constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
    if (Feasible(wanted, kAny)) return wanted;
    std::vector<double> candidates;
    for (size_t first = 0; first < layer_count(); ++first) {
      for (size_t end = first + 1; end <= layer_count(); ++end) {
        if (cost(first, end) > wanted) candidates.push_back(cost(first, end));
      }
    }
    std::sort(candidates.begin(), candidates.end());
    return *std::partition_point(candidates.begin(), candidates.end(),
                                 [&](double limit) { return !Feasible(limit, kAny); });
  }

  int64_t BytesMax(double limit) const {
    std::vector<int64_t> candidates = layers_.boundary_bytes;
    candidates.push_back(0);
    std::sort(candidates.begin(), candidates.end());
    return *std::partition_point(candidates.begin(), candidates.end(),
                                 [&](int64_t bytes) { return !Feasible(limit, bytes); });
  }

 private:
  const LayerChain& layers_;
  int count_;
  std::vector<double> prefix_;
};

// Least sum of bytes with at most `count` clusters; `from[c][i]`: where the last of c clusters that
// cover layers [0, i) begins.
std::vector<int> LeastSum(const ChainSplits& splits, int count, double limit, int64_t bytes_max) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const size_t n = splits.layer_count();
  const auto rows = std::min(static_cast<size_t>(count), n) + 1;
  std::vector<std::vector<int64_t>> sum(rows, std::vector<int64_t>(n + 1, kNone));
  std::vector<std::vector<size_t>> from(rows, std::vector<size_t>(n + 1));
  sum[0][0] = 0;
  for (size_t c = 1; c < rows; ++c) {
    for (size_t end = 1; end <= n; ++end) {
      for (size_t first = end; first-- > 0 && splits.Within(first, end, limit);) {
        if (sum[c - 1][first] == kNone || splits.bytes(first) > bytes_max) continue;
        const int64_t bytes = sum[c - 1][first] + splits.bytes(first);
        if (bytes >= sum[c][end]) continue;
        sum[c][end] = bytes;
        from[c][end] = first;
      }
    }
  }
  size_t best = 1;
  for (size_t c = 2; c < rows; ++c) {
    if (sum[c][n] < sum[best][n]) best = c;
  }
  std::vector<int> begins;
  for (size_t end = n; best > 0; --best) {
    end = from[best][end];
    begins.insert(begins.begin(), static_cast<int>(end));
  }
  return begins;
}

Status CheckChain(const LayerChain& layers, int count, double tolerance) {
  if (layers.cost.empty()) return InvalidArgument("a chain without layers cannot be clustered");
  if (layers.boundary_bytes.size() + 1 != layers.cost.size()) {
    return InvalidArgument(fmt::format("{} layers have {} boundaries; give one between each two",
                                       layers.cost.size(), layers.boundary_bytes.size()));
  }
  for (size_t i = 0; i < layers.cost.size(); ++i) {
    if (!std::isfinite(layers.cost[i]) || layers.cost[i] < 0) {
      return InvalidArgument(fmt::format("layer {} costs {}", i, layers.cost[i]));
    }
    if (i > 0 && layers.boundary_bytes[i - 1] < 0) {
      return InvalidArgument(
          fmt::format("{} bytes cross into layer {}", layers.boundary_bytes[i - 1], i));
    }
  }
  if (count < 1 || !(tolerance >= 0)) {
    return InvalidArgument(fmt::format(
        "layers go into at least 1 cluster with a tolerance of at least 0, not {} and {}", count,
        tolerance));
  }
  return OkStatus();
}

}  // namespace

Result<LayerClusters> ClusterLayers(const LayerChain& layers, int count, double tolerance) {
  MW_TRY(CheckChain(layers, count, tolerance));
  const ChainSplits splits(layers, count);
  LayerClusters clusters;
  clusters.cluster_cost_allowed = splits.Limit((1 + tolerance) * splits.total() / count);
  clusters.crossing_bytes_max = splits.BytesMax(clusters.cluster_cost_allowed);
  clusters.begins =
      LeastSum(splits, count, clusters.cluster_cost_allowed, clusters.crossing_bytes_max);
  for (size_t i = 0; i < clusters.begins.size(); ++i) {
    const auto first = static_cast<size_t>(clusters.begins[i]);
    const size_t end = i + 1 < clusters.begins.size() ? static_cast<size_t>(clusters.begins[i + 1])
                                                      : splits.layer_count();
    clusters.crossing_bytes_sum += splits.bytes(first);
    clusters.cluster_cost_max = std::max(clusters.cluster_cost_max, splits.cost(first, end));
  }
  return clusters;
}

}  // namespace meshwright::search
