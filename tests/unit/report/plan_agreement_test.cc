// Table, picture, JSON, trace and saved plan say the same of a plan.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/text.h"
#include "config/saved_plan.h"
#include "planner/layout.h"
#include "report/forecast_trace.h"
#include "report/plan_json.h"
#include "report/plan_report.h"
#include "report/plan_svg.h"
#include "tests/unit/report/planned_job.h"

namespace meshwright::report {
namespace {

using ::testing::HasSubstr;

// "" where the text has no such thing.
std::string Found(const std::string& text, const std::string& pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : "";
}

std::string Percent(const nlohmann::json& share) {
  return fmt::format("{:.1f} %", 100 * share.get<double>());
}

// What each device has in a farther memory: in tables and JSON the most of a step, in the picture
// and the trace over time.
void ExpectAgreementOnFarMemory(const nlohmann::json& json, const nlohmann::json& trace,
                                const std::string& svg, const std::string& far,
                                const std::string& strips, const std::string& counter) {
  int64_t allocated = 0;
  for (const auto& device : json.at("memory")) {
    double most_mib = 0;
    const std::string name =
        fmt::format("MiB of device {} {}", device.at("device").get<int>(), counter);
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") != "C" || event.at("name") != name) continue;
      double mib = 0;
      for (const auto& [kind, of_kind] : event.at("args").items()) mib += of_kind.get<double>();
      most_mib = std::max(most_mib, mib);
    }
    int64_t bytes = 0;
    for (const auto& [kind, of_kind] : device.at(far + "_kinds_bytes").items()) {
      bytes += of_kind.get<int64_t>();
    }
    EXPECT_NEAR(most_mib, static_cast<double>(bytes) / 1048576.0, 0.005) << name;
    allocated = std::max(allocated, device.at(far + "_bytes").get<int64_t>());
  }
  const std::string title =
      fmt::format(">{} over time, {} allocated at most<", strips, FormatBytes(allocated));
  EXPECT_EQ(svg.find(title) != std::string::npos, allocated > 0) << title;
}

void ExpectAgreement(const std::vector<std::string>& overrides, int devices) {
  SCOPED_TRACE(fmt::format("{} devices, {}", devices, Join(overrides, " ")));
  const mesh::Topology topology = mesh::Topology::Local(devices);
  const auto planned = PlanSmallJob(overrides, topology);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  const auto json = nlohmann::json::parse(PlanJson(*planned, topology));
  const std::string table =
      planner::FormatPlan(planned->plan(), false) + FormatForecast(planned->forecast);
  const std::string svg = PlanSvg(planned->plan(), planned->forecast, topology);
  const auto trace = nlohmann::json::parse(ForecastTrace(planned->plan(), planned->forecast));

  // The step.
  const auto& forecast = json.at("forecast");
  const double step_s = forecast.at("step_s");
  EXPECT_EQ(Found(table, "forecast   step ([^,]*),"), FormatDuration(step_s));
  EXPECT_EQ(Found(svg, ">step (.*) \\(forecast\\)"), FormatDuration(step_s));
  double last_us = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    last_us = std::max(last_us, event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  EXPECT_NEAR(last_us, step_s * 1e6, 0.01);

  // Waiting, by two measures, and rates.
  EXPECT_EQ(Found(table, "waiting [a-z ]*([0-9.]* %) of the time"),
            Percent(forecast.at("waiting_of_time")));
  EXPECT_EQ(Found(table, "of the time, ([0-9.]* %) of the work"),
            Percent(forecast.at("waiting_of_work")));
  EXPECT_EQ(Found(svg, "waiting (.*) of the time"), Percent(forecast.at("waiting_of_time")));
  EXPECT_EQ(Found(table, "collectives (.*) a device"),
            FormatDuration(forecast.at("collectives_device_s")));
  EXPECT_EQ(Found(table, ", ([0-9,]*) tokens/s"),
            FormatCount(static_cast<int64_t>(forecast.at("tokens_per_s").get<double>())));
  EXPECT_EQ(Found(table, "MFU ([^,]*),"), Percent(forecast.at("mfu")));

  // Memory of the fullest device.
  int64_t most = 0;
  for (const auto& device : json.at("memory")) {
    most = std::max(most, device.at("allocated_bytes").get<int64_t>());
  }
  EXPECT_THAT(svg, HasSubstr(FormatBytes(most) + " allocated at most"));
  EXPECT_EQ(most, planner::FullestBytes(planned->plan().memory));

  ExpectAgreementOnFarMemory(json, trace, svg, "host", "memory of the host",
                             "in the host's memory");
  ExpectAgreementOnFarMemory(json, trace, svg, "disk", "disk", "on disk");

  // Layout, everywhere in the same words.
  const std::string layout = json.at("layout").at("text");
  EXPECT_THAT(table, HasSubstr(layout));
  EXPECT_THAT(svg, HasSubstr(layout));

  // The saved plan is this plan again.
  const auto config = SmallConfig(overrides);
  ASSERT_TRUE(config.has_value()) << config.error();
  const auto saved = config::FormatSavedPlan(
      {}, {*config, planned->prepared, planned->found, planned->forecast}, topology);
  ASSERT_TRUE(saved.has_value()) << saved.error();
  const auto again = PlanSmallJob(overrides, topology, *saved);
  ASSERT_TRUE(again.has_value()) << again.error();
  const auto other = nlohmann::json::parse(PlanJson(*again, topology));
  for (const char* const what : {"layout", "forecast", "memory", "stages", "params"}) {
    EXPECT_EQ(json.at(what), other.at(what)) << what;
  }
}

TEST(PlanAgreement, EveryFormSaysTheSame) {
  ExpectAgreement({}, 1);
  ExpectAgreement(
      {"parallelism.data_parallel_replicate_degree=2", "parallelism.tensor_parallel_degree=2"}, 4);
  ExpectAgreement(
      {"parallelism.pipeline_parallel_degree=2", "parallelism.pipeline_parallel_microbatches=4"},
      2);
  ExpectAgreement(
      {"parallelism.pipeline_parallel_degree=2", "parallelism.data_parallel_replicate_degree=2",
       "parallelism.zero_stage=1", "parallelism.pipeline_parallel_schedule=\"zb-h1\""},
      4);
  ExpectAgreement(
      {"parallelism.pipeline_parallel_degree=2", "parallelism.pipeline_parallel_microbatches=2",
       "parallelism.optimizer_memory=\"disk\"", "parallelism.gradients_memory=\"host\"",
       "parallelism.activations_memory=\"host\"", "parallelism.offload_chunk_bytes=4096"},
      2);
}

}  // namespace
}  // namespace meshwright::report
