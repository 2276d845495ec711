// Executor: one named thread that runs closures in the order they were posted.
//
// An actor is an object owned by one Executor: public methods post, private ...OnLoop methods run
// on the thread and check InLoop(). State touched only there needs no lock.
//
// Thread rule: thread-safe. Closures must not block for long and must not throw (a throw is a
// programmer error: it is logged and aborts).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace meshwright {

class Executor {
 public:
  using Task = std::function<void()>;

  // `name` shows in debuggers and in ps (first 15 bytes).
  explicit Executor(std::string name);
  // Stops. REQUIRES: not destroyed from its own thread.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Queues `task` behind all tasks posted before. Returns false, without running it ever, when the
  // executor was stopped; true promises that it runs exactly once.
  bool Post(Task task);
  // Queues `task` once `delay_ms` has passed. Same order as their times; dropped by Stop when not
  // due. Returns false when stopped.
  bool PostAfter(int64_t delay_ms, Task task);

  // Whether the caller is this executor's thread.
  bool InLoop() const;

  // Refuses new tasks, runs those already posted (also posted with no delay by them while
  // draining: refused), drops timers that are not due, joins the thread. Idempotent.
  // REQUIRES: not called from the loop.
  void Stop();

  const std::string& name() const { return name_; }

 private:
  void Run();
  // Runs one task after waiting for it. False when stopped and drained.
  bool NextTask(Task& task);
  void MoveDueTimers() MW_REQUIRES(mutex_);

  const std::string name_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Task> ready_ MW_GUARDED_BY(mutex_);
  std::map<std::pair<int64_t, uint64_t>, Task> timers_ MW_GUARDED_BY(mutex_);  // (due_ns, order)
  uint64_t timer_order_ MW_GUARDED_BY(mutex_) = 0;
  bool stopping_ MW_GUARDED_BY(mutex_) = false;
  Mutex join_mutex_ MW_ACQUIRED_BEFORE(mutex_);  // serialises Stop
  std::thread thread_;
};

}  // namespace meshwright
