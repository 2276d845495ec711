// StepLanes: a step of a CPU device whose collectives run beside what computes.
//
// Two threads go through one list (worker/step_list.h), each through its own items in their order:
// the device's own thread through kernels, messages and collectives that everything waits for, the
// one beside it through the other collectives. Which item must wait for which of the other thread
// was found from the bytes that they touch (worker/queue_order.h), so nobody has to say where a
// collective begins and where it is awaited, and nothing is computed in another order than without
// the second thread.
//
// Failure: the first thread that fails records the cause, which stops the fabric and so ends what
// the other one waits for.
//
// Thread rule: Run() on the device's own thread. Ownership: refers to the program's instructions
// and to the executor beside, which outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/executor.h"
#include "base/function_ref.h"
#include "base/mutex.h"
#include "base/result.h"
#include "ops/kernel.h"
#include "worker/first_cause.h"
#include "worker/instruction_counter.h"
#include "worker/step_list.h"

namespace meshwright::worker {

class StepLanes {
 public:
  // Takes a failure, from either thread, with its instruction; returns when its cause is recorded.
  using OnFailure = FunctionRef<void(int64_t instruction, const Status& failure)>;

  // beside: where collectives run. Null: none of them would. REQUIRES resolved instructions without
  // copies between memories.
  static std::unique_ptr<StepLanes> Make(std::span<const StepInstruction> instructions,
                                         Executor& beside);

  // The whole step; both threads are behind it when this returns. context: without the fields of
  // GPUs. An error is one that `failed` has had.
  Status Run(const ops::RunContext& context, const FirstCause& cause, InstructionCounter& counter,
             OnFailure failed);

 private:
  StepLanes(std::span<const StepInstruction> instructions, Executor& beside);

  struct Step {
    const ops::RunContext& context;
    const FirstCause& cause;
    InstructionCounter& counter;
    OnFailure failed;
  };

  void RunLane(int lane, const Step& step);
  Status TryItem(int lane, const StepItem& item, ops::RunContext& context, const Step& step);
  Status RunItem(int lane, const StepItem& item, ops::RunContext& context, const Step& step);
  Status RunCollective(int lane, const StepItem& item, const ops::RunContext& context,
                       InstructionCounter& counter);
  // Until the piece may begin; false: the step has failed.
  bool Await(int lane, const StepPiece& piece, InstructionCounter& counter);
  bool IsFree(const StepPiece& piece) const MW_REQUIRES(mutex_);
  void Pass(const StepPiece& piece);
  void Stop();

  const StepList list_;
  Executor& beside_;
  std::vector<std::vector<const StepPiece*>> pieces_of_;  // per lane

  Mutex mutex_;
  CondVar changed_;
  std::vector<bool> passed_ MW_GUARDED_BY(mutex_);  // per event of the list
  bool stopped_ MW_GUARDED_BY(mutex_) = false;
  bool beside_ends_ MW_GUARDED_BY(mutex_) = true;  // it is behind its last item
};

}  // namespace meshwright::worker
