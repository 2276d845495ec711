// Executor: one named thread that runs closures in the order they were posted.
//
// An actor is an object owned by one Executor: public methods post, private ...OnLoop methods run
// on the thread and check InLoop(). State touched only there needs no lock.
//
// Thread rule: thread-safe. Closures must not block for long and must not throw (a throw is a
// programmer error: it is logged and aborts).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"

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
  void MoveDueTimers();

  const std::string name_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> ready_;                               // guarded by mutex_
  std::map<std::pair<int64_t, uint64_t>, Task> timers_;  // (due_ns, order); guarded by mutex_
  uint64_t timer_order_ = 0;                             // guarded by mutex_
  bool stopping_ = false;                                // guarded by mutex_
  std::mutex join_mutex_;                                // before mutex_; serialises Stop
  std::thread thread_;
};

}  // namespace meshwright
