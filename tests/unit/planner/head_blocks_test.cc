#include "planner/step_pieces.h"

#include <gtest/gtest.h>

namespace meshwright::planner {
namespace {

mesh::Topology Of(const char* profile) {
  mesh::Topology topology = mesh::Topology::Local(2);
  for (mesh::Device& device : topology.devices) {
    device.profile = mesh::KnownDeviceProfiles().at(profile);
  }
  return topology;
}

TEST(HeadBlocks, AreAsLargeAsTheWeightsReadingIsWorth) {
  ir::JobRequest job;
  EXPECT_FALSE(WithHeadBlocks(job, Of("cpu")).has_value());
  job.train.compute_dtype = ir::DType::kBF16;
  EXPECT_FALSE(WithHeadBlocks(job, Of("cpu")).has_value());
  const auto sized = WithHeadBlocks(job, Of("h100-80g"));
  ASSERT_TRUE(sized.has_value());
  // 20 x 643.6 TFLOP/s / 3.015 TB/s.
  EXPECT_NEAR(static_cast<double>(sized->parallel.head_block_tokens), 4270, 10);
  EXPECT_FALSE(WithHeadBlocks(*sized, Of("h200-141g")).has_value()) << "the job says itself";
}

}  // namespace
}  // namespace meshwright::planner
