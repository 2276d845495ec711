#include "collective/cpu/board.h"

#include "base/check.h"

namespace meshwright::collective {

Board::Board(std::byte* memory, int members) : memory_(memory), members_(members) {
  MW_CHECK(memory != nullptr && members > 0);
  MW_CHECK(reinterpret_cast<uintptr_t>(memory) % kLine == 0);
}

int64_t Board::Bytes(int members) {
  return static_cast<int64_t>(sizeof(Head) + static_cast<size_t>(members) * sizeof(Seat));
}

int Board::FirstMissing(uint32_t step, int first) const {
  int member = first;
  while (member < members_ && static_cast<int32_t>(seat(member).step.load() - step) >= 0) {
    ++member;
  }
  return member;
}

// A sleeper counts itself before it looks at the steps for the last time, and this stores the step
// before it looks at the count: one of the two sees the other.
void Board::Reach(int member, uint32_t step) const {
  seat(member).step.store(step);
  if (bell().waiters.load() != 0 && FirstMissing(step) == members_) {
    Ring();
  }
}

void Board::Ring() const {
  bell().value.fetch_add(1);
  SharedFutexWake(bell().value);
}

}  // namespace meshwright::collective
