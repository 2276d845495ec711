// Recovery from memory with processes: executors and workers are killed, and no checkpoint is
// written anywhere. Jobs go on from the snapshot of a step before, with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/philox.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSteps = 500;

struct Layout {
  const char* name;
  int data, tensor, pipeline;
  int zero;
  int workers;  // of the job
  int devices_of_worker;
};

std::string NameOf(const Layout& layout) { return layout.name; }
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class SnapshotsOf : public FaultFixture {
 protected:
  void StartFor(const Layout& layout, int spares) {
    ProcessClusterOptions options;
    options.workers = layout.workers + spares;
    options.worker_args = {"--devices", std::to_string(layout.devices_of_worker)};
    ASSERT_NO_FATAL_FAILURE(FaultFixture::Start(options));
  }
  static ir::JobRequest JobOf(const Layout& layout) {
    ir::JobRequest job = ByteJob(layout.data, layout.tensor, layout.pipeline, kSteps);
    job.parallel.zero = layout.zero;
    job.fault_tolerance.snapshot_every = 1;
    job.fault_tolerance.max_recoveries = 100;
    return job;
  }
  int64_t Submit(const ir::JobRequest& job) {
    const auto id = cluster().Submit(job, text_);
    EXPECT_TRUE(id.has_value()) << id.error();
    return id.value_or(0);
  }
  static std::string ModelOf(const client::JobInfo& job) {
    return ReadFile(job.directory + "/model.safetensors").value_or("");
  }
  // The weights of an undisturbed run without snapshots.
  std::string Undisturbed(ir::JobRequest job) {
    job.fault_tolerance.enable = false;
    const client::JobInfo ended = client().Wait(Submit(job), 120'000).value();
    EXPECT_EQ(ended.state, JobState::kSucceeded) << ended.message;
    return ModelOf(ended);
  }
  // The process in which a worker's last mesh runs; 0: there was none.
  pid_t ExecutorOf(int worker) const {
    const std::string log =
        ReadFile(cluster_->File(ProcessCluster::WorkerName(worker) + ".log")).value_or("");
    const std::string text = "runs in executor ";
    const size_t at = log.rfind(text);
    return at == std::string::npos ? 0 : std::atoi(log.c_str() + at + text.size());
  }
  // A worker whose devices the only job has.
  int WorkerOfTheJob() {
    const std::vector<client::WorkerInfo> workers = client().Workers().value();
    for (const client::WorkerInfo& worker : workers) {
      if (worker.state == "READY" && worker.busy_devices > 0)
        return std::stoi(worker.name.substr(1));
    }
    ADD_FAILURE() << "no worker works for the job";
    return 0;
  }
  static void ExpectEveryStepOnce(const std::vector<client::StepMetrics>& steps, int64_t count) {
    ASSERT_EQ(static_cast<int64_t>(steps.size()), count);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(steps[static_cast<size_t>(i)].step, i);
  }
  std::string LogsOf(int64_t id) {
    std::string all;
    const std::vector<std::string> lines = client().Logs(id).value();
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
  static int Count(const std::string& text, const std::string& what) {
    int count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++count;
    }
    return count;
  }
  void ExpectRecovered(int64_t id, int times, const std::string& expected) {
    const auto followed = cluster().Follow(id);
    ASSERT_TRUE(followed.has_value()) << followed.error();
    const std::string logs = LogsOf(id);
    EXPECT_EQ(followed->info.state, JobState::kSucceeded) << followed->info.message << logs;
    ExpectEveryStepOnce(followed->steps, kSteps);
    EXPECT_EQ(ModelOf(followed->info), expected) << logs;
    EXPECT_EQ(Count(logs, "goes on from the snapshot of step"), times) << logs;
    EXPECT_THAT(logs, Not(HasSubstr("from the beginning")));
  }

  const std::string text_ = SampleText(60'000);
};

class ExecutorsKilledOf : public SnapshotsOf, public ::testing::WithParamInterface<Layout> {};

TEST_P(ExecutorsKilledOf, GoOnFromTheStepBeforeWithTheSameBits) {
  const Layout& layout = GetParam();
  ASSERT_NO_FATAL_FAILURE(StartFor(layout, 0));
  const std::string expected = Undisturbed(JobOf(layout));
  const int64_t id = Submit(JobOf(layout));
  // Steps and executors that nobody has chosen, but the same in every run of the test.
  constexpr int kKills = 3;
  for (int kill = 0; kill < kKills; ++kill) {
    const uint64_t draw = PhiloxBits(7, 1, 0, static_cast<uint64_t>(kill));
    ASSERT_TRUE(cluster().RunUntil(id, 100 * (kill + 1) + static_cast<int64_t>(draw % 50)).ok());
    const int worker = static_cast<int>(draw / 100 % static_cast<uint64_t>(layout.workers));
    ASSERT_EQ(::kill(ExecutorOf(worker), SIGKILL), 0);
  }
  ExpectRecovered(id, kKills, expected);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ExecutorsKilledOf,
                         ::testing::Values(Layout{"One", 1, 1, 1, 0, 1, 1},
                                           Layout{"Data", 2, 1, 1, 0, 2, 1},
                                           Layout{"Tensor", 1, 2, 1, 0, 2, 1},
                                           Layout{"Zero", 2, 1, 1, 1, 1, 2},
                                           Layout{"Pipeline", 1, 1, 2, 0, 2, 1}),
                         [](const auto& each) { return NameOf(each.param); });

class WorkersKilledOf : public SnapshotsOf, public ::testing::WithParamInterface<Layout> {};

// Of what they hold other workers have replicas, or copies: a spare reads it there.
TEST_P(WorkersKilledOf, GoOnWithASpareFromTheStepBeforeWithTheSameBits) {
  const Layout& layout = GetParam();
  ASSERT_NO_FATAL_FAILURE(StartFor(layout, 2));
  const std::string expected = Undisturbed(JobOf(layout));
  const int64_t id = Submit(JobOf(layout));
  constexpr int kKills = 2;
  for (int kill = 0; kill < kKills; ++kill) {
    const uint64_t draw = PhiloxBits(8, 1, 0, static_cast<uint64_t>(kill));
    ASSERT_TRUE(cluster().RunUntil(id, 120 * (kill + 1) + static_cast<int64_t>(draw % 50)).ok());
    Kill(cluster().worker(WorkerOfTheJob()));
  }
  ExpectRecovered(id, kKills, expected);
}

INSTANTIATE_TEST_SUITE_P(Layouts, WorkersKilledOf,
                         ::testing::Values(Layout{"One", 1, 1, 1, 0, 1, 1},
                                           Layout{"Data", 2, 1, 1, 0, 2, 1},
                                           Layout{"Tensor", 1, 2, 1, 0, 2, 1},
                                           Layout{"Zero", 2, 1, 1, 1, 2, 1},
                                           Layout{"Pipeline", 1, 1, 2, 0, 2, 1}),
                         [](const auto& each) { return NameOf(each.param); });

}  // namespace
}  // namespace meshwright::testing
