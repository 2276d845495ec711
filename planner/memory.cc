#include "planner/memory.h"

#include <algorithm>
#include <set>
#include <string>

namespace meshwright::planner {
namespace {

using KindBytes = std::map<ir::MemoryKind, int64_t>;

int64_t Total(const KindBytes& bytes) {
  int64_t total = 0;
  for (const auto& [kind, amount] : bytes) total += amount;
  return total;
}

// Live transient bytes by kind at the peak.
KindBytes TransientPeak(const ir::Program& program) {
  KindBytes live, peak;
  std::set<SlotId> alive;
  const auto start = [&](SlotId id) {
    const ir::Slot& slot = program.slot(id);
    if (slot.persistent || !alive.insert(id).second) return;
    live[slot.kind] += slot.type.bytes();
  };
  for (const ir::Instruction& instruction : program.instructions) {
    if (instruction.op == ir::Opcode::kFree) {
      for (SlotId id : instruction.inputs) {
        if (alive.erase(id) > 0) live[program.slot(id).kind] -= program.slot(id).type.bytes();
      }
      continue;
    }
    for (SlotId id : instruction.outputs) start(id);
    if (instruction.op == ir::Opcode::kRecv) start(instruction.slot);
    if (Total(live) > Total(peak)) peak = live;
  }
  return peak;
}

}  // namespace

DeviceMemory PeakMemory(const std::vector<const ir::Program*>& programs) {
  DeviceMemory memory;
  std::set<std::string> counted;
  const ir::Program* largest = nullptr;
  for (const ir::Program* program : programs) {
    for (const ir::Slot& slot : program->slots) {
      if (!slot.persistent || !counted.insert(slot.name).second) continue;
      memory.bytes[slot.kind] += slot.type.bytes();
      memory.total_bytes += slot.type.bytes();
    }
    if (!largest || program->arena_bytes > largest->arena_bytes) largest = program;
  }
  if (!largest) return memory;
  for (const auto& [kind, bytes] : TransientPeak(*largest)) memory.bytes[kind] += bytes;
  memory.bytes[ir::MemoryKind::kWorkspace] += largest->workspace_bytes;
  memory.total_bytes += largest->arena_bytes;
  return memory;
}

}  // namespace meshwright::planner
