#include "controller/fleet_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kNowMs = 1'700'000'000'000;

proto::JobInfo FleetJob(int64_t id, proto::JobState state) {
  proto::JobInfo job;
  job.id = id;
  job.name = "gpt \"small\"";
  job.state = state;
  job.steps = 100;
  job.submitted_unix_ms = kNowMs - 90'000;
  return job;
}

proto::WorkerInfo FleetWorker(const std::string& name, const std::string& state) {
  proto::WorkerInfo worker;
  worker.name = name;
  worker.host = "h1";
  worker.state = state;
  worker.devices = 4;
  worker.memory_bytes = 1000;
  worker.device_kind = "cpu";
  worker.last_seen_s = 0.5;
  return worker;
}

class FleetMetricsTest : public ::testing::Test {
 protected:
  std::string See(const FleetView& view) {
    fleet_.Observe(view);
    return registry_.Serialize();
  }

  MetricsRegistry registry_;
  ControllerMetrics metrics_{registry_};
  FleetMetrics fleet_{registry_, metrics_};
};

TEST_F(FleetMetricsTest, AJobHasItsNameItsStateItsProgressAndItsWait) {
  proto::JobInfo job = FleetJob(7, proto::JobState::kQueued);
  std::string text = See({kNowMs, {job}, {}});
  EXPECT_THAT(text,
              HasSubstr(R"(meshwright_job_info{job_id="7",layout="",name="gpt \"small\""} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(meshwright_job_state{job_id="7",state="queued"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(meshwright_job_state{job_id="7",state="running"} 0)"));
  EXPECT_THAT(text, HasSubstr("meshwright_job_queue_wait_seconds{job_id=\"7\"} 90\n"));

  job.state = proto::JobState::kRunning;
  job.started_unix_ms = kNowMs - 60'000;
  job.steps_done = 25;
  job.layout = "data=2";
  job.device_memory_bytes = 600;
  job.device_budget_bytes = 1000;
  job.checkpoint_step = 20;
  proto::WorkerInfo worker = FleetWorker("w0", "READY");
  worker.busy_devices = 2;
  text = See({kNowMs, {job}, {worker}, {{"w0", {7, 7, 0, 0}}}});
  EXPECT_THAT(text, HasSubstr(R"(layout="data=2")"));
  EXPECT_THAT(text, Not(HasSubstr(R"(layout="",)"))) << "what it was before is not true any more";
  for (const char* line :
       {"meshwright_job_state{job_id=\"7\",state=\"queued\"} 0\n",
        "meshwright_job_steps{job_id=\"7\"} 100\n", "meshwright_job_steps_done{job_id=\"7\"} 25\n",
        "meshwright_job_queue_wait_seconds{job_id=\"7\"} 30\n",
        "meshwright_job_devices{job_id=\"7\"} 2\n",
        "meshwright_job_device_memory_bytes{job_id=\"7\"} 600\n",
        "meshwright_job_device_memory_limit_bytes{job_id=\"7\"} 1000\n",
        "meshwright_checkpoint_last_step{job_id=\"7\"} 20\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(FleetMetricsTest, CountersOfAJobAreThereBeforeAnythingHappens) {
  const std::string text = See({kNowMs, {FleetJob(7, proto::JobState::kQueued)}, {}});
  for (const char* name : {"meshwright_steps_total", "meshwright_tokens_total",
                           "meshwright_checkpoints_total", "meshwright_checkpoint_failures_total",
                           "meshwright_recoveries_total", "meshwright_model_flops_total"}) {
    EXPECT_THAT(text, HasSubstr(std::string(name) + "{job_id=\"7\"} 0\n"));
  }
  EXPECT_THAT(text, HasSubstr("meshwright_faults_total{kind=\"worker_lost\"} 0\n"));
}

TEST_F(FleetMetricsTest, AJobThatHasEndedSaysWhyAndGoesAfterFiveMinutes) {
  proto::JobInfo job = FleetJob(7, proto::JobState::kFailed);
  job.reason = "WorkerLost";
  job.started_unix_ms = job.submitted_unix_ms + 1000;
  job.ended_unix_ms = kNowMs;
  metrics_.Count(7, JobCount::kCheckpoint, kNowMs);
  std::string text = See({kNowMs + kJobSeriesMs - 1, {job}, {}});
  EXPECT_THAT(
      text,
      HasSubstr(
          "meshwright_job_end_info{job_id=\"7\",reason=\"WorkerLost\",state=\"failed\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("meshwright_job_queue_wait_seconds{job_id=\"7\"} 1\n"));
  text = See({kNowMs + kJobSeriesMs, {job}, {}});
  EXPECT_THAT(text, Not(HasSubstr("job_id=\"7\""))) << "those of ControllerMetrics go, too";
  EXPECT_THAT(See({kNowMs + kJobSeriesMs + 1000, {job}, {}}), Not(HasSubstr("job_id=\"7\"")))
      << "and do not come back";
}

TEST_F(FleetMetricsTest, AWorkerHasStateCapacityAndAgeUntilItIsForgotten) {
  proto::WorkerInfo lost = FleetWorker("w1", "LOST");
  lost.last_seen_s = 42;
  proto::WorkerInfo cordoned = FleetWorker("w2", "READY");
  cordoned.note = "cordoned by an operator";
  proto::WorkerInfo busy = FleetWorker("w0", "READY");
  busy.busy_devices = 3;
  std::string text = See({kNowMs, {}, {busy, lost, cordoned}});
  for (
      const char* line :
      {"meshwright_worker_info{device_kind=\"cpu\",device_name=\"\",host=\"h1\",worker=\"w0\"} 1\n",
       "meshwright_worker_state{state=\"lost\",worker=\"w1\"} 1\n",
       "meshwright_worker_state{state=\"ready\",worker=\"w1\"} 0\n",
       "meshwright_worker_heartbeat_age_seconds{worker=\"w1\"} 42\n",
       "meshwright_worker_devices{worker=\"w0\"} 4\n",
       "meshwright_worker_busy_devices{worker=\"w0\"} 3\n",
       "meshwright_worker_memory_bytes{worker=\"w0\"} 1000\n",
       "meshwright_worker_excluded{worker=\"w2\"} 1\n", "meshwright_devices{state=\"busy\"} 3\n",
       "meshwright_devices{state=\"free\"} 1\n", "meshwright_devices{state=\"unavailable\"} 8\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  text = See({kNowMs, {}, {busy}});
  EXPECT_THAT(text, Not(HasSubstr("w1")));
  EXPECT_THAT(text, HasSubstr("worker=\"w0\""));
  EXPECT_THAT(text, HasSubstr("meshwright_devices{state=\"unavailable\"} 0\n"));
}

TEST_F(FleetMetricsTest, ModelFlopsAreCountedAndMfuIsOfTheLastSteps) {
  proto::StepMetrics step;
  step.seconds = 0.5;
  step.validation_loss = 1;
  metrics_.ObserveSteps(7, {step}, kNowMs);
  EXPECT_THAT(registry_.Serialize(), Not(HasSubstr("meshwright_mfu_ratio"))) << "no plan yet";
  metrics_.SetPlan(7, 1e9, 8e9);
  metrics_.ObserveSteps(7, {step, step}, kNowMs);
  const std::string text = registry_.Serialize();
  EXPECT_THAT(text, HasSubstr("meshwright_model_flops_total{job_id=\"7\"} 2000000000\n"));
  EXPECT_THAT(text, HasSubstr("meshwright_mfu_ratio{job_id=\"7\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("meshwright_steps_total{job_id=\"7\"} 3\n"));
}

}  // namespace
}  // namespace meshwright::controller
