#include "worker/instruction_counter.h"

namespace meshwright::worker {

InstructionCounts InstructionCounter::Read() const {
  const auto read = [&](ir::Opcode op) {
    return counts_[static_cast<size_t>(op)].load(std::memory_order_relaxed);
  };
  return {read(ir::Opcode::kRun), read(ir::Opcode::kSend), read(ir::Opcode::kRecv),
          read(ir::Opcode::kFree)};
}

}  // namespace meshwright::worker
