// The control block of a group whose members work on each other's memory: plain zeroed memory,
// private when the members are threads of one process, shared between processes otherwise.
//
//   [head][seat 0][seat 1]...   a seat: step, two notices, two small buffers
//
// A call begins with a notice: what the member is about to do, and where its data are. A step is a
// point that no member passes before all have reached it; seat.step counts those that a member has
// reached. Notices and small buffers are used in turn: whoever posts the notice of call n+2 has
// passed the first step of call n+1, so nobody still looks at call n.
//
// Sleepers of all members wait on one bell, which only the last to reach a step rings: however many
// members share a core, a step wakes each at most once.
//
// Thread rule: a seat is written by its member only. Ownership: a view, like SlotRing; copyable.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collective/cpu/group_base.h"
#include "collective/cpu/host_memory.h"
#include "collective/cpu/wait.h"

namespace meshwright::collective {

// What a member says of its call. Only numbers: other processes read it.
struct Notice {
  uint64_t sequence = 0;
  int64_t count = 0;
  int32_t root = 0;
  Kind kind = Kind::kAllReduce;
  ir::DType dtype = ir::DType::kF32;
  Reduction reduction = Reduction::kSum;
  bool sees_all = false;            // has mapped the memory of all other processes of the group
  SharedPlace input;                // for members of other processes
  const std::byte* data = nullptr;  // input, for members of the same process
};

// How far the processes of a group have come with agreeing on the board.
enum class BoardState : uint32_t { kUndecided, kInUse, kRefused };

class Board {
 public:
  static constexpr int64_t kSmallBytes = 16 << 10;  // of a small buffer

  Board() = default;
  // REQUIRES memory zeroed at first, aligned to 64, Bytes(members) long.
  Board(std::byte* memory, int members);
  static int64_t Bytes(int members);

  bool valid() const { return memory_ != nullptr; }
  WaitWord& state() const { return head().state; }                 // a BoardState
  std::atomic<uint32_t>& broken() const { return head().broken; }  // a member gave up
  WaitWord& bell() const { return head().bell; }
  std::atomic<uint32_t>& step(int member) const { return seat(member).step; }
  Notice& notice(int member, uint64_t call) const { return seat(member).notices[call & 1].notice; }
  std::byte* small(int member, uint64_t call) const { return seat(member).small[call & 1]; }

  // The first member, from `first` on, that has not reached `step`; the number of members when all
  // have.
  int FirstMissing(uint32_t step, int first = 0) const;
  // Stores that `member` has reached `step`, and rings when it is the last.
  void Reach(int member, uint32_t step) const;
  void Ring() const;

 private:
  static constexpr size_t kLine = 64;
  struct Head {
    WaitWord state;
    std::atomic<uint32_t> broken;
    alignas(kLine) WaitWord bell;
  };
  struct Seat {
    alignas(kLine) std::atomic<uint32_t> step;
    struct alignas(kLine) Line {
      Notice notice;
    } notices[2];
    alignas(kLine) std::byte small[2][kSmallBytes];
  };

  Head& head() const { return *reinterpret_cast<Head*>(memory_); }
  Seat& seat(int member) const {
    return *reinterpret_cast<Seat*>(memory_ + sizeof(Head) +
                                    static_cast<size_t>(member) * sizeof(Seat));
  }

  std::byte* memory_ = nullptr;
  int members_ = 0;
};

}  // namespace meshwright::collective
