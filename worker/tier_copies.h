// TierCopies: the copies between the memory of a CPU device and farther ones, made by threads of
// their own while the device's thread computes: one for the host's memory, one for the disk, and
// one for what the host computes on what is in its memory (ir::RunsOnHost).
//
// All walk the same list and keep its order: each takes its own, the device's thread the rest.
// Which of them has to wait for which is known before the first step (worker/queue_order.h): an
// instruction waits for the last copies that touch its bytes, a copy for the last instruction, and
// the last copies of the other thread, that do. Each side says how far it is, so a wait is for
// numbers to be reached.
//
// Steps of one list follow one another without a pause: what goes back at the end of a step is
// copied while the next one begins, whose items wait for those of the step before where they touch
// the same bytes. So a step takes as long as what computes or as the link, not both.
//
// A link slower than memory is imitated by taking its time for each copy.
//
// Threads are started before there are any items, since a thread runs on the cores of the one that
// starts it: those of a device's own thread may be one alone.
//
// Thread rule: Begin, Await, Passed, End and Stop belong to the device's thread. Ownership: owns
// its threads; the bytes belong to the device's memory, as the file does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/scratch_file.h"
#include "worker/queue_order.h"

namespace meshwright::worker {

// Who takes an instruction.
enum class TierLane : uint8_t { kComputes, kHost, kDisk, kHostRuns };
inline constexpr size_t kTierLanes = 4;

// An instruction of a list with copies.
struct TierItem {
  TierLane lane = TierLane::kComputes;
  std::vector<Access> accesses;     // of memory
  const std::byte* from = nullptr;  // of a copy; null: out of the file
  std::byte* to = nullptr;          // null: into the file
  int64_t bytes = 0;
  const ScratchFile* file = nullptr;
  int64_t file_offset = 0;
  // Of the host: what it runs in this step of Begin(), on a thread of TierCopies. It sees what the
  // device's thread did before the first Begin() behind the last End().
  std::function<Status(int64_t step)> run;
};

// Bytes per second that copies are held to; 0: as fast as they are.
struct TierRates {
  int64_t host_bytes_per_s = 0;
  int64_t disk_bytes_per_s = 0;
};

// Of each lane; null: nobody takes its items.
using TierThreads = std::array<std::unique_ptr<Executor>, kTierLanes>;
// Started now, by the calling thread, for the lanes that are named (kComputes needs none). They
// show as "mw-host-NAME", "mw-disk-NAME" and "mw-runs-NAME".
TierThreads StartTierThreads(const std::vector<TierLane>& lanes, const std::string& name);

class TierCopies {
 public:
  // One item per instruction. REQUIRES a thread for each lane that has items.
  TierCopies(const std::vector<TierItem>& items, TierRates rates, TierThreads threads);
  ~TierCopies();
  TierCopies(const TierCopies&) = delete;
  TierCopies& operator=(const TierCopies&) = delete;

  // A step begins, behind the device's part of the one before; waits until the one before that is
  // done. Errors: of the file, or the host's, in an earlier step.
  Status Begin(int64_t step);
  // Before an instruction that computes: waits for the copies that it needs. Errors: of the file;
  // then no more copies are made in this step.
  Status Await(size_t instruction);
  // Behind it.
  void Passed(size_t instruction);
  // Waits for the last copies of all steps, and for the host. Errors: as Await.
  Status End();
  // A step has failed: copies that have not begun are left out.
  void Stop();
  // Nothing has begun since End() or Stop().
  bool idle() const { return is_idle_; }

  int64_t bytes_per_step() const { return bytes_per_step_; }

 private:
  // Per lane the last instruction that must be done, counted from the first of the step: those of
  // the step before are negative.
  using Awaited = std::array<int64_t, kTierLanes>;
  struct Copy {
    int64_t instruction = 0;
    Awaited awaited{};
    TierItem item;  // without accesses
  };

  void Run(size_t lane);
  // The turn of a lane through its items. False: there will be no more.
  bool RunTurn(size_t lane, int64_t turn);
  // Errors: of the file, of what the host runs, kInternal for an exception: the device's thread
  // waits for this one, so nothing may leave it in another way than by its end.
  Status TryMake(size_t lane, const Copy& copy, int64_t step);
  Status Make(size_t lane, const Copy& copy, int64_t step);
  bool IsDone(const Awaited& awaited, int64_t turn) const MW_REQUIRES(mutex_);
  // All lanes are behind the turn.
  bool AreBehind(int64_t turn) const MW_REQUIRES(mutex_);
  Status AwaitIdle() MW_REQUIRES(mutex_);

  const std::array<int64_t, kTierLanes> bytes_per_s_;
  std::array<std::vector<Copy>, kTierLanes> copies_;  // of each lane
  std::vector<Awaited> awaited_;                      // per instruction
  int64_t bytes_per_step_ = 0;
  bool is_idle_ = true;  // of the device's thread

  // Steps are counted in turns, from 1; instructions over all turns.
  Mutex mutex_;
  CondVar changed_;
  int64_t turn_ MW_GUARDED_BY(mutex_) = 0;                // that has begun
  std::array<int64_t, 2> steps_ MW_GUARDED_BY(mutex_){};  // of the last two turns
  Awaited done_ MW_GUARDED_BY(mutex_){};    // the last instruction that each lane is behind
  Awaited behind_ MW_GUARDED_BY(mutex_){};  // the last turn that each lane is behind
  bool stopped_ MW_GUARDED_BY(mutex_) = false;
  Status failure_ MW_GUARDED_BY(mutex_);
  bool ends_ MW_GUARDED_BY(mutex_) = false;
  TierThreads threads_;
};

}  // namespace meshwright::worker
