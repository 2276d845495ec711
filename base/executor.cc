#include "base/executor.h"

#include <pthread.h>

#include <algorithm>
#include <exception>

#include "base/check.h"

namespace meshwright {
namespace {

// Which executor the current thread belongs to.
thread_local const Executor* current_executor = nullptr;

void RunGuarded(const Executor::Task& task, const std::string& executor) {
  try {
    task();
  } catch (const std::exception& error) {
    MW_CHECK(false) << "exception in executor " << executor << ": " << error.what();
  }
}

}  // namespace

Executor::Executor(std::string name) : name_(std::move(name)), thread_([this] { Run(); }) {}

Executor::~Executor() { Stop(); }

bool Executor::Post(Task task) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return false;
    ready_.push_back(std::move(task));
  }
  wake_.NotifyOne();
  return true;
}

bool Executor::PostAfter(int64_t delay_ms, Task task) {
  const int64_t due_ns = Deadline::After(delay_ms).at_ns();
  {
    const MutexLock lock(mutex_);
    if (stopping_) return false;
    timers_.emplace(std::pair(due_ns, timer_order_++), std::move(task));
  }
  wake_.NotifyOne();
  return true;
}

bool Executor::InLoop() const { return current_executor == this; }

void Executor::Stop() {
  MW_CHECK(!InLoop()) << "executor " << name_ << " stopped from its own thread";
  const MutexLock join_lock(join_mutex_);
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void Executor::Run() {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  current_executor = this;
  for (Task task; NextTask(task); task = nullptr) RunGuarded(task, name_);
}

void Executor::MoveDueTimers() {
  const int64_t now_ns = SystemClock().NowNs();
  while (!timers_.empty() && timers_.begin()->first.first <= now_ns) {
    ready_.push_back(std::move(timers_.begin()->second));
    timers_.erase(timers_.begin());
  }
}

bool Executor::NextTask(Task& task) {
  const MutexLock lock(mutex_);
  for (;;) {
    MoveDueTimers();
    if (!ready_.empty()) {
      task = std::move(ready_.front());
      ready_.pop_front();
      return true;
    }
    if (stopping_) return false;
    if (timers_.empty()) {
      wake_.Wait(mutex_);
    } else {
      const int64_t wait_ns = timers_.begin()->first.first - SystemClock().NowNs();
      // At most an hour: far timers would overflow the clock's range, and the loop looks again.
      const auto most_ns = int64_t{3600} * 1'000'000'000;
      (void)wake_.WaitFor(mutex_,
                          std::chrono::nanoseconds(std::clamp<int64_t>(wait_ns, 0, most_ns)));
    }
  }
}

}  // namespace meshwright
