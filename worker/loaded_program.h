// LoadedProgram: a program whose instructions have become addresses, kernels and channels; walked
// once per step.
//
// Made in two phases: Load resolves executables and links and says how much scratch the device
// needs; Resolve turns slots into addresses once the device's memory exists.
//
// Thread rule: Load on the control thread, the rest on the device's own thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "collective/communicator.h"
#include "ir/program.h"
#include "ops/kernel.h"
#include "worker/device_memory.h"
#include "worker/first_cause.h"
#include "worker/links.h"
#include "worker/loaded_executable.h"
#include "worker/runtime.h"
#include "worker/tile_copy.h"

namespace meshwright::worker {

// Instructions done, by opcode. One writer; any reader.
class InstructionCounter {
 public:
  void Count(ir::Opcode op) {
    std::atomic<int64_t>& count = counts_[static_cast<size_t>(op)];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  InstructionCounts Read() const;

 private:
  std::array<std::atomic<int64_t>, 4> counts_{};
};

class LoadedProgram {
 public:
  // Checks the program, makes kernels and links, and adds what it needs to `memory`.
  // Errors: kInvalidArgument, kUnimplemented; they name program, executable and node.
  static Result<std::unique_ptr<LoadedProgram>> Load(ir::Program program, ops::Backend backend,
                                                     Links& links, DeviceMemory& memory);

  // REQUIRES memory.allocated().
  void Resolve(const DeviceMemory& memory);

  const ir::Program& program() const { return program_; }

  // Walks the instructions once; context.step is the step. On failure the cause is recorded with
  // rank, program, step and instruction, and the job's first cause is returned. No allocation.
  Status RunStep(const ops::RunContext& context, FirstCause& cause, InstructionCounter& counter);

  // Values of the program's reports after a step, in order. REQUIRES values.size() ==
  // program().reports.size().
  void ReadReports(std::span<double> values) const;

 private:
  struct Step {
    ir::Opcode op = ir::Opcode::kFree;
    LoadedExecutable* executable = nullptr;  // RUN
    RunBinding binding;                      // RUN, until Resolve
    LoadedExecutable::Call call;             // RUN
    collective::Channel* channel = nullptr;  // SEND, RECV
    TileCopy tile;                           // SEND, RECV
    std::byte* tensor = nullptr;             // SEND, RECV
    std::byte* message = nullptr;            // SEND, RECV: the tile's bytes as they travel
  };

  explicit LoadedProgram(ir::Program program) : program_(std::move(program)) {}
  Result<Step> LoadInstruction(const ir::Instruction& instruction, Links& links) const;
  void ResolveRun(const ir::Instruction& run, const DeviceMemory& memory, Step& step) const;
  Status RunInstruction(Step& step, const ops::RunContext& context, const FirstCause& cause);
  // The failure with the place where it happened.
  Status Locate(const Status& failure, size_t instruction, int64_t step,
                const FirstCause& cause) const;

  const ir::Program program_;
  std::vector<std::unique_ptr<LoadedExecutable>> executables_;
  std::vector<Step> steps_;  // one per instruction
  std::vector<const std::byte*> report_places_;
};

}  // namespace meshwright::worker
