#include "report/run_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/file.h"
#include "report/steps_csv.h"

namespace meshwright::report {
namespace {

using client::StepMetrics;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

StepMetrics StepOf(int64_t step, double loss) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = loss;
  metrics.grad_norm = 1.25;
  metrics.lr = 0.5;
  metrics.tokens = 4096;
  metrics.seconds = 0.25;
  metrics.validation_loss = kNotMeasured;
  return metrics;
}

RunFacts FactsOfFour() {
  RunFacts facts;
  facts.job = 3;
  facts.name = "gpt small/2";
  facts.begin_unix_s = 1.7e9;
  facts.devices = 4;
  facts.flops_per_step = 1e12;
  facts.peak_flops_per_s = 8e12;
  facts.config_text = "[optimizer]\nlr = 0.5\n";
  return facts;
}

double ScalarIn(const std::vector<formats::EventScalar>& scalars, const std::string& tag) {
  for (const formats::EventScalar& scalar : scalars) {
    if (scalar.tag == tag) return static_cast<double>(scalar.value);
  }
  return kNotMeasured;
}

// The one file of a folder whose name begins so.
std::string FileBeginning(const std::string& folder, const std::string& begin) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(begin, 0) == 0) found.push_back(entry.path().string());
  }
  EXPECT_EQ(found.size(), 1u) << begin;
  return found.empty() ? "" : found.front();
}

TEST(RunRecords, ScalarsHaveTorchTitansTagsAndAreByDevice) {
  StepMetrics step = StepOf(9, 2.5);
  step.validation_loss = 3.5;
  step.values = {{"accuracy", 0.75}};
  const auto scalars = ScalarsOf(step, FactsOfFour(), 40960);
  EXPECT_EQ(ScalarIn(scalars, "loss_metrics/global_avg_loss"), 2.5);
  EXPECT_EQ(ScalarIn(scalars, "grad_norm"), 1.25);
  EXPECT_EQ(ScalarIn(scalars, "lr"), 0.5);
  EXPECT_EQ(ScalarIn(scalars, "validation_metrics/loss"), 3.5);
  EXPECT_EQ(ScalarIn(scalars, "throughput(tps)"), 4096) << "16384 of four devices";
  EXPECT_EQ(ScalarIn(scalars, "tflops"), 1) << "4 TFLOP/s of four devices";
  EXPECT_EQ(ScalarIn(scalars, "mfu(%)"), 50);
  EXPECT_EQ(ScalarIn(scalars, "time_metrics/end_to_end(s)"), 0.25);
  EXPECT_EQ(ScalarIn(scalars, "n_tokens_seen"), 40960);
  EXPECT_EQ(ScalarIn(scalars, "values/accuracy"), 0.75);
}

TEST(RunRecords, WhatIsNotKnownHasNoTag) {
  RunFacts facts = FactsOfFour();
  facts.peak_flops_per_s = 0;
  const auto scalars = ScalarsOf(StepOf(0, 1), facts, 1);
  EXPECT_TRUE(std::isnan(ScalarIn(scalars, "mfu(%)")));
  EXPECT_TRUE(std::isnan(ScalarIn(scalars, "validation_metrics/loss")));
  facts.flops_per_step = 0;
  EXPECT_TRUE(std::isnan(ScalarIn(ScalarsOf(StepOf(0, 1), facts, 1), "tflops")));
}

TEST(RunRecords, DevicesAreTheProductOfALayoutsAxes) {
  EXPECT_EQ(DevicesOf("data=2 tensor=1 pipeline=2 microbatches=4 schedule=1f1b"), 4);
  EXPECT_EQ(DevicesOf("data=4 expert=2 context=3 tensor=1 pipeline=1 zero=2"), 12)
      << "experts share the replicas";
  EXPECT_EQ(DevicesOf("pipeline=2 meshes=2x1,1x2x3 microbatches=1 schedule=gpipe"), 8);
  EXPECT_EQ(DevicesOf(""), 0);
}

TEST(RunRecords, LinesAreThoseOfTheController) {
  StepMetrics step = StepOf(0, kNotMeasured);
  EXPECT_EQ(StepLine(step),
            "{\"step\":0,\"loss\":null,\"grad_norm\":1.25,\"lr\":0.5,\"tokens\":4096.0,"
            "\"seconds\":0.25}\n");
  step.validation_loss = 2;
  step.values = {{"a", 1.5}};
  EXPECT_THAT(StepLine(step), EndsWith(",\"validation_loss\":2.0,\"values\":{\"a\":1.5}}\n"));
}

TEST(RunRecords, ATableHasAColumnForEachValueAndNothingWhereThereIsNone) {
  StepMetrics first = StepOf(0, 2);
  first.values = {{"a,b", 7}};
  StepMetrics second = StepOf(1, 1.5);
  second.validation_loss = 1.75;
  second.values = {{"z", 0.5}};
  EXPECT_EQ(CsvOf({first, second}),
            "step,loss,grad_norm,lr,tokens,seconds,validation_loss,\"a,b\",z\n"
            "0,2,1.25,0.5,4096,0.25,,7,\n"
            "1,1.5,1.25,0.5,4096,0.25,1.75,,0.5\n");
}

TEST(RunRecords, ATableIsReadAsItWasWritten) {
  StepMetrics first = StepOf(0, 2);
  first.values = {{"a,b", 7}, {"say \"c\"", 1e-9}};
  StepMetrics second = StepOf(1, kNotMeasured);
  second.validation_loss = 1.75;
  const std::string text = CsvOf({first, second});
  EXPECT_TRUE(IsCsvOfSteps(text));
  const auto steps = ParseCsvSteps(text + "2,1.");  // the last is being written
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].loss, 2);
  EXPECT_EQ(steps[0].tokens, 4096);
  EXPECT_EQ(steps[0].values, first.values);
  EXPECT_TRUE(std::isnan(steps[0].validation_loss));
  EXPECT_EQ(steps[1].step, 1);
  EXPECT_TRUE(std::isnan(steps[1].loss));
  EXPECT_EQ(steps[1].validation_loss, 1.75);
  EXPECT_EQ(CsvOf(steps), text);
}

// As a spreadsheet saves it: columns moved, its own line ends, a row that somebody wrote.
TEST(RunRecords, ATableOfASpreadsheetIsReadToo) {
  const auto steps = ParseCsvSteps("loss,step\r\n2.5,3\r\nmean,\r\n\"1.5\",4\r\n7\r\n");
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].step, 3);
  EXPECT_EQ(steps[0].loss, 2.5);
  EXPECT_TRUE(std::isnan(steps[0].tokens));
  EXPECT_EQ(steps[1].loss, 1.5);
  EXPECT_FALSE(IsCsvOfSteps("{\"step\":0,\"loss\":2}\n"));
  EXPECT_FALSE(IsCsvOfSteps("step,loss"));
}

TEST(RunRecords, ARecorderWritesEveryFormatAndReplacesItsOwn) {
  const TempDir folder = TempDir::Make().value();
  const std::vector<RecordFormat> all = {RecordFormat::kTensorBoard, RecordFormat::kJsonl,
                                         RecordFormat::kCsv, RecordFormat::kOtlp};
  for (const double begin : {1.6e9, 1.7e9}) {
    RunFacts facts = FactsOfFour();
    facts.begin_unix_s = begin;
    auto recorder = RunRecorder::Open(folder.path(), facts, all);
    ASSERT_TRUE(recorder.has_value()) << recorder.error();
    EXPECT_EQ((*recorder)->path(), folder.File("gpt_small_2-3"));
    ASSERT_TRUE((*recorder)->Add({StepOf(0, 4), StepOf(1, 3)}).ok());
    ASSERT_TRUE((*recorder)->Add({StepOf(2, 2)}).ok());
    ASSERT_TRUE((*recorder)->Finish().ok());
    EXPECT_EQ((*recorder)->steps(), 3);
  }
  const std::string run = folder.File("gpt_small_2-3");
  const std::string file = FileBeginning(run, "events.out.tfevents.");
  EXPECT_THAT(file, HasSubstr("events.out.tfevents.1700000000."));
  const auto events = formats::ParseEvents(ReadFile(file).value());
  ASSERT_TRUE(events.has_value()) << events.error();
  ASSERT_EQ(events->size(), 4u);
  EXPECT_EQ((*events)[0].file_version, "brain.Event:2");
  EXPECT_EQ((*events)[3].step, 3) << "TorchTitan counts from 1";
  EXPECT_EQ((*events)[3].wall_time, 1.7e9 + 0.75);
  EXPECT_EQ(ScalarIn((*events)[3].scalars, "n_tokens_seen"), 3 * 4096);
  EXPECT_THAT(ReadFile(run + "/metrics.jsonl").value(), HasSubstr("{\"step\":2,\"loss\":2.0,"));
  EXPECT_THAT(ReadFile(run + "/metrics.csv").value(), HasSubstr("\n2,2,"));
  EXPECT_EQ(ReadFile(run + "/config.resolved.toml").value(), FactsOfFour().config_text);
}

// TensorBoard looks while a job runs.
TEST(RunRecords, StepsAreInTheFileBeforeTheEnd) {
  const TempDir folder = TempDir::Make().value();
  auto recorder =
      RunRecorder::Open(folder.path(), FactsOfFour(), {RecordFormat::kTensorBoard}).value();
  const std::string file = FileBeginning(recorder->path(), "events.out.tfevents.");
  EXPECT_EQ(formats::ParseEvents(ReadFile(file).value())->size(), 1u);
  ASSERT_TRUE(recorder->Add({StepOf(0, 4)}).ok());
  EXPECT_EQ(formats::ParseEvents(ReadFile(file).value())->size(), 2u);
  EXPECT_FALSE(FileExists(recorder->path() + "/metrics.jsonl"));
}

TEST(RunRecords, AJobsNameIsOneFolder) {
  RunFacts facts;
  facts.job = 7;
  for (const auto& [name, folder] :
       {std::pair{"gpt", "gpt-7"}, {"../../etc", "_._.._etc-7"}, {"", "-7"}, {"ä b", "___b-7"}}) {
    facts.name = name;
    EXPECT_EQ(RunFolder(facts), folder);
    EXPECT_THAT(RunFolder(facts), Not(HasSubstr("/")));
  }
}

}  // namespace
}  // namespace meshwright::report
