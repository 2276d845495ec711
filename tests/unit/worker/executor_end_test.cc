// What is said of an executor that ended, and what follows from devices that are lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "worker/executor_process.h"
#include "worker/lost_devices.h"

namespace meshwright::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ExecutorEnd Killed(int signal) {
  ExecutorEnd end;
  end.exit = ExitStatus{0, signal};
  end.last.devices = {{2, "step", 7, 12}};
  return end;
}

TEST(ExecutorEnd, SaysSignalAndPlace) {
  EXPECT_EQ(Killed(SIGSEGV).ToString(),
            "was killed by signal 11 (Segmentation fault) in step 7 of program 'step': rank 2 at "
            "instruction 12");
  EXPECT_THAT(Killed(SIGSEGV).Advice(), HasSubstr("defect"));
  ExecutorEnd exited;
  exited.exit = ExitStatus{3, 0};
  exited.last.doing = MeshDoing::kLoading;
  EXPECT_EQ(exited.ToString(), "exited with 3 while it loaded the programs");
}

TEST(ExecutorEnd, TellsAKillForWantOfMemoryFromAnother) {
  ExecutorEnd end = Killed(SIGKILL);
  EXPECT_THAT(end.ToString(), HasSubstr("perhaps the kernel killed it for want of memory"));
  EXPECT_THAT(end.Advice(), HasSubstr("more memory"));
  end.out_of_memory = true;
  EXPECT_THAT(end.ToString(), AllOf(HasSubstr("the kernel killed it for want of memory"),
                                    Not(HasSubstr("perhaps"))));
  EXPECT_THAT(end.Advice(), HasSubstr("more memory"));
  end.out_of_memory = false;
  EXPECT_THAT(end.ToString(), Not(HasSubstr("memory")));
  EXPECT_THAT(end.Advice(), HasSubstr("submit the job again"));
  end.killed = true;
  end.out_of_memory.reset();
  EXPECT_THAT(end.ToString(), Not(HasSubstr("memory"))) << "the supervisor did it";
}

TEST(ExecutorEnd, IsAnErrorWithWorkerPlaceAndTheLastLines) {
  ExecutorEnd end = Killed(SIGABRT);
  end.output = "worker/x.cc:1 check failed: a > b";
  const proto::RuntimeError error = end.ToError("the executor of job 3", "w1");
  EXPECT_EQ(error.kind, proto::ErrorKind::kExecutorLost);
  EXPECT_FALSE(error.MayBeVictim());
  EXPECT_EQ(error.worker, "w1");
  EXPECT_EQ(error.step, 7);
  EXPECT_EQ(error.instruction, 12);
  EXPECT_EQ(error.device, 2);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("worker 'w1': the executor of job 3 was killed by signal 6"),
                    HasSubstr("its last lines:\nworker/x.cc:1 check failed: a > b")));
  end = Killed(SIGKILL);
  end.out_of_memory = true;
  EXPECT_EQ(end.ToError("x", "w1").code, StatusCode::kResourceExhausted);
}

TEST(LostDevices, AreReportedWhenNewExecutorsDoNotMendThem) {
  std::vector<std::string> reported;
  LostDevices devices([&](const Status& cause) { reported.emplace_back(cause.message()); });
  devices.Lost(Unavailable("1"));
  devices.Lost(Unavailable("2"));
  devices.Worked();
  devices.Lost(Unavailable("3"));
  devices.Lost(Unavailable("4"));
  EXPECT_TRUE(reported.empty());
  devices.Lost(Unavailable("5"));
  EXPECT_EQ(reported, std::vector<std::string>{"5"});
  devices.LostForGood(Unavailable("6"));
  EXPECT_EQ(reported.back(), "6");
}

}  // namespace
}  // namespace meshwright::worker
