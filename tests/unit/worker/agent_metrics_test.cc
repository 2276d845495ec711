#include "worker/agent_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::worker {
namespace {

using ::testing::HasSubstr;

TEST(AgentMetrics, CollectivesHaveTheBackendThatMovedTheBytes) {
  MetricsRegistry registry;
  AgentMetrics metrics(registry, "w");
  DeviceStats stats;
  stats.collectives = {{"data", collective::Kind::kAllReduce, "nccl", {2, 100, 0.5}},
                       {"data", collective::Kind::kAllReduce, "cpu", {1, 7, 0.5}}};
  metrics.Observe(1, {stats}, {0});
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("meshwright_collective_bytes_total{axis=\"data\",backend=\"nccl\",op="
                              "\"all_reduce\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("meshwright_collective_bytes_total{axis=\"data\",backend=\"cpu\",op="
                              "\"all_reduce\"} 7\n"));
}

}  // namespace
}  // namespace meshwright::worker
