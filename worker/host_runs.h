// HostRuns: what RUNs of the host (ir::RunsOnHost) have of their own, since they are beside what
// the device does: scratch, a context, threads, and the failure of those that a queue has begun.
//
// Of a CPU device they are run by a thread of its own (worker/tier_copies.h); of a GPU by its
// driver, on a thread of the host, when a queue gets there (worker/queued_step.h).
//
// Thread rule: one RUN at a time, on any thread; AddScratch, SetThreads and Begin when none is
// under way; failure() at any time. Ownership: owns scratch and threads; refers to the cause.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/thread_team.h"
#include "ops/kernel.h"
#include "worker/device_memory.h"
#include "worker/first_cause.h"
#include "worker/instruction_counter.h"
#include "worker/step_instruction.h"

namespace meshwright::worker {

class HostRuns {
 public:
  void AddScratch(const ScratchNeed& need);
  std::byte* scratch();  // aligned
  // That a RUN is spread over, the one that calls it included.
  void SetThreads(int threads);

  // Of the steps from now on, the first of them that of the context.
  void Begin(const ops::RunContext& context, const FirstCause& cause);
  Status Run(const StepInstruction& run, int64_t step);

  // Of a queue, which cannot be told of a failure: it is kept, and later RUNs of that one step do
  // nothing.
  void RunQueued(const StepInstruction& run);
  struct Failure {
    Status status;
    const StepInstruction* run = nullptr;  // null: there is none
  };
  Failure failure() const;

 private:
  Status TryRun(const StepInstruction& run, int64_t step);

  std::vector<std::byte> scratch_;
  std::unique_ptr<ThreadTeam> team_;  // null: the calling thread alone
  ops::RunContext context_;
  const FirstCause* cause_ = nullptr;
  InstructionCounter counter_;  // nobody asks

  mutable Mutex mutex_;
  Failure failure_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::worker
