// What Prometheus sees of a controller and a worker that have run a job.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/clock.h"
#include "tests/e2e/control/local_cluster.h"
#include "tests/e2e/http_get.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;

std::string PageOf(int port, const std::string& path) {
  return HttpGet(fmt::format("127.0.0.1:{}", port), path);
}

// The control loop counts workers and messages on its tick: the page that has them.
std::string MetricsOnceCounted(int port) {
  const Deadline deadline = Deadline::After(10'000);
  std::string text;
  do {
    text = PageOf(port, "/metrics");
  } while (text.find("kind=\"launch_done\"") == std::string::npos && !deadline.expired());
  return text;
}

TEST(ControlMetrics, NamesAreThoseOfTheDesignAndPassPromtool) {
  auto cluster = LocalCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto id = (*cluster)->Submit(ByteJob(2, 1, 5), SampleBytes(9000));
  ASSERT_TRUE(id.has_value()) << id.error();
  const auto info = (*cluster)->client().Wait(*id, 60'000);
  ASSERT_TRUE(info.has_value()) << info.error();
  ASSERT_EQ(info->state, client::JobState::kSucceeded) << info->message;
  const std::string controller = MetricsOnceCounted((*cluster)->server().metrics_port());
  for (const char* name :
       {"meshwright_build_info{", "meshwright_workers{state=\"ready\"} 2",
        "meshwright_jobs{state=\"", "meshwright_steps_total{job_id=\"1\"} 5",
        "meshwright_tokens_total{job_id=\"1\"} 320", "meshwright_loss{job_id=\"1\"}",
        "meshwright_grad_norm{", "meshwright_learning_rate{", "meshwright_step_seconds_bucket{",
        "meshwright_plan_seconds_count{", "meshwright_rpc_server_seconds_count{code=\"ok\"",
        "meshwright_control_messages_total{kind=\"launch_done\"}", "meshwright_term 1",
        "process_resident_memory_bytes"}) {
    EXPECT_THAT(controller, HasSubstr(name));
  }
  const std::string worker = PageOf((*cluster)->agent(0).metrics_port(), "/metrics");
  for (const char* name :
       {"meshwright_instructions_total{op=\"run\"}",
        "meshwright_collective_bytes_total{axis=\"data\",backend=\"cpu\",op=\"all_reduce\"}",
        "meshwright_collective_seconds_total{", "meshwright_device_memory_bytes{device=\"0\"",
        "process_cpu_seconds_total"}) {
    EXPECT_THAT(worker, HasSubstr(name));
  }
  EXPECT_EQ(PageOf((*cluster)->server().metrics_port(), "/healthz").substr(0, 2), "ok");
  const std::string targets =
      PageOf((*cluster)->server().metrics_port(), "/api/v1/prometheus/targets");
  EXPECT_THAT(targets, HasSubstr("\"meshwright_role\":\"worker\""));
  EXPECT_THAT(targets, HasSubstr(fmt::format("127.0.0.1:{}", (*cluster)->agent(1).metrics_port())));

  if (std::system("command -v promtool > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool is not installed";
  }
  for (const auto& [name, text] : {std::pair{"controller", controller}, {"worker", worker}}) {
    const std::string path = (*cluster)->File(std::string(name) + ".prom");
    ASSERT_TRUE(WriteFileAtomic(path, text).ok());
    const std::string command = fmt::format("promtool check metrics < {0} > {0}.out 2>&1", path);
    EXPECT_EQ(std::system(command.c_str()), 0) << ReadFile(path + ".out").value_or("");
  }
}

TEST(ControlMetrics, AClusterWithoutWorkersHasNoTargetsAndIsAlive) {
  LocalClusterOptions options;
  options.workers = 0;
  auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const int port = (*cluster)->server().metrics_port();
  EXPECT_EQ(PageOf(port, "/api/v1/prometheus/targets"), "[]");
  EXPECT_EQ(PageOf(port, "/livez"), "ok\n");
}

TEST(ControlMetrics, AWorkerThatLeftIsNoTargetAndSaysThatItIsHealthyWhileItHasJoined) {
  auto cluster = LocalCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const int port = (*cluster)->server().metrics_port();
  const std::string first = fmt::format("127.0.0.1:{}", (*cluster)->agent(0).metrics_port());
  const std::string second = fmt::format("127.0.0.1:{}", (*cluster)->agent(1).metrics_port());
  EXPECT_EQ(HttpGet(second, "/healthz"), "ok\n");
  (*cluster)->agent(0).Stop();
  const Deadline deadline = Deadline::After(10'000);
  std::string targets;
  do {
    targets = PageOf(port, "/api/v1/prometheus/targets");
  } while (targets.find(first) != std::string::npos && !deadline.expired());
  EXPECT_THAT(targets, ::testing::Not(HasSubstr(first)));
  EXPECT_THAT(targets, HasSubstr(second));
  (*cluster)->server().Stop();
  const Deadline noticed = Deadline::After(10'000);
  std::string health;
  do {
    health = HttpGet(second, "/healthz");
  } while (health == "ok\n" && !noticed.expired());
  EXPECT_THAT(health, HasSubstr("looks for the controller"));
}

}  // namespace
}  // namespace meshwright::testing
