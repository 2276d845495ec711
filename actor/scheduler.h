// Scheduler: where an actor's code runs. A base::Executor in a process; a list of tasks that a seed
// orders in a simulation (tests/unit/actor/sim_scheduler.h).
//
// A scheduler runs its tasks one at a time, each at most once, so what only its tasks touch needs
// no lock. Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/executor.h"

namespace meshwright::actor {

class Scheduler {
 public:
  using Task = std::function<void()>;
  virtual ~Scheduler() = default;
  // False, without running the task ever, when the scheduler has ended.
  virtual bool Post(Task task) = 0;
  virtual bool PostAfter(int64_t delay_ms, Task task) = 0;
};

// Ownership: the executor outlives it.
class ExecutorScheduler final : public Scheduler {
 public:
  explicit ExecutorScheduler(Executor& executor) : executor_(executor) {}
  bool Post(Task task) override { return executor_.Post(std::move(task)); }
  bool PostAfter(int64_t delay_ms, Task task) override {
    return executor_.PostAfter(delay_ms, std::move(task));
  }

 private:
  Executor& executor_;
};

}  // namespace meshwright::actor
