// LoadedProgram: a program whose instructions have become addresses, kernels and channels; walked
// once per step.
//
// Made in two phases: Load resolves executables and links and says how much scratch the device
// needs; Resolve turns slots into addresses once the device's memory exists. On a GPU the list is
// then planned as work for queues (worker/queued_step.h).
//
// Thread rule: Load on the control thread, the rest on the device's own thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/communicator.h"
#include "ir/program.h"
#include "ops/kernel.h"
#include "worker/device_memory.h"
#include "worker/first_cause.h"
#include "worker/host_runs.h"
#include "worker/instruction_counter.h"
#include "worker/links.h"
#include "worker/loaded_executable.h"
#include "worker/mesh_record.h"
#include "worker/queued_step.h"
#include "worker/runtime.h"
#include "worker/step_instruction.h"
#include "worker/step_lanes.h"
#include "worker/tier_copies.h"

namespace meshwright::worker {

class LoadedProgram {
 public:
  // Checks the program, makes kernels and links, and adds what it needs to `memory`.
  // Errors: kInvalidArgument, kUnimplemented; they name program, executable and node.
  static Result<std::unique_ptr<LoadedProgram>> Load(ir::Program program, const ops::Target& target,
                                                     Links& links, DeviceMemory& memory,
                                                     InstructionCounter& counter);

  // REQUIRES memory.allocated(). lanes: of a GPU; null: the calling thread does the work, and
  // others beside it the copies between memories, no faster than `rates`, and what the host runs.
  // beside: for collectives of a program that overlaps without such copies. Errors: of the GPU;
  // kUnimplemented for one that keeps something on a disk.
  Status Resolve(const DeviceMemory& memory, const Lanes* lanes, TierRates rates = {},
                 Executor* beside = nullptr);

  // After all programs of the device are resolved: QueuedStep::Record(). Nothing on CPUs.
  Status Record();

  const ir::Program& program() const { return program_; }

  // Walks the instructions once; context.step is the step. On failure the cause is recorded with
  // rank, program, step and instruction, and the job's first cause is returned. No allocation.
  Status RunStep(const ops::RunContext& context, FirstCause& cause, InstructionCounter& counter);
  // Waits for what the steps since the last call have left to others. Errors: as RunStep.
  Status EndSteps(int64_t last_step, FirstCause& cause);

  // Values of the program's reports after a step, in order. REQUIRES values.size() ==
  // program().reports.size().
  void ReadReports(std::span<double> values) const;

  // That a step makes where it is recorded (worker/step_recorder.h), at most; a GPU makes none.
  size_t marks() const;

  // Null on CPUs.
  const QueuedStep* queued() const { return queued_.get(); }

 private:
  using Step = StepInstruction;

  explicit LoadedProgram(ir::Program program) : program_(std::move(program)) {}
  Result<Step> LoadInstruction(const ir::Instruction& instruction, Links& links) const;
  Status ResolveInstruction(size_t index, const DeviceMemory& memory, bool queued);
  void ResolveRun(const ir::Instruction& run, const DeviceMemory& memory, Step& step);
  // On the thread that loads, which is not the device's own.
  void StartTierThreads();
  void MakeTierCopies(const DeviceMemory& memory, TierRates rates);
  Status RunInstructions(const ops::RunContext& context, FirstCause& cause,
                         InstructionCounter& counter);
  Status RunLanes(const ops::RunContext& context, FirstCause& cause, InstructionCounter& counter);
  Status RunQueued(const ops::RunContext& context, FirstCause& cause);
  // The failure with the place where it happened; instruction -1: it is of no certain one.
  Status Locate(const Status& failure, int64_t instruction, int64_t step,
                const FirstCause& cause) const;

  const ir::Program program_;
  std::vector<std::unique_ptr<LoadedExecutable>> executables_;
  std::vector<Step> steps_;  // one per instruction
  std::vector<ReportPlace> report_places_;
  HostRuns host_runs_;
  std::unique_ptr<QueuedStep> queued_;
  TierThreads tier_threads_;           // until tiers_ has them
  std::unique_ptr<TierCopies> tiers_;  // null: there are no copies, or a GPU makes them
  std::unique_ptr<StepLanes> lanes_;   // null: one thing runs after the other, or a GPU's queues do
};

}  // namespace meshwright::worker
