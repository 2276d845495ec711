// Tasks of many schedulers on one thread, in an order drawn from a seed, on a clock that moves only
// when told or when nothing else is left to do.
//
// A scheduler that is killed never runs anything again, as the threads of a killed process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "actor/scheduler.h"
#include "base/clock.h"
#include "base/philox.h"
#include "tests/fake_clock.h"

namespace meshwright::actor {

class SimWorld {
 public:
  explicit SimWorld(uint64_t seed) : seed_(seed) {}

  const Clock& clock() const { return clock_; }
  int64_t now_ms() const { return clock_.NowMs(); }
  void Advance(int64_t ms) { clock_.AdvanceMs(ms); }
  int64_t Draw(int64_t below) {
    return static_cast<int64_t>(PhiloxBits(seed_, 3, 0, draws_++) % static_cast<uint64_t>(below));
  }

  void Add(const void* owner, int64_t delay_ms, Scheduler::Task task) {
    tasks_.push_back({owner, now_ms() + delay_ms, std::move(task)});
  }
  void Kill(const void* owner) {
    std::vector<Entry> dropped;
    const auto rest = std::stable_partition(tasks_.begin(), tasks_.end(),
                                            [&](const Entry& e) { return e.owner != owner; });
    std::move(rest, tasks_.end(), std::back_inserter(dropped));
    tasks_.erase(rest, tasks_.end());
  }
  // Runs one task that is due, any of them. False: nothing is due.
  bool RunOne() {
    std::vector<size_t> due;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (tasks_[i].due_ms <= now_ms()) due.push_back(i);
    }
    if (due.empty()) return false;
    const size_t index = due[static_cast<size_t>(Draw(static_cast<int64_t>(due.size())))];
    const Scheduler::Task task = std::move(tasks_[index].task);
    tasks_.erase(tasks_.begin() + static_cast<ptrdiff_t>(index));
    task();
    return true;
  }
  // To the next timer. False: there is none.
  bool AdvanceToNext() {
    if (tasks_.empty()) return false;
    const auto next =
        std::min_element(tasks_.begin(), tasks_.end(),
                         [](const Entry& a, const Entry& b) { return a.due_ms < b.due_ms; });
    if (next->due_ms > now_ms()) Advance(next->due_ms - now_ms());
    return true;
  }

 private:
  struct Entry {
    const void* owner;
    int64_t due_ms;
    Scheduler::Task task;
  };
  const uint64_t seed_;
  uint64_t draws_ = 0;
  FakeClock clock_{1'000'000'000};
  std::vector<Entry> tasks_;
};

class SimScheduler final : public Scheduler {
 public:
  explicit SimScheduler(SimWorld& world) : world_(world) {}
  bool Post(Task task) override { return PostAfter(0, std::move(task)); }
  bool PostAfter(int64_t delay_ms, Task task) override {
    if (!alive_) return false;
    world_.Add(this, delay_ms, std::move(task));
    return true;
  }
  void Kill() {
    alive_ = false;
    world_.Kill(this);
  }

 private:
  SimWorld& world_;
  bool alive_ = true;
};

}  // namespace meshwright::actor
