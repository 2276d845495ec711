// The timing of kernels on an emulated GPU: what tools/gpu-check relies on where there is a real
// one.
#include "bench/gpu_nodes.h"

#include <gmock/gmock.h>

#include <set>

#include "mesh/topology.h"
#include "planner/plan.h"
#include "tests/emulated/gpu.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::bench {
namespace {

constexpr GpuTiming kOnce = {.l2_bytes = 1 << 12, .batch_seconds = 0, .batches = 1};

Result<std::vector<GpuNode>> TimeTiny(const std::string& family, ir::DType compute) {
  meshwright::testing::TinyOptions options;
  options.family = family;
  options.dtype = ir::DType::kF32;
  options.layers = 1;
  options.batch = 4;
  ir::JobRequest job = meshwright::testing::MakeTinyJob(options);
  job.train.compute_dtype = compute;
  MW_ASSIGN_OR_RETURN(const planner::Plan plan, planner::MakePlan(job, mesh::Topology::Local(1)));
  emulated::EmulatedGpu gpu;
  auto nodes = TimeGpuNodes(gpu.target(), plan.Of("step")[0], kOnce);
  EXPECT_EQ(gpu.device().status().message(), "");
  return nodes;
}

TEST(GpuNodes, EveryKernelOfAStepIsTimed) {
  for (const char* family : {"gpt2", "llama"}) {
    for (const ir::DType compute : {ir::DType::kF32, ir::DType::kBF16}) {
      const auto nodes = TimeTiny(family, compute);
      ASSERT_TRUE(nodes.has_value()) << nodes.error();
      std::set<std::string> kinds;
      bool updates = false;
      for (const GpuNode& node : *nodes) {
        EXPECT_TRUE(kinds.insert(node.kind).second) << node.kind;
        EXPECT_GT(node.calls, 0) << node.kind;
        EXPECT_GT(node.seconds, 0) << node.kind;
        EXPECT_GT(node.cost.bytes, 0) << node.kind;
        // Updates of all weights of a kind are one kernel.
        updates |= node.kind.find(" x adamw ") != std::string::npos;
      }
      EXPECT_TRUE(updates) << family;
      EXPECT_GT(kinds.size(), 20u) << family;
    }
  }
}

TEST(GpuNodes, RowsOfAHeadAreTimedByThemselves) {
  emulated::EmulatedGpu gpu;
  const auto rows = TimeHeadRows(gpu.target(), {8, 50, ir::DType::kBF16}, kOnce);
  ASSERT_TRUE(rows.has_value()) << rows.error();
  EXPECT_EQ(rows->kind, "rows of the head [8, 50] with their gradient in bf16");
  EXPECT_GT(rows->seconds, 0);
  EXPECT_EQ(rows->cost.bytes, 8 * 50 * (4 + 4 + 2));
  EXPECT_EQ(gpu.device().status().message(), "");
}

TEST(GpuNodes, LimitsAreRates) {
  emulated::EmulatedGpu gpu;
  const auto copy = GpuCopyRate(gpu.target(), 1 << 16, kOnce);
  ASSERT_TRUE(copy.has_value()) << copy.error();
  EXPECT_GT(*copy, 0);
  for (const ir::DType dtype : {ir::DType::kBF16, ir::DType::kF16, ir::DType::kF32}) {
    const auto rate = GpuMatmulRate(gpu.target(), dtype, 64, kOnce);
    ASSERT_TRUE(rate.has_value()) << rate.error();
    EXPECT_GT(*rate, 0);
  }
}

}  // namespace
}  // namespace meshwright::bench
