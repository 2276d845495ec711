#include "base/failpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace meshwright {
namespace {

TEST(Failpoints, OnePassOfThePlaceDies) {
  const TempDir dir = TempDir::Make().value();
  Failpoints points = Failpoints::Open(dir.File("points").c_str()).value();
  EXPECT_TRUE(points.done());
  EXPECT_FALSE(points.Pass("a"));
  points.Arm("a", 3);
  EXPECT_FALSE(points.Pass("a"));
  EXPECT_FALSE(points.Pass("b"));
  EXPECT_FALSE(points.Pass("a"));
  EXPECT_FALSE(points.done());
  EXPECT_TRUE(points.Pass("a"));
  EXPECT_TRUE(points.done());
  EXPECT_FALSE(points.Pass("a"));
  points.Arm("b");
  points.Disarm();
  EXPECT_FALSE(points.Pass("b"));
}

TEST(Failpoints, OfManyThatPassOneDies) {
  const TempDir dir = TempDir::Make().value();
  Failpoints points = Failpoints::Open(dir.File("points").c_str()).value();
  points.Arm("a", 1000);
  std::atomic<int> deaths = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int pass = 0; pass < 1000; ++pass) deaths += points.Pass("a") ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(deaths, 1);
}

TEST(Failpoints, AnotherProcessDies) {
  const TempDir dir = TempDir::Make().value();
  const std::string path = dir.File("points");
  Failpoints points = Failpoints::Open(path.c_str()).value();
  points.Arm("here");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setenv("MESHWRIGHT_FAILPOINTS", path.c_str(), 1);
    MW_FAILPOINT("there");
    MW_FAILPOINT("here");
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_TRUE(points.done());
}

}  // namespace
}  // namespace meshwright
