#include "controller/scrape_targets.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace meshwright::controller {
namespace {

proto::WorkerInfo WorkerAt(const std::string& name, const std::string& metrics,
                           const std::string& state = "READY") {
  proto::WorkerInfo worker;
  worker.name = name;
  worker.host = "h-" + name;
  worker.state = state;
  worker.metrics_address = metrics;
  return worker;
}

TEST(ScrapeTargets, SayWhoseMetricsAreByTls) {
  const auto targets = nlohmann::json::parse(
      ScrapeTargets({WorkerAt("w0", "127.0.0.1:7790"), WorkerAt("w1", "https://10.0.0.3:7790")}));
  ASSERT_EQ(targets.size(), 2U);
  EXPECT_EQ(targets[0]["targets"], nlohmann::json::array({"127.0.0.1:7790"}));
  EXPECT_FALSE(targets[0]["labels"].contains("__scheme__")) << "it would be sent the token";
  EXPECT_EQ(targets[1]["targets"], nlohmann::json::array({"10.0.0.3:7790"}));
  EXPECT_EQ(targets[1]["labels"]["__scheme__"], "https");
  EXPECT_EQ(targets[1]["labels"]["worker"], "w1");
  EXPECT_EQ(targets[1]["labels"]["host"], "h-w1");
}

TEST(ScrapeTargets, LeaveOutWhoIsGoneOrHasNone) {
  EXPECT_EQ(ScrapeTargets({WorkerAt("w0", "10.0.0.3:1", "LOST"), WorkerAt("w1", ""),
                           WorkerAt("w2", "10.0.0.3:2", "LEFT")}),
            "[]");
}

}  // namespace
}  // namespace meshwright::controller
