// Layers to clusters: what a search over stages treats as one layer.
//
// A cluster is a contiguous range of layers. Few bytes should cross from one cluster to the next,
// since stages are cut there, and no cluster should cost much more than its share, since a stage
// has at least one. Many small layers (operators, blocks) become as many as the search can afford.
//
// Thread rule: values, pure functions. Source: Alpa (Zheng et al., OSDI'22) section 5.2, operator
// clustering; here the sum of bytes breaks ties, and a limit that nothing keeps is relaxed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace meshwright::search {

struct LayerChain {
  std::vector<double> cost;             // per layer, >= 0, in one unit: FLOPs or seconds
  std::vector<int64_t> boundary_bytes;  // per pair of neighbours: what crosses between them
};

struct LayerClusters {
  std::vector<int> begins;          // first layer of every cluster; begins[0] = 0
  int64_t crossing_bytes_max = 0;   // into one cluster
  int64_t crossing_bytes_sum = 0;   // into all of them
  double cluster_cost_max = 0;      // of one cluster
  double cluster_cost_allowed = 0;  // the limit that was kept; above the asked one when relaxed
};

// At most `count` clusters with the least crossing_bytes_max, then the least sum, then the fewest
// clusters, where no cluster costs more than (1 + tolerance) x total / count. When every split into
// `count` clusters breaks that limit, the limit is the least that one of them keeps.
// O(count n^2) for n layers at most, O(n^2) for even costs. Errors: kInvalidArgument: no layers,
// count < 1, a negative or non-finite number, boundaries that are not one fewer than layers.
Result<LayerClusters> ClusterLayers(const LayerChain& layers, int count, double tolerance = 0.5);

}  // namespace meshwright::search
