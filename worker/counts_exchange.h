// CountsExchange: who asks an executor for its counts waits for the answer, but not for long.
//
// Thread rule: thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/mutex.h"

namespace meshwright::worker {

class CountsExchange {
 public:
  // The number of a new question.
  uint64_t Ask() {
    const MutexLock lock(mutex_);
    return ++asked_;
  }
  // Question `id` and those before it are answered.
  void Answer(uint64_t id) {
    const MutexLock lock(mutex_);
    answered_ = std::max(answered_, id);
    changed_.NotifyAll();
  }
  // Nobody answers any more.
  void End() {
    const MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  // Until question `id` is answered, nobody answers, or `time` has passed.
  void Await(uint64_t id, std::chrono::milliseconds time) {
    const auto due = std::chrono::steady_clock::now() + time;
    const MutexLock lock(mutex_);
    while (answered_ < id && !ended_ && changed_.WaitUntil(mutex_, due)) {
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  uint64_t asked_ MW_GUARDED_BY(mutex_) = 0;
  uint64_t answered_ MW_GUARDED_BY(mutex_) = 0;
  bool ended_ MW_GUARDED_BY(mutex_) = false;
};

}  // namespace meshwright::worker
