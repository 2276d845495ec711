#include "base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <future>
#include <thread>

namespace meshwright {
namespace {

TEST(ShutdownSignal, ReturnsEachSignalOnceInOrder) {
  ShutdownSignal shutdown = ShutdownSignal::Install().value();
  EXPECT_EQ(shutdown.Wait(0), std::nullopt);
  raise(SIGTERM);
  raise(SIGINT);
  EXPECT_EQ(shutdown.Wait(1000), SIGTERM);
  EXPECT_EQ(shutdown.Wait(1000), SIGINT);
  EXPECT_EQ(shutdown.Wait(1), std::nullopt);
}

TEST(ShutdownSignal, WakesAWaitWhateverThreadTakesTheSignal) {
  ShutdownSignal shutdown = ShutdownSignal::Install().value();
  std::promise<std::optional<int>> answer;
  std::thread waiter([&] { answer.set_value(shutdown.Wait(30'000)); });
  kill(getpid(), SIGINT);
  EXPECT_EQ(answer.get_future().get(), SIGINT);
  waiter.join();
}

TEST(ShutdownSignal, RestoresWhatWasThere) {
  struct sigaction before {};
  sigaction(SIGTERM, nullptr, &before);
  { const ShutdownSignal shutdown = ShutdownSignal::Install().value(); }
  struct sigaction after {};
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  { const ShutdownSignal again = ShutdownSignal::Install().value(); }
}

TEST(ShutdownSignal, MovesWithoutLosingSignals) {
  ShutdownSignal first = ShutdownSignal::Install().value();
  raise(SIGTERM);
  ShutdownSignal second = std::move(first);
  EXPECT_EQ(second.Wait(1000), SIGTERM);
}

TEST(IgnoreBrokenPipes, TurnsTheSignalIntoAnError) {
  IgnoreBrokenPipes();
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(ends[1]);
}

}  // namespace
}  // namespace meshwright
