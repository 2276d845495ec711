// TierCopies: the copies between the memories of the host and of a CPU device, made by a thread of
// their own while the device's thread computes.
//
// Both threads walk the same list and keep its order: one takes the copies, the other the rest.
// Which of them has to wait for which is known before the first step (worker/queue_order.h, two
// queues): an instruction waits for the last copy that touches its bytes, a copy for the last
// instruction that does. Each side says how far it is, so a wait is for a number to be reached.
//
// A link slower than memory is imitated by taking its time for each copy.
//
// Thread rule: Begin, Await, Passed, End and Stop belong to the device's thread. Ownership: owns
// its thread; the bytes belong to the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "worker/queue_order.h"

namespace meshwright::worker {

// An instruction of a list with copies.
struct TierItem {
  bool copies = false;
  std::vector<Access> accesses;
  const std::byte* from = nullptr;  // of a copy
  std::byte* to = nullptr;
  int64_t bytes = 0;
};

class TierCopies {
 public:
  // One item per instruction. bytes_per_s: of the link; 0: as fast as memory.
  TierCopies(const std::vector<TierItem>& items, int64_t bytes_per_s);
  ~TierCopies();
  TierCopies(const TierCopies&) = delete;
  TierCopies& operator=(const TierCopies&) = delete;

  // A step begins: nothing is done yet.
  void Begin();
  // Before an instruction that computes: waits for the copies that it needs.
  void Await(size_t instruction);
  // Behind it.
  void Passed(size_t instruction);
  // Waits for the step's last copy.
  void End();
  // The step has failed: copies that have not begun are left out.
  void Stop();

  int64_t bytes_per_step() const { return bytes_per_step_; }

 private:
  struct Copy {
    int64_t instruction = 0;
    int64_t awaited = -1;  // the last instruction that must have passed
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    int64_t bytes = 0;
  };

  void Run();
  // False: there will be no more.
  bool RunStep(int64_t step);
  void Make(const Copy& copy);

  const int64_t bytes_per_s_;
  std::vector<Copy> copies_;
  std::vector<int64_t> awaited_;  // per instruction the last copy that it waits for; -1: none
  int64_t bytes_per_step_ = 0;

  Mutex mutex_;
  CondVar changed_;
  int64_t step_ MW_GUARDED_BY(mutex_) = 0;     // that has begun
  int64_t passed_ MW_GUARDED_BY(mutex_) = -1;  // the last instruction that was computed
  int64_t copied_ MW_GUARDED_BY(mutex_) = -1;  // the last copy that was made
  bool idle_ MW_GUARDED_BY(mutex_) = true;     // of the thread: it is behind its last copy
  bool stopped_ MW_GUARDED_BY(mutex_) = false;
  bool ends_ MW_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace meshwright::worker
