#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "controller/journal.h"

namespace meshwright::controller {
namespace {

proto::StepMetrics Metrics(int64_t step) {
  proto::StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 2;
  return metrics;
}

TEST(MendJournal, SaysWhatIsOnRecordAndCutsWhatWasNotWrittenWhole) {
  const TempDir dir = TempDir::Make().value();
  EXPECT_EQ(MendJournal(dir.path()), 0) << "there is none";
  const std::string path = dir.path() + "/metrics.jsonl";
  std::string text;
  for (int64_t step = 0; step < 5; ++step) text += FormatStep(Metrics(step));
  ASSERT_TRUE(AppendFile(path, text + FormatStep(Metrics(5)).substr(0, 20)).ok());
  ASSERT_TRUE(AppendFile(dir.path() + "/job.log", "one\ntw").ok());
  EXPECT_EQ(MendJournal(dir.path()), 5);
  EXPECT_EQ(*ReadFile(path), text);
  EXPECT_EQ(*ReadFile(dir.path() + "/job.log"), "one\n");
  EXPECT_EQ(MendJournal(dir.path()), 5) << "nothing is left to mend";
}

// Found by tests/fuzz: numbers that no step has, and that no integer holds.
TEST(MendJournal, PassesOverStepsThatCannotBe) {
  for (const char* number : {"-3", "1e308", "9223372036854775807", "1e999", "null", "\"7\""}) {
    const TempDir dir = TempDir::Make().value();
    const std::string line = std::string("{\"step\":") + number + ",\"loss\":1}\n";
    ASSERT_TRUE(AppendFile(dir.path() + "/metrics.jsonl", FormatStep(Metrics(4)) + line).ok());
    EXPECT_EQ(MendJournal(dir.path()), 0) << number << ": no step is known to be the last";
    const Journal journal = LoadJournal(dir.path(), MeasureJournal(dir.path()));
    EXPECT_EQ(journal.step_count(), 1) << number;
  }
}

TEST(MendJournal, FindsTheLastStepOfLongLines) {
  const TempDir dir = TempDir::Make().value();
  proto::StepMetrics wide = Metrics(7);
  for (int i = 0; i < 20'000; ++i) wide.values["metric" + std::to_string(i)] = i;
  const std::string path = dir.path() + "/metrics.jsonl";
  ASSERT_TRUE(AppendFile(path, FormatStep(wide)).ok());
  EXPECT_EQ(MendJournal(dir.path()), 8);
  ASSERT_TRUE(AppendFile(path, FormatStep(Metrics(8)) + FormatStep(wide).substr(0, 300'000)).ok());
  EXPECT_EQ(MendJournal(dir.path()), 9);
  ASSERT_TRUE(AppendFile(path, std::string(100'000, 'x')).ok());
  EXPECT_EQ(MendJournal(dir.path()), 9);
}

}  // namespace
}  // namespace meshwright::controller
