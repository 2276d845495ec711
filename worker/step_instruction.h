// StepInstruction: an instruction of a program whose slots have become addresses.
//
// Thread rule: a plain value.
#pragma once

#include "base/scratch_file.h"
#include "collective/communicator.h"
#include "ir/program.h"
#include "worker/instruction_counter.h"
#include "worker/loaded_executable.h"
#include "worker/tile_copy.h"

namespace meshwright::worker {

class HostRuns;

struct StepInstruction {
  ir::Opcode op = ir::Opcode::kFree;
  int32_t microbatch = 0;
  LoadedExecutable* executable = nullptr;  // RUN
  RunBinding binding;                      // RUN, until its addresses are known
  LoadedExecutable::Call call;             // RUN
  HostRuns* host = nullptr;                // RUN: the host does it; null: the device
  collective::Channel* channel = nullptr;  // SEND, RECV
  TileCopy tile;                           // SEND, RECV
  std::byte* tensor = nullptr;             // SEND, RECV
  std::byte* message = nullptr;            // SEND, RECV: the tile's bytes as they travel
  const std::byte* from = nullptr;         // PREFETCH, OFFLOAD
  std::byte* to = nullptr;                 // PREFETCH, OFFLOAD
  int64_t bytes = 0;                       // PREFETCH, OFFLOAD
  const ScratchFile* file = nullptr;       // of a disk; then `from` of a PREFETCH, `to` of an
  int64_t file_offset = 0;                 // OFFLOAD are null
};

constexpr bool IsMessage(ir::Opcode op) {
  return op == ir::Opcode::kSend || op == ir::Opcode::kRecv;
}

// A SEND or RECV of a CPU device: blocks. Errors: the channel's.
Status RunMessage(const StepInstruction& message, const ops::RunContext& context,
                  InstructionCounter& counter);

}  // namespace meshwright::worker
