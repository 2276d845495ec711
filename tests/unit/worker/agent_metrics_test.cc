#include "worker/agent_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/launch_done.h"

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

TEST(AgentMetrics, CountersAreThereBeforeAnythingHappens) {
  MetricsRegistry registry;
  AgentMetrics metrics(registry, "w");
  metrics.SetDevices(2, 1000);
  const std::string text = registry.Serialize();
  for (const char* line :
       {"meshwright_worker_steps_total 0\n", "meshwright_worker_wait_seconds_total 0\n",
        "meshwright_instructions_total{op=\"send\"} 0\n",
        "meshwright_device_memory_limit_bytes{device=\"1\"} 1000\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(AgentMetrics, AStepIsWorkAndWaiting) {
  MetricsRegistry registry;
  AgentMetrics metrics(registry, "w");
  proto::LaunchDone done;
  done.reports = {{0, 2.0, {}, {{0, 1.0}, {1, 1.5}}}, {1, 3.0, {}, {}}};
  metrics.ObserveLaunch(done);
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("meshwright_worker_steps_total 2\n"));
  EXPECT_THAT(text, HasSubstr("meshwright_worker_step_seconds_total 5\n"));
  EXPECT_THAT(text, HasSubstr("meshwright_worker_busy_seconds_total 1.25\n"));
  EXPECT_THAT(text, HasSubstr("meshwright_worker_wait_seconds_total 0.75\n"));
}

}  // namespace
}  // namespace meshwright::worker
