// Jobs and the queue by themselves: no cluster but a list of workers, no meshes.
#include "controller/job_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "controller/core_view.h"
#include "controller/job_queue.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::ErrorKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CoreOptions SmallOptions() {
  CoreOptions options;
  options.max_requeues = 2;
  options.max_jobs = 2;
  return options;
}

class BookScene {
 public:
  JobEntry* Submit(const std::string& op_id, int64_t devices = 1) {
    const auto request =
        std::make_shared<const ir::JobRequest>(SimCluster::MakeJob(devices, 1, 1, /*steps=*/4));
    return book.Submit(SubmitJob{CallId(1), op_id, request, "12345"}, OkStatus(), context);
  }
  template <typename T>
  std::vector<T> Take() const {
    std::vector<T> found;
    for (const Effect& effect : context.effects) {
      if (const auto* each = std::get_if<T>(&effect)) found.push_back(*each);
    }
    return found;
  }

  const CoreOptions options = SmallOptions();
  Context context{options, Now{100'000, 1'700'000'000'000}};
  JobBook book{1};
};

TEST(JobBook, TwoJobsDoNotSaveInOneFolder) {
  BookScene scene;
  const auto submit = [&](const std::string& op_id, const ir::FolderRef& folder) {
    auto request = SimCluster::MakeJob(1, 1, 1, /*steps=*/4);
    request.checkpoint.enable = true;
    request.checkpoint.folder = folder;
    return scene.book.Submit(
        SubmitJob{CallId(1), op_id, std::make_shared<const ir::JobRequest>(request), "12345"},
        OkStatus(), scene.context);
  };
  JobEntry* const first = submit("a", {"", "runs/x"});
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(submit("b", {"fast", "runs/x"}), nullptr) << "a root without a name may be any";
  EXPECT_THAT(scene.Take<Reply>().back().status.message(), HasSubstr("job 1 keeps"));
  EXPECT_NE(submit("c", {"", "runs/y"}), nullptr);
  EXPECT_NE(submit("d", {}), nullptr) << "a folder of its own";
  scene.book.At(JobId(1)).record.state = JobState::kSucceeded;
  EXPECT_NE(submit("e", {"", "runs/x"}), nullptr);
}

TEST(JobBook, AJobKeepsTheNameOfItsTool) {
  BookScene scene;
  SubmitJob event{CallId(1), "a", nullptr, "12345", "generate"};
  event.request = std::make_shared<const ir::JobRequest>(SimCluster::MakeJob(1, 1, 1, 4));
  const JobEntry* const job = scene.book.Submit(event, OkStatus(), scene.context);
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(job->record.tool, "generate");
  EXPECT_EQ(InfoOf(*job, scene.options).tool, "generate");
  ASSERT_EQ(scene.Take<Persist>().size(), 1u);
  EXPECT_EQ(scene.Take<Persist>()[0].batch.jobs[0].tool, "generate");
  EXPECT_EQ(scene.Submit("b")->record.tool, "");
}

RestoredJob Stored(int64_t id, JobState state, int64_t tries = 0) {
  RestoredJob restored{{}, nullptr};
  restored.record.id = id;
  restored.record.op_id = "op" + std::to_string(id);
  restored.record.state = state;
  restored.record.tries = tries;
  restored.record.spec = "123";
  if (!proto::IsTerminal(state)) {
    restored.request =
        std::make_shared<const ir::JobRequest>(SimCluster::MakeJob(1, 1, 1, /*steps=*/4));
  }
  return restored;
}

TEST(JobBook, RestoresEachJobAsItsStateDemands) {
  BookScene scene;
  const auto ended = scene.book.Restore(Stored(2, JobState::kSucceeded), scene.options);
  EXPECT_TRUE(ended.failure.ok());
  EXPECT_TRUE(ended.job.ended());
  const auto planned = scene.book.Restore(Stored(3, JobState::kPlanning, 2), scene.options);
  EXPECT_TRUE(planned.failure.ok());
  EXPECT_EQ(planned.job.record.state, JobState::kQueued);
  EXPECT_NE(planned.job.request, nullptr);
  const auto ran = scene.book.Restore(Stored(4, JobState::kRunning), scene.options);
  EXPECT_EQ(ran.failure.kind, ErrorKind::kControllerRestarted);
  const auto killer = scene.book.Restore(Stored(5, JobState::kPlanning, 3), scene.options);
  EXPECT_EQ(killer.failure.kind, ErrorKind::kPlanFailed);
  EXPECT_THAT(killer.failure.message, HasSubstr("ended 3 times"));
  RestoredJob damaged = Stored(6, JobState::kQueued);
  damaged.request = Fail(InvalidArgument("damaged"));
  EXPECT_EQ(scene.book.Restore(std::move(damaged), scene.options).failure.kind,
            ErrorKind::kStoreFailed);
  EXPECT_EQ(scene.book.request_bytes(), 3) << "of job 3 alone";

  EXPECT_EQ(scene.Submit("op3"), nullptr) << "it is known";
  EXPECT_EQ(scene.Take<Reply>().back().job, JobId(3));
  EXPECT_EQ(scene.Submit("new")->id(), JobId(7));
}

TEST(JobBook, AnEndThatCannotBeWrittenIsToldOnceAndWrittenAgain) {
  BookScene scene;
  JobEntry& job = *scene.Submit("op");
  scene.book.End(job, proto::MakeError(ErrorKind::kCancelled, Cancelled("by the user")),
                 scene.context);
  EXPECT_EQ(job.record.state, JobState::kCancelled);
  EXPECT_EQ(scene.book.request_bytes(), 0);
  // The write has failed, and with it what comes behind it.
  scene.context.effects.clear();
  scene.book.EndNotWritten(job, scene.context);
  EXPECT_EQ(scene.Take<JobChanged>().size(), 1u);
  EXPECT_THAT(scene.Take<Persist>(), IsEmpty());
  scene.context.effects.clear();
  scene.book.WriteEndsAgain(scene.context);
  ASSERT_EQ(scene.Take<Persist>().size(), 1u);
  EXPECT_TRUE(scene.Take<Persist>()[0].required);
  EXPECT_THAT(scene.Take<JobChanged>(), IsEmpty());
  scene.context.effects.clear();
  scene.book.WriteEndsAgain(scene.context);
  EXPECT_TRUE(scene.context.effects.empty()) << "as far as it knows, it is written now";
}

TEST(JobBook, ForgetsTheOldestEndsButForThoseThatAreKept) {
  BookScene scene;
  const auto cancelled = proto::MakeError(ErrorKind::kCancelled, Cancelled("by the user"));
  for (const char* op : {"a", "b", "c", "d"}) {
    JobEntry& job = *scene.Submit(op);
    if (job.id() != JobId(2)) scene.book.End(job, cancelled, scene.context);
  }
  EXPECT_THAT(scene.book.Trim({JobId(1)}, scene.context), ElementsAre(JobId(3), JobId(4)));
  EXPECT_NE(scene.book.Find(JobId(1)), nullptr) << "its mesh has not let go";
  EXPECT_NE(scene.book.Find(JobId(2)), nullptr) << "it has not ended";
  EXPECT_EQ(scene.Submit("b"), nullptr);
  EXPECT_EQ(scene.Submit("c")->id(), JobId(5)) << "nobody remembers";
}

// ---- JobQueue -----------------------------------------------------------------------------------

// A READY worker of two devices that has been there for a while.
class QueueScene : public BookScene {
 public:
  QueueScene() {
    proto::Register info;
    info.name = "w";
    info.host_id = "host";
    info.devices = 2;
    members.Admit(SessionId(1), info, {}, 0);
    (void)members.Apply(members.At("w"), WorkerEvent::kSeen, 0);
  }
  JobId Queue(const std::string& op, int64_t devices) {
    const JobId job = Submit(op, devices)->id();
    queue.Add(job);
    return job;
  }
  std::optional<JobQueue::Departure> Next() {
    return queue.Next(book, ClusterView{members, {}}, context);
  }
  std::string WhyWaits(JobId job) { return book.At(job).record.reason; }

  Membership members;
  JobQueue queue;
};

TEST(JobQueue, PlacesTheHeadOnceItsTryIsOnDiskAndTellsTheOthersWhyTheyWait) {
  QueueScene scene;
  const JobId first = scene.Queue("a", 1);
  const JobId second = scene.Queue("b", 1);
  EXPECT_FALSE(scene.Next()) << "its try has to be written first";
  EXPECT_EQ(scene.Take<PlaceNext>().size(), 1u);
  EXPECT_EQ(scene.Take<Persist>().back().batch.jobs.at(0).tries, 1);
  EXPECT_EQ(scene.WhyWaits(second), "QueuedBehind");
  const auto departure = scene.Next();
  ASSERT_TRUE(departure.has_value());
  EXPECT_EQ(departure->job.id(), first);
  EXPECT_TRUE(departure->failure.ok());
  EXPECT_EQ(departure->devices.size(), 1u);
  EXPECT_TRUE(scene.queue.IsTrying(first)) << "until it is planned";
  EXPECT_THAT(scene.queue.jobs(), ElementsAre(second));
}

TEST(JobQueue, WhoComesBackStandsWhereItStood) {
  QueueScene scene;
  const JobId first = scene.Queue("a", 1);
  const JobId second = scene.Queue("b", 1);
  ASSERT_FALSE(scene.Next());
  ASSERT_TRUE(scene.Next());
  scene.queue.DropTry(scene.book.At(first), scene.context);
  scene.queue.Add(first);
  EXPECT_THAT(scene.queue.jobs(), ElementsAre(first, second));
  EXPECT_EQ(scene.book.At(first).record.tries, 0) << "it was not the job's doing";
  EXPECT_FALSE(scene.Next());
  EXPECT_TRUE(scene.queue.IsTrying(first)) << "although the cluster looks as it did";
}

TEST(JobQueue, AHeadThatWaitsIsTriedAgainOnlyWhenTheClusterLooksDifferent) {
  QueueScene scene;
  const JobId other = scene.Submit("other")->id();
  scene.members.SetOwner("w", 0, other);
  const JobId job = scene.Queue("a", 2);
  EXPECT_FALSE(scene.Next());
  EXPECT_FALSE(scene.Next()) << "one of two devices is busy";
  EXPECT_EQ(scene.WhyWaits(job), "NoCapacity");
  EXPECT_EQ(scene.book.At(job).record.tries, 0);
  EXPECT_FALSE(scene.Next());
  EXPECT_FALSE(scene.queue.IsTrying(job));
  scene.members.SetOwner("w", 0, JobId(0));
  EXPECT_FALSE(scene.Next());
  EXPECT_TRUE(scene.Next().has_value());
}

TEST(JobQueue, AJobThatCanNeverFitLeavesWithAFailure) {
  QueueScene scene;
  const JobId job = scene.Queue("a", 3);
  scene.context.now.unix_ms += 60'000;
  EXPECT_FALSE(scene.Next());
  const auto departure = scene.Next();
  ASSERT_TRUE(departure.has_value());
  EXPECT_EQ(departure->job.id(), job);
  EXPECT_EQ(departure->failure.kind, ErrorKind::kInfeasible);
  EXPECT_TRUE(scene.queue.jobs().empty());
}

}  // namespace
}  // namespace meshwright::controller
