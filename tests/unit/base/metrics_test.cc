#include "base/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/subprocess.h"
#include "base/text.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The number that follows "name " at the start of a line; NaN when there is none.
double ValueOf(const std::string& text, const std::string& name) {
  for (const std::string& line : Split(text, '\n')) {
    if (line.rfind(name + " ", 0) == 0) return std::stod(line.substr(name.size() + 1));
  }
  return std::nan("");
}

double CpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

TEST(Metrics, CountersGaugesAndHistogramsAppearAsText) {
  MetricsRegistry registry;
  Counter steps = registry.MakeCounter("mw_steps_total", "Steps done.", {{"job", "7"}});
  steps.Increment();
  steps.Increment(2);
  registry.MakeGauge("mw_loss", "Training loss.").Set(2.5);
  Histogram seconds = registry.MakeHistogram("mw_step_seconds", "Step time.", {0.1, 1});
  seconds.Observe(0.05);
  seconds.Observe(0.5);
  seconds.Observe(5);
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("# TYPE mw_steps_total counter\nmw_steps_total{job=\"7\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("# HELP mw_loss Training loss.\n"));
  EXPECT_EQ(ValueOf(text, "mw_loss"), 2.5);
  EXPECT_EQ(ValueOf(text, "mw_step_seconds_bucket{le=\"0.1\"}"), 1);
  EXPECT_EQ(ValueOf(text, "mw_step_seconds_bucket{le=\"1\"}"), 2);
  EXPECT_EQ(ValueOf(text, "mw_step_seconds_bucket{le=\"+Inf\"}"), 3);
  EXPECT_EQ(ValueOf(text, "mw_step_seconds_count"), 3);
  EXPECT_NEAR(ValueOf(text, "mw_step_seconds_sum"), 5.55, 1e-12);
}

TEST(Metrics, AskingTwiceGivesTheSameSeries) {
  MetricsRegistry registry;
  registry.MakeCounter("mw_a_total", "A.").Increment(2);
  Counter again = registry.MakeCounter("mw_a_total", "A.");
  again.Increment();
  EXPECT_EQ(again.value(), 3);
}

TEST(Metrics, CountersOnlyRise) {
  MetricsRegistry registry;
  Counter counter = registry.MakeCounter("mw_a_total", "A.");
  counter.Increment(-1);
  EXPECT_EQ(counter.value(), 0);
}

TEST(Metrics, LabelValuesAreEscaped) {
  MetricsRegistry registry;
  registry.MakeGauge("mw_a", "A.", {{"path", "a\"b\\c\nd"}}).Set(1);
  EXPECT_THAT(registry.Serialize(), HasSubstr(R"(mw_a{path="a\"b\\c\nd"} 1)"));
}

TEST(Metrics, RemovedSeriesVanishAndTheirHandlesStaySafe) {
  MetricsRegistry registry;
  Gauge gone = registry.MakeGauge("mw_loss", "Loss.", {{"job", "7"}, {"stage", "0"}});
  registry.MakeGauge("mw_loss", "Loss.", {{"job", "7"}, {"stage", "1"}}).Set(1);
  registry.MakeGauge("mw_loss", "Loss.", {{"job", "8"}}).Set(1);
  registry.MakeCounter("mw_steps_total", "Steps.", {{"job", "7"}}).Increment();
  EXPECT_EQ(registry.RemoveSeries({{"job", "7"}}), 3);
  EXPECT_EQ(registry.RemoveSeries({{"job", "7"}}), 0);
  EXPECT_EQ(registry.RemoveSeries({}), 0) << "an empty filter is no filter for everything";
  gone.Set(4);
  EXPECT_EQ(gone.value(), 4);
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, Not(HasSubstr("job=\"7\"")));
  EXPECT_THAT(text, Not(HasSubstr("mw_steps_total"))) << "families without series are not listed";
  EXPECT_THAT(text, HasSubstr("mw_loss{job=\"8\"} 1"));
}

TEST(Metrics, RefreshRunsBeforeEachScrapeAndMayMakeSeries) {
  MetricsRegistry registry;
  int scrapes = 0;
  registry.AddRefresh([&] { registry.MakeGauge("mw_scrapes", "Scrapes.").Set(++scrapes); });
  EXPECT_EQ(ValueOf(registry.Serialize(), "mw_scrapes"), 1);
  EXPECT_EQ(ValueOf(registry.Serialize(), "mw_scrapes"), 2);
}

TEST(Metrics, ThreadsMayCountWhileOthersScrapeAndRemove) {
  MetricsRegistry registry;
  Counter counter = registry.MakeCounter("mw_a_total", "A.");
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&registry, counter, t]() mutable {
      for (int i = 0; i < 200; ++i) {
        counter.Increment();
        registry.MakeGauge("mw_b", "B.", {{"job", std::to_string(t)}}).Set(i);
        registry.RemoveSeries({{"job", std::to_string(t)}});
      }
    });
  }
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(registry.Serialize().empty());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 600);
}

TEST(ProcessMetrics, TellTheTruthAboutThisProcess) {
  MetricsRegistry registry;
  AddProcessMetrics(registry);
  // Enough CPU time to see: /proc counts ticks of 10 ms.
  const Deadline deadline = Deadline::After(60'000);
  while (CpuSeconds() < 0.1 && !deadline.expired()) {
  }
  const double least_seconds = CpuSeconds() - 0.03;
  const std::string text = registry.Serialize();
  EXPECT_GE(ValueOf(text, "process_cpu_seconds_total"), least_seconds);
  EXPECT_LE(ValueOf(text, "process_cpu_seconds_total"), CpuSeconds() + 0.03);
  EXPECT_GT(ValueOf(text, "process_resident_memory_bytes"), 1e6);
  EXPECT_GE(ValueOf(text, "process_open_fds"), 3);
  EXPECT_GE(ValueOf(text, "process_max_fds"), ValueOf(text, "process_open_fds"));
  EXPECT_GE(ValueOf(text, "process_threads"), 1);
  const double age_seconds = static_cast<double>(SystemClock().UnixMs()) / 1000 -
                             ValueOf(text, "process_start_time_seconds");
  EXPECT_GT(age_seconds, -2);
  EXPECT_LT(age_seconds, 600);
}

TEST(ProcessMetrics, CountOpenDescriptors) {
  MetricsRegistry registry;
  AddProcessMetrics(registry);
  const double before = ValueOf(registry.Serialize(), "process_open_fds");
  const UniqueFd extra(dup(0));
  ASSERT_TRUE(extra.valid());
  EXPECT_EQ(ValueOf(registry.Serialize(), "process_open_fds"), before + 1);
}

TEST(Metrics, PromtoolFindsNothingToCriticise) {
  MetricsRegistry registry;
  AddProcessMetrics(registry);
  registry.MakeCounter("mw_steps_total", "Steps done.", {{"job", "a\"b"}}).Increment();
  registry.MakeHistogram("mw_step_seconds", "Step time.", ExponentialBuckets(0.001, 4, 6))
      .Observe(0.1);
  const TempDir folder = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(folder.File("metrics"), registry.Serialize()).ok());
  SubprocessOptions options;
  options.args = {"sh", "-c", "promtool check metrics < " + folder.File("metrics")};
  const ProcessOutput output = RunProcess(options, 30'000).value();
  if (output.exit.code == 127) GTEST_SKIP() << "promtool (Debian package prometheus) is not here";
  EXPECT_TRUE(output.exit.ok()) << output.stdout_text << output.stderr_text;
}

TEST(ExponentialBuckets, MultiplyByTheFactor) {
  EXPECT_EQ(ExponentialBuckets(1, 2, 4), (std::vector<double>{1, 2, 4, 8}));
}

TEST(MetricsDeathTest, RefusesNamesAndTypesThatCannotWork) {
  MetricsRegistry registry;
  registry.MakeGauge("mw_a", "A.");
  EXPECT_DEATH(registry.MakeCounter("mw_a", "A."), "two types");
  EXPECT_DEATH(registry.MakeGauge("no spaces", "A."), "no spaces");
  EXPECT_DEATH(registry.MakeGauge("mw_b", "B.", {{"0bad", "x"}}), "0bad");
}

}  // namespace
}  // namespace meshwright
