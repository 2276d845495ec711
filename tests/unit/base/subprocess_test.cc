#include "base/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"
#include "base/signals.h"

namespace meshwright {
namespace {

SubprocessOptions Shell(const std::string& script) {
  SubprocessOptions options;
  options.args = {"sh", "-c", script};
  return options;
}

TEST(RunProcess, CollectsBothOutputsAndTheExitCode) {
  const ProcessOutput output = RunProcess(Shell("echo out; echo err >&2; exit 3"), 10'000).value();
  EXPECT_EQ(output.stdout_text, "out\n");
  EXPECT_EQ(output.stderr_text, "err\n");
  EXPECT_EQ(output.exit.code, 3);
  EXPECT_EQ(output.exit.ToString(), "exited with 3");
}

TEST(RunProcess, DoesNotBlockOnMoreOutputThanAPipeHolds) {
  const ProcessOutput output =
      RunProcess(Shell("head -c 1000000 /dev/zero; head -c 500000 /dev/zero >&2"), 30'000).value();
  EXPECT_EQ(output.stdout_text.size(), 1'000'000u);
  EXPECT_EQ(output.stderr_text.size(), 500'000u);
  EXPECT_TRUE(output.exit.ok());
}

TEST(RunProcess, EndsAProgramThatTakesTooLong) {
  const Result<ProcessOutput> output = RunProcess(Shell("exec sleep 1000"), 50);
  ASSERT_FALSE(output.has_value());
  EXPECT_EQ(output.error().code(), StatusCode::kDeadlineExceeded);
}

TEST(Subprocess, KeepsOnlyTheDescriptorsThatItIsToldTo) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  SubprocessOptions options =
      Shell("test -e /proc/self/fd/" + std::to_string(read_end.get()) +
            " && echo leaked; echo kept >&" + std::to_string(write_end.get()));
  options.keep_fds = {write_end.get()};
  EXPECT_EQ(RunProcess(options, 10'000).value().stdout_text, "");
  char text[8] = {};
  EXPECT_EQ(::read(read_end.get(), text, sizeof(text)), 5);
  EXPECT_STREQ(text, "kept\n");
}

TEST(Subprocess, PassesEnvironmentAndFolder) {
  const TempDir folder = TempDir::Make().value();
  SubprocessOptions options = Shell("echo $MW_TEST_VALUE; pwd -P; echo $HOME");
  options.env = {{"MW_TEST_VALUE", "a b"}, {"HOME", "/nowhere"}};
  options.directory = folder.path();
  EXPECT_EQ(RunProcess(options, 10'000).value().stdout_text,
            "a b\n" + folder.path() + "\n/nowhere\n");
}

TEST(Subprocess, SaysWhyAProgramCannotStart) {
  SubprocessOptions options;
  EXPECT_EQ(Subprocess::Start(options).error().code(), StatusCode::kInvalidArgument);
  options.args = {"no-such-program-anywhere"};
  const Status missing = Subprocess::Start(options).error();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("no-such-program-anywhere"), std::string::npos) << missing;
  options.args = {"/no/such/program"};
  EXPECT_EQ(Subprocess::Start(options).error().code(), StatusCode::kNotFound);
  options.args = {"/etc/passwd"};
  EXPECT_EQ(Subprocess::Start(options).error().code(), StatusCode::kPermissionDenied);
  options.args = {"true"};
  options.directory = "/no/such/folder";
  EXPECT_EQ(Subprocess::Start(options).error().code(), StatusCode::kNotFound);
}

TEST(Subprocess, AppendsOutputToFiles) {
  const TempDir folder = TempDir::Make().value();
  SubprocessOptions options = Shell("echo line");
  options.stdout_to = OutputTo::File(folder.File("log"));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Subprocess::Start(options).value()->Wait(10'000).has_value());
  }
  EXPECT_EQ(ReadFile(folder.File("log")).value(), "line\nline\n");
}

TEST(Subprocess, WaitGivesUpAtItsDeadlineAndMayBeRepeated) {
  SubprocessOptions options;
  options.args = {"sleep", "1000"};
  const std::unique_ptr<Subprocess> child = Subprocess::Start(options).value();
  EXPECT_EQ(child->Wait(10).error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(child->Running());
  ASSERT_TRUE(child->Signal(SIGKILL).ok());
  const ExitStatus exit = child->Wait(10'000).value();
  EXPECT_EQ(exit.signal, SIGKILL);
  EXPECT_EQ(exit.ToString(), "killed by signal 9 (Killed)");
  EXPECT_FALSE(child->Running());
  EXPECT_EQ(child->Wait(0).value().signal, SIGKILL);
  EXPECT_EQ(child->Signal(SIGTERM).code(), StatusCode::kNotFound);
}

TEST(Subprocess, TerminateLetsAProgramCleanUp) {
  SubprocessOptions options = Shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done");
  options.stdout_to = OutputTo::Pipe();
  const std::unique_ptr<Subprocess> child = Subprocess::Start(options).value();
  const UniqueFd out = child->TakeStdout();
  char ready[6];
  ASSERT_GT(read(out.get(), ready, sizeof(ready)), 0);
  EXPECT_EQ(child->Terminate(10'000).value().code, 7);
}

TEST(Subprocess, TerminateKillsWhatDoesNotListen) {
  SubprocessOptions options = Shell("trap '' TERM; echo ready; while :; do sleep 0.01; done");
  options.stdout_to = OutputTo::Pipe();
  const std::unique_ptr<Subprocess> child = Subprocess::Start(options).value();
  const UniqueFd out = child->TakeStdout();
  char ready[6];
  ASSERT_GT(read(out.get(), ready, sizeof(ready)), 0);
  EXPECT_EQ(child->Terminate(50).value().signal, SIGKILL);
}

TEST(Subprocess, ItsDeathKillsAndReapsTheChild) {
  SubprocessOptions options;
  options.args = {"sleep", "1000"};
  pid_t pid = 0;
  {
    const std::unique_ptr<Subprocess> child = Subprocess::Start(options).value();
    pid = child->pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1) << "reaped: the number is free again";
}

TEST(Subprocess, DeathSignalEndsTheChildWithTheThreadThatStartedIt) {
  std::unique_ptr<Subprocess> child;
  std::thread starter([&child] {
    SubprocessOptions options;
    options.args = {"sleep", "1000"};
    options.death_signal = SIGTERM;
    child = Subprocess::Start(options).value();
  });
  starter.join();
  EXPECT_EQ(child->Wait(10'000).value().signal, SIGTERM);
}

TEST(Subprocess, ChildrenGetDefaultSignalHandlingAndNoStrayDescriptors) {
  IgnoreBrokenPipes();
  // `yes` ends by SIGPIPE when head has read its line; with the signal ignored it would complain.
  const ProcessOutput pipes = RunProcess(Shell("yes | head -1"), 10'000).value();
  EXPECT_EQ(pipes.stdout_text, "y\n");
  EXPECT_EQ(pipes.stderr_text, "");
  const ProcessOutput fds = RunProcess(Shell("ls /proc/self/fd"), 10'000).value();
  EXPECT_EQ(fds.stdout_text, "0\n1\n2\n3\n") << "3 is the folder that ls reads";
}

}  // namespace
}  // namespace meshwright
