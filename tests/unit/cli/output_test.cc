#include "cli/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "mesh/device_profile.h"

namespace meshwright::cli {
namespace {

using ::testing::HasSubstr;

client::StepMetrics Step(int64_t step, double loss) {
  client::StepMetrics metrics;
  metrics.step = step;
  metrics.loss = loss;
  metrics.grad_norm = 1.5;
  metrics.lr = 3e-4;
  metrics.tokens = 1000;
  metrics.seconds = 0.5;
  metrics.validation_loss = std::nan("");
  return metrics;
}

TEST(StepPrinter, PrintsTorchTitansFieldsInTheirOrder) {
  StepPrinter printer({.steps = 11, .log_every = 5, .flops_per_step = 2e12});
  client::JobInfo job;
  job.device_memory_bytes = int64_t{3} << 29;
  job.device_budget_bytes = int64_t{100} << 30;
  printer.SetPlanned(job);
  EXPECT_EQ(printer.Add(Step(0, 8.04)),
            "step:    1  loss:   8.0400  grad_norm:   1.5000  memory: 1.50GiB(1.50%)  "
            "tps:   2,000  tflops: 4.0000  mfu: n/a  lr: 3.00e-04  eta: 5 s\n");
  job.peak_flops_per_s = 16e12;
  printer.SetPlanned(job);
  printer.Add(Step(1, 8));
  EXPECT_THAT(printer.Add(Step(4, 8)), HasSubstr("  tflops: 4.0000  mfu: 25.0%  lr:"));
}

TEST(StepPrinter, ATerminalsLineLeavesOutWhatItHasNoRoomFor) {
  const auto line = [](int width) {
    StepPrinter printer({.steps = 600, .log_every = 1, .flops_per_step = 2e12, .width = width});
    client::JobInfo job;
    job.device_memory_bytes = int64_t{3} << 29;
    job.device_budget_bytes = int64_t{100} << 30;
    printer.SetPlanned(job);
    return printer.Add(Step(269, 8.04));
  };
  EXPECT_EQ(line(80),
            "step:  270  loss:   8.0400  grad_norm:   1.5000  tps:   2,000  eta: 2m45s\n");
  for (int width = 1; width < 140; ++width) {
    const size_t columns = line(width).size() - 1;
    EXPECT_TRUE(columns <= static_cast<size_t>(width) || line(width) == "step:  270\n") << width;
  }
  EXPECT_EQ(line(140), line(0)) << "all fit";
  EXPECT_NE(line(0).find("memory: 1.50GiB"), std::string::npos);
}

TEST(StepPrinter, SaysWhichStepsOfFloat16WereSkipped) {
  StepPrinter printer({.steps = 0, .log_every = 2});
  client::StepMetrics step = Step(0, 5);
  step.values["loss_scale"] = 65536;
  EXPECT_EQ(printer.Summary(), "");
  EXPECT_NE(printer.Add(step).find("  lr: 3.00e-04  loss_scale: 65536\n"), std::string::npos);
  step.step = 2;
  step.grad_norm = std::nan("");
  EXPECT_EQ(printer.Add(step), "");
  step.step = 3;
  step.values["loss_scale"] = 32768;
  const std::string line = printer.Add(step);
  EXPECT_NE(line.find("grad_norm:  skipped  "), std::string::npos) << line;
  EXPECT_NE(line.find("  skipped: 2  loss_scale: 32768\n"), std::string::npos) << line;
  EXPECT_EQ(
      printer.Summary(),
      "  skipped  2 steps whose gradients were beyond float16; the loss scale is 32768 now\n");
}

TEST(StepPrinter, SmallJobsStillUseSomeMemory) {
  const auto memory = [](int64_t bytes, int64_t budget_bytes) {
    StepPrinter printer({.steps = 1});
    client::JobInfo job;
    job.device_memory_bytes = bytes;
    job.device_budget_bytes = budget_bytes;
    printer.SetPlanned(job);
    const std::string line = printer.Add(Step(0, 1));
    const size_t begin = line.find("memory: ");
    return line.substr(begin, line.find("  ", begin) - begin);
  };
  EXPECT_EQ(memory(int64_t{2} << 20, int64_t{19} << 30), "memory: 0.00195GiB(0.0103%)");
  EXPECT_EQ(memory(10'000, int64_t{64} << 30), "memory: 0.00000931GiB(0.0000146%)");
  EXPECT_EQ(memory(int64_t{120} << 30, int64_t{120} << 30), "memory: 120GiB(100%)");
  EXPECT_EQ(memory(int64_t{3} << 29, 0), "memory: 1.50GiB");
}

TEST(StepPrinter, PrintsFirstEveryNthAndLastStepAndAveragesBetween) {
  StepPrinter printer({.steps = 7, .log_every = 3});
  std::vector<int64_t> printed;
  std::string last;
  for (int64_t i = 0; i < 7; ++i) {
    client::StepMetrics step = Step(i, 1);
    step.seconds = i == 4 ? 1.0 : 0.5;
    const std::string text = printer.Add(step);
    if (!text.empty()) printed.push_back(i + 1);
    if (i == 5) {
      EXPECT_NE(text.find("tps:   1,500"), std::string::npos) << text;
    }
    last = text;
  }
  EXPECT_EQ(printed, (std::vector<int64_t>{1, 3, 6, 7}));
  EXPECT_EQ(last.find("eta"), std::string::npos);
}

TEST(StepPrinter, ShowsValidationWhereThereWasOne) {
  StepPrinter printer({.steps = 0, .log_every = 100});
  printer.Add(Step(0, 1));
  client::StepMetrics step = Step(1, 1);
  step.validation_loss = 1.9876;
  EXPECT_EQ(printer.Add(step), "validate step:    2  loss:   1.9876\n");
  step.values = {{"validation/chats", 2.5}, {"validation/accuracy", 0.875}, {"other", 3}};
  EXPECT_EQ(printer.Add(step),
            "validate step:    2  loss:   1.9876  accuracy: 0.8750  chats: 2.5000\n");
}

TEST(StepPrinter, ShowsTheAccuracyOfClassifiers) {
  StepPrinter printer({.steps = 0, .width = 80});
  client::StepMetrics step = Step(0, 1);
  step.values["accuracy"] = 0.75;
  EXPECT_THAT(printer.Add(step), HasSubstr("  grad_norm:   1.5000  accuracy: 0.7500  "));
}

TEST(StepPrinter, ColourIsOnlyEscapeCodes) {
  StepPrinter plain({.steps = 1});
  StepPrinter color({.steps = 1, .color = true});
  std::string painted = color.Add(Step(0, 2));
  EXPECT_NE(painted.find("\x1b["), std::string::npos);
  for (size_t at = painted.find('\x1b'); at != std::string::npos; at = painted.find('\x1b')) {
    painted.erase(at, painted.find('m', at) - at + 1);
  }
  EXPECT_EQ(painted, plain.Add(Step(0, 2)));
}

TEST(StepPrinter, JsonHasNullForMissingNumbers) {
  StepPrinter printer({.json = true});
  EXPECT_EQ(
      printer.Add(Step(3, 2)),
      "{\"step\":3,\"loss\":2.0,\"grad_norm\":1.5,\"lr\":0.0003,\"tokens\":1000.0,\"seconds\":0.5,"
      "\"validation_loss\":null}\n");
}

client::JobInfo Job() {
  client::JobInfo job;
  job.id = 3;
  job.name = "gpt";
  job.state = client::JobState::kFailed;
  job.reason = "WorkerLost";
  job.message = "worker-1 (pid 12) was lost";
  job.steps = 10;
  job.steps_done = 4;
  job.loss = 2.5;
  job.submitted_unix_ms = 1'000;
  job.started_unix_ms = 2'000;
  job.ended_unix_ms = 62'000;
  job.directory = "state/jobs/3";
  return job;
}

TEST(JobEnd, FailureNamesTheCause) {
  EXPECT_EQ(
      FormatJobEnd(Job()),
      "job 3 gpt FAILED after 4 steps, 1m00s\n  cause    WorkerLost: worker-1 (pid 12) was lost\n"
      "  files    state/jobs/3\n");
}

TEST(JobEnd, ExitCodeTellsMisfitFromFailure) {
  client::JobInfo job = Job();
  EXPECT_EQ(ExitCodeOfJob(job), 1);
  job.reason = "PlanFailed";  // an error of the planner's own, a full disk
  EXPECT_EQ(ExitCodeOfJob(job), 1);
  job.reason = "Infeasible";
  EXPECT_EQ(ExitCodeOfJob(job), 4);
  job.state = client::JobState::kSucceeded;
  EXPECT_EQ(ExitCodeOfJob(job), 0);
}

TEST(Status, SaysWhenThereIsNothing) {
  const std::string text = FormatStatus({}, {}, 0);
  EXPECT_NE(text.find("(no workers)"), std::string::npos);
  EXPECT_NE(text.find("(no active jobs)"), std::string::npos);
}

TEST(Status, CountsOnlyReadyWorkersAndActiveJobs) {
  client::WorkerInfo ready;
  ready.name = "worker-0";
  ready.state = "READY";
  ready.devices = 2;
  ready.busy_devices = 1;
  client::WorkerInfo lost = ready;
  lost.name = "worker-1";
  lost.state = "LOST";
  ready.device_profile = mesh::FormatDeviceProfile(*mesh::DefaultDeviceProfile());
  const std::string text = FormatStatus({ready, lost}, {Job()}, 70'000);
  EXPECT_NE(text.find("50 GF/s, 10 GB/s"), std::string::npos) << text;
  EXPECT_EQ(text.substr(0, text.find("\n\n")), "Workers  1 ready of 2\nDevices  1 busy of 2");
  EXPECT_NE(text.find("(no active jobs)"), std::string::npos);
  EXPECT_NE(text.find("worker-1  LOST"), std::string::npos);
}

TEST(Status, SaysWhatIsWrongWithAJobThatRuns) {
  client::JobInfo job = Job();
  job.state = client::JobState::kRunning;
  job.reason = "SlowRank";
  job.message = "rank 2 takes 1.10 times as long\nas its peers";
  const std::string text = FormatStatus({}, {job}, 70'000);
  EXPECT_NE(text.find("SlowRank"), std::string::npos) << text;
  EXPECT_NE(text.find("\njob 3: rank 2 takes 1.10 times as long"), std::string::npos) << text;
  job.state = client::JobState::kQueued;
  EXPECT_EQ(FormatStatus({}, {job}, 70'000).find("job 3:"), std::string::npos);
}

TEST(Jobs, StatesAreColouredAndNothingElse) {
  client::JobInfo job = Job();
  job.name = "FAILED";
  EXPECT_EQ(FormatJobsTable({job}, 70'000, true),
            "ID  NAME    STATE   STEP  LOSS    AGE    RUNTIME  REASON\n"
            "3   FAILED  \x1b[31mFAILED\x1b[0m  4/10  2.5000  1m09s  1m00s    WorkerLost\n");
  EXPECT_NE(FormatJobEnd(job, true).find("\x1b[31mFAILED\x1b[0m after"), std::string::npos);
  EXPECT_EQ(PaintState(false, "READY"), "READY");
  EXPECT_EQ(PaintState(true, "CORDONED"), "\x1b[33mCORDONED\x1b[0m");
}

TEST(Jobs, EndedSessionsOfToolsAreLeftOutAndCounted) {
  client::JobInfo users = Job();
  client::JobInfo ended = Job();
  ended.id = 4;
  ended.tool = "generate";
  client::JobInfo runs = ended;
  runs.id = 5;
  runs.state = client::JobState::kRunning;
  EXPECT_EQ(WithoutEndedSessions({users, ended, runs}),
            (std::vector<client::JobInfo>{users, runs}));
  EXPECT_EQ(HiddenSessionsNote(1),
            "1 ended session of generate, predict and the like is left out; all: meshwright jobs "
            "--all");
  EXPECT_NE(HiddenSessionsNote(2).find("2 ended sessions"), std::string::npos);
  EXPECT_NE(JobsJson({ended}).find("\"tool\": \"generate\""), std::string::npos);
}

TEST(Jobs, TableAndJsonCarryTheSameJob) {
  EXPECT_EQ(FormatJobsTable({Job()}, 70'000),
            "ID  NAME  STATE   STEP  LOSS    AGE    RUNTIME  REASON\n"
            "3   gpt   FAILED  4/10  2.5000  1m09s  1m00s    WorkerLost\n");
  EXPECT_NE(JobsJson({Job()}).find("\"state\": \"FAILED\""), std::string::npos);
}

}  // namespace
}  // namespace meshwright::cli
