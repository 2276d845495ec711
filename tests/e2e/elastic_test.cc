// Jobs that go on with fewer devices, with processes: by a program made ahead, and back to their
// plan when the host is back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::HasSubstr;
using ::testing::Not;

class ElasticJobs : public FaultFixture {
 protected:
  void StartWith(int workers) {
    ProcessClusterOptions options;
    options.workers = workers;
    options.controller_args = {"--return-after-s", "1"};
    ASSERT_NO_FATAL_FAILURE(FaultFixture::Start(options));
  }
  int64_t Submit(const ir::JobRequest& job) {
    const auto id = cluster().Submit(job, SampleText(60'000));
    EXPECT_TRUE(id.has_value()) << id.error();
    return id.value_or(0);
  }
  std::string LogsOf(int64_t id) {
    std::string all;
    const std::vector<std::string> lines = client().Logs(id).value();
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
  bool Says(int64_t id, const std::string& text) {
    return WaitUntil([&] { return LogsOf(id).find(text) != std::string::npos; }, kSoonMs);
  }
  std::string LayoutOf(int64_t id) { return client().Get(id).value().layout; }
  bool Goes(int64_t id) {
    return cluster().RunUntil(id, client().Get(id).value().steps_done + 20).ok();
  }
};

TEST_F(ElasticJobs, OneThatLosesAHostGoesOnByAProgramMadeAheadAndReturnsWhenThereIsAnother) {
  ASSERT_NO_FATAL_FAILURE(StartWith(2));
  const int64_t id = Submit(ByteJob(2, 1, 1, kForeverSteps));
  ASSERT_TRUE(Says(id, "prepared for the loss of a worker: data=1 tensor=1")) << LogsOf(id);
  Kill(cluster().worker(1));
  ASSERT_TRUE(Says(id, "goes on with fewer devices, by the program made ahead")) << LogsOf(id);
  ASSERT_TRUE(Goes(id)) << LogsOf(id);
  EXPECT_THAT(LayoutOf(id), HasSubstr("data=1 "));
  EXPECT_THAT(LogsOf(id), Not(HasSubstr("planning anew")));
  ASSERT_TRUE(cluster().AddWorker().ok());
  ASSERT_TRUE(Says(id, "returning to its plan")) << LogsOf(id);
  ASSERT_TRUE(Says(id, "moved in ")) << LogsOf(id);
  EXPECT_THAT(LayoutOf(id), HasSubstr("data=2 "));
  EXPECT_THAT(LogsOf(id), HasSubstr(", 0 steps are run again"));
  ASSERT_TRUE(Goes(id)) << LogsOf(id);
  EXPECT_TRUE(client().Cancel(id).ok());
  EXPECT_EQ(EndOf(id).state, JobState::kCancelled);
}

TEST_F(ElasticJobs, OneThatShrinksKeepsEverythingButTheReplicas) {
  ASSERT_NO_FATAL_FAILURE(StartWith(4));
  ir::JobRequest job = ByteJob(2, 2, 1, kForeverSteps);
  job.fault_tolerance.elastic = ir::Elastic::kShrink;
  const int64_t id = Submit(job);
  ASSERT_TRUE(Says(id,
                   "prepared for the loss of a worker: data=1 tensor=2 pipeline=1 "
                   "microbatches=2"))
      << LogsOf(id);
  Kill(cluster().worker(3));
  ASSERT_TRUE(Says(id, "recovered in ")) << LogsOf(id);
  EXPECT_THAT(LayoutOf(id), HasSubstr("data=1 tensor=2 pipeline=1 microbatches=2"));
  ASSERT_TRUE(Goes(id)) << LogsOf(id);
  EXPECT_TRUE(client().Cancel(id).ok());
  EXPECT_EQ(EndOf(id).state, JobState::kCancelled);
}

// Four replicas share the experts of a layer, one each. Of the three that are left two go on, as
// three divide no batch of eight rows; what they share of the experts is the planner's choice.
TEST_F(ElasticJobs, AMixtureThatLosesAHostGoesOnWithFewer) {
  ASSERT_NO_FATAL_FAILURE(StartWith(4));
  TinyOptions options = ByteOptions();
  options.family = "mixtral";
  ir::JobRequest job = ByteJob(4, 1, 1, 300, options);
  job.parallel.expert = 4;
  job.fault_tolerance.elastic = ir::Elastic::kReplan;
  const auto undisturbed = cluster().Follow(Submit(job));
  ASSERT_TRUE(undisturbed.has_value()) << undisturbed.error();
  ASSERT_EQ(undisturbed->info.state, JobState::kSucceeded) << undisturbed->info.message;
  EXPECT_THAT(undisturbed->info.layout, HasSubstr("data=4 expert=4 "));
  const int64_t id = Submit(job);
  ASSERT_TRUE(Says(id, "prepared for the loss of a worker: data=2 ")) << LogsOf(id);
  ASSERT_TRUE(cluster().RunUntil(id, 50).ok()) << LogsOf(id);
  Kill(cluster().worker(3));
  const auto ended = cluster().Follow(id);
  ASSERT_TRUE(ended.has_value()) << ended.error();
  ASSERT_EQ(ended->info.state, JobState::kSucceeded) << ended->info.message << LogsOf(id);
  EXPECT_THAT(LogsOf(id), HasSubstr("goes on with fewer devices"));
  EXPECT_THAT(ended->info.layout, HasSubstr("data=2 "));
  EXPECT_NEAR(ended->info.loss, undisturbed->info.loss, 1e-3);
}

}  // namespace
}  // namespace meshwright::testing
