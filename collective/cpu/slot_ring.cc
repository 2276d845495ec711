#include "collective/cpu/slot_ring.h"

#include "base/check.h"

namespace meshwright::collective {
namespace {

int64_t Stride(PipeShape shape, int64_t line) {
  return line + (shape.slot_bytes + line - 1) / line * line;
}

}  // namespace

SlotRing::SlotRing(std::byte* memory, PipeShape shape)
    : memory_(memory), shape_(shape), stride_(Stride(shape, kLine)) {
  MW_CHECK(memory != nullptr && shape.slots > 0 && shape.slot_bytes >= 0);
  MW_CHECK(reinterpret_cast<uintptr_t>(memory) % kLine == 0);
}

int64_t SlotRing::Bytes(PipeShape shape) { return 2 * kLine + shape.slots * Stride(shape, kLine); }

}  // namespace meshwright::collective
