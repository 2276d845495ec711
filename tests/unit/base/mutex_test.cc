#include "base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace meshwright {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A holder asks from a thread of its own: a std::mutex must not be tried by who holds it.
bool IsFree(Mutex& mutex) {
  bool free = false;
  std::thread([&] {
    if (!mutex.TryLock()) return;
    free = true;
    mutex.Unlock();
  }).join();
  return free;
}

TEST(MutexLock, HoldsTheMutexForItsScope) {
  Mutex mutex;
  {
    const MutexLock lock(mutex);
    EXPECT_FALSE(IsFree(mutex));
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(MutexLock, GivesTheMutexUpAndTakesItAgain) {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    lock.Unlock();
    EXPECT_TRUE(IsFree(mutex));
    lock.Lock();
    EXPECT_FALSE(IsFree(mutex));
    lock.Unlock();
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(MutexLock, UnlocksWhatItAdopted) {
  Mutex mutex;
  if (!mutex.TryLock()) FAIL() << "nobody else has it";
  {
    const MutexLock lock(mutex, AdoptLock{});
    EXPECT_FALSE(IsFree(mutex));
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(RecursiveMutexLock, IsTakenAgainByItsHolder) {
  RecursiveMutex mutex;
  const auto callback = [&]() MW_NO_THREAD_SAFETY_ANALYSIS {  // on the holder's thread: the point
    const RecursiveMutexLock lock(mutex);
  };
  const RecursiveMutexLock lock(mutex);
  callback();
}

TEST(CondVar, GivesTheMutexAwayWhileItWaits) {
  Mutex mutex;
  CondVar changed;
  bool waiting = false;
  bool told = false;
  std::thread teller;
  {
    const MutexLock lock(mutex);
    teller = std::thread([&] {
      const MutexLock others(mutex);  // had only while this one waits
      EXPECT_TRUE(waiting);
      told = true;
      changed.NotifyOne();
    });
    waiting = true;
    const auto due = steady_clock::now() + milliseconds(60'000);
    while (!told && changed.WaitUntil(mutex, due)) {
    }
    EXPECT_TRUE(told);
    EXPECT_FALSE(IsFree(mutex));
  }
  teller.join();
  EXPECT_TRUE(IsFree(mutex));
}

TEST(CondVar, WakesAllWhoWait) {
  Mutex mutex;
  CondVar changed;
  int waiting = 0;
  bool go = false;
  const auto wait = [&] {
    const MutexLock lock(mutex);
    ++waiting;
    changed.NotifyAll();
    const auto due = steady_clock::now() + milliseconds(60'000);
    while (!go && changed.WaitUntil(mutex, due)) {
    }
    EXPECT_TRUE(go);
  };
  std::thread one(wait), two(wait);
  {
    const MutexLock lock(mutex);
    while (waiting < 2) changed.Wait(mutex);
    go = true;
    changed.NotifyAll();
  }
  one.join();
  two.join();
}

TEST(CondVar, SaysThatTheTimeHasPassedAndHoldsTheMutexThen) {
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  const auto due = steady_clock::now() + milliseconds(5);
  while (never.WaitUntil(mutex, due)) {
  }
  EXPECT_GE(steady_clock::now(), due);
  EXPECT_FALSE(IsFree(mutex));
  EXPECT_FALSE(never.WaitUntil(mutex, due));  // a deadline that is over is no wait
  while (never.WaitFor(mutex, milliseconds(1))) {
  }
  EXPECT_FALSE(IsFree(mutex));
}

}  // namespace
}  // namespace meshwright
