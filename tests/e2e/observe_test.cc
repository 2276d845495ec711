// What an operator sees of a cluster of processes: logs that outlive who wrote them, a job that
// hangs, a machine that is checked.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>

#include "base/clock.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ObservedCluster : public FaultFixture {
 protected:
  // What a command says, both outputs; its exit code is in code_.
  std::string Says(std::vector<std::string> args) {
    args.insert(args.end(), {"--address", cluster().address()});
    const auto output = RunMeshwright(args);
    EXPECT_TRUE(output.has_value()) << output.error();
    if (!output.has_value()) return "";
    code_ = output->exit.code;
    return output->stdout_text + output->stderr_text;
  }
  pid_t ExecutorOf(int worker) const {
    const std::string log =
        ReadFile(cluster_->File(ProcessCluster::WorkerName(worker) + ".log")).value_or("");
    const std::string text = "runs in executor ";
    const size_t at = log.rfind(text);
    return at == std::string::npos ? 0 : std::atoi(log.c_str() + at + text.size());
  }

  int code_ = -1;
};

TEST_F(ObservedCluster, ALiveWorkersLogIsFetchedFromIt) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const int64_t id = StartJob(2, 1);
  const std::string log = Says({"logs", "--worker", "w1"});
  EXPECT_EQ(code_, 0) << log;
  EXPECT_THAT(log, AllOf(HasSubstr("'w1' joined cluster"), HasSubstr(" runs in executor "),
                         Not(HasSubstr("note:"))));
  EXPECT_THAT(Says({"logs", "--worker", "w1", "--lines", "1"}), Not(HasSubstr("joined cluster")));
  const std::string all = Says({"logs", "--all"});
  EXPECT_THAT(all, AllOf(HasSubstr("w0 | "), HasSubstr("w1 | ")));
  EXPECT_THAT(Says({"logs", "--worker", "w1", "-o", "json"}), HasSubstr(R"({"worker":"w1",)"));
  EXPECT_THAT(Says({"logs", "--worker", "w9"}), HasSubstr("there is no log of a worker 'w9'"));
  EXPECT_EQ(code_, 2);
  // Of a job that is well there is which process it has, and what that has said, which comes with
  // the process's own lines.
  const auto of_job = [&] { return Says({"logs", std::to_string(id), "--worker", "w1"}); };
  const auto loaded = [&] { return of_job().find("ranks loaded") != std::string::npos; };
  ASSERT_TRUE(WaitUntil(loaded, kSoonMs)) << of_job();
  EXPECT_THAT(of_job(),
              AllOf(HasSubstr(fmt::format("runs in executor {}", ExecutorOf(1))),
                    HasSubstr(fmt::format("of job {} | ", id)), Not(HasSubstr("joined cluster"))));
  EXPECT_THAT(Says({"logs", "99", "--worker", "w1"}), HasSubstr("there is no job 99"));
  EXPECT_EQ(code_, 2);
  ASSERT_TRUE(client().Cancel(id).ok());
  (void)EndOf(id);
}

TEST_F(ObservedCluster, AKilledWorkersLastLinesAreWithTheController) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const int64_t id = StartJob(1, 2);
  const std::string executor = fmt::format("runs in executor {}", ExecutorOf(1));
  // They go with a heartbeat.
  const auto told = [&] {
    const std::string kept = Says({"logs", "--worker", "w1", "--kept"});
    return kept.find(executor) != std::string::npos;
  };
  ASSERT_TRUE(WaitUntil(told, 20'000));
  Kill(cluster().worker(1));
  (void)EndOf(id);
  std::string log;
  const auto gone = [&] {
    log = Says({"logs", "--worker", "w1"});
    return log.find("note: worker 'w1' is not here") != std::string::npos;
  };
  EXPECT_TRUE(WaitUntil(gone, 20'000)) << log;
  EXPECT_THAT(log, AllOf(HasSubstr("'w1' joined cluster"), HasSubstr(executor)));
  // Also with the next controller.
  Kill(cluster().controller());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  EXPECT_THAT(Says({"logs", "--worker", "w1"}), HasSubstr(executor));
}

TEST_F(ObservedCluster, HowAJobsProcessEndedIsInTheLogOfTheJobOnItsWorker) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const int64_t id = StartJob(1, 2);
  ASSERT_EQ(::kill(ExecutorOf(1), SIGABRT), 0);
  (void)EndOf(id);
  const std::string job = std::to_string(id);
  const auto expected = HasSubstr(fmt::format("the executor of job {}", id));
  const std::string live = Says({"logs", job, "--worker", "w1"});
  EXPECT_THAT(
      live, AllOf(expected, HasSubstr("was killed by signal 6"), Not(HasSubstr("joined cluster"))));
  const auto told = [&] {
    return Says({"logs", job, "--worker", "w1", "--kept"}).find("was killed by signal 6") !=
           std::string::npos;
  };
  EXPECT_TRUE(WaitUntil(told, 20'000));
  EXPECT_THAT(Says({"logs", job, "--all"}), HasSubstr("w1 | "));
}

TEST_F(ObservedCluster, AWorkerThatDoesNotAnswerIsAnsweredForByTheController) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const auto told = [&] {
    return Says({"logs", "--worker", "w0", "--kept"}).find("joined cluster") != std::string::npos;
  };
  ASSERT_TRUE(WaitUntil(told, 20'000));
  Freeze(cluster().worker(0));
  const int64_t begin_ms = SystemClock().NowMs();
  const std::string log = Says({"logs", "--worker", "w0"});
  EXPECT_LT(SystemClock().NowMs() - begin_ms, 9'000);
  EXPECT_THAT(log, AllOf(HasSubstr("joined cluster"), HasSubstr("note: worker 'w0' ")));
  ASSERT_EQ(::kill(cluster().worker(0).pid(), SIGCONT), 0);
}

TEST_F(ObservedCluster, AStoppedProcessIsNamedWhileItsJobHangs) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const int64_t id = StartJob(1, 2);
  const std::string job = std::to_string(id);
  const pid_t stopped = ExecutorOf(1);
  ASSERT_EQ(::kill(stopped, SIGSTOP), 0);
  std::string text;
  int64_t took_ms = 0;
  const auto named = [&] {
    const int64_t begin_ms = SystemClock().NowMs();
    text = Says({"debug", "hang", job});
    took_ms = SystemClock().NowMs() - begin_ms;
    return text.find("suspect: rank 1 (worker 'w1', device 0)") != std::string::npos &&
           text.find("waits for it") != std::string::npos;
  };
  EXPECT_TRUE(WaitUntil(named, 20'000)) << text;
  EXPECT_LT(took_ms, 10'000);  // A stopped rank is not waited for.
  // Where the signal caught it is chance: within its list, between two steps, or before an order.
  EXPECT_THAT(text, AllOf(HasSubstr("its process is stopped"),
                          HasSubstr(fmt::format("kill -CONT {}, the mw-executor", stopped)),
                          AnyOf(HasSubstr("at instruction "), HasSubstr("between two steps"),
                                HasSubstr("waited for orders"))));
  EXPECT_THAT(Says({"debug", "hang", job, "-o", "json"}),
              AllOf(HasSubstr(R"("cause":"stopped")"), HasSubstr(R"("suspects":[1])")));
  ASSERT_EQ(::kill(stopped, SIGCONT), 0);
  const auto moves = [&] {
    return Says({"debug", "hang", job}).find("it moves") != std::string::npos;
  };
  EXPECT_TRUE(WaitUntil(moves, 20'000));
  ASSERT_TRUE(client().Cancel(id).ok());
  (void)EndOf(id);
  EXPECT_THAT(Says({"debug", "hang", job}), HasSubstr("nothing of it runs now"));
  EXPECT_THAT(Says({"debug", "hang", "99"}), HasSubstr("there is no job 99"));
}

TEST_F(ObservedCluster, TheDoctorReachesTheControllerAndItsWorkers) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const std::string found = Says({"doctor", "--cache-dir", dir_.path()});
  EXPECT_THAT(found, AllOf(HasSubstr("ok    controller"), HasSubstr("ok    worker w0"),
                           HasSubstr("ok    worker w1"), HasSubstr("ok    clock")));
  const std::string token = Write("token", "secret\n");
  ASSERT_EQ(::chmod(token.c_str(), 0644), 0);
  EXPECT_THAT(Says({"doctor", "--cache-dir", dir_.path(), "--token-file", token}),
              HasSubstr("chmod 600 " + token));
  EXPECT_EQ(code_, 1) << "others can read the token";
  EXPECT_THAT(Says({"doctor", "--offline", "-o", "json"}), HasSubstr(R"("check": "cores")"));
}

TEST_F(ObservedCluster, LogsAreJsonLinesWhereTheServersSaySo) {
  ProcessClusterOptions options;
  options.workers = 1;
  options.worker_args = {"--log-format=json", "--log-dir=" + dir_.File("logs")};
  ASSERT_NO_FATAL_FAILURE(Start(std::move(options)));
  EXPECT_THAT(Says({"logs", "--worker", "w0"}),
              AllOf(HasSubstr(R"({"time":"20)"), HasSubstr(R"("component":"worker")")));
  EXPECT_TRUE(FileExists(dir_.File("logs/w0.000000000000000.log")));
}

}  // namespace
}  // namespace meshwright::testing
