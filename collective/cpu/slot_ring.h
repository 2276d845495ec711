// A bounded ring of message slots between one producer and one consumer, laid over plain memory.
//
// The memory may be private (two threads; or a thread and the network loop) or shared between
// processes. Layout, all zero at the start: [head word | 64 B][tail word | 64 B][slot: 64 B header,
// payload rounded up to 64 B] x slots. head counts published messages, tail consumed ones, both
// modulo 2^32; message n lives in slot n % slots. The counts of the two ends are 64-bit and private
// to them, so a corrupted ring can lose messages but not leave its memory.
//
// Thread rule: producer calls and consumer calls each from one thread at a time.
// Ownership: a view; whoever made it keeps the memory alive. Copyable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/cpu/wait.h"

namespace meshwright::collective {

struct PipeShape {
  int32_t slots = 0;
  int64_t slot_bytes = 0;
  friend bool operator==(const PipeShape&, const PipeShape&) = default;
};

// tag: chosen by the sender, e.g. which operation the message belongs to.
struct SlotHeader {
  int64_t bytes = 0;
  uint64_t tag = 0;
};

class SlotRing {
 public:
  SlotRing() = default;
  // REQUIRES memory zeroed, aligned to 64, Bytes(shape) long, shape.slots > 0.
  SlotRing(std::byte* memory, PipeShape shape);
  static int64_t Bytes(PipeShape shape);

  const PipeShape& shape() const { return shape_; }
  bool valid() const { return memory_ != nullptr; }

  // Producer. `sent`: messages published so far.
  bool HasRoom(uint64_t sent) const {
    return static_cast<uint32_t>(sent) - tail().value.load() < static_cast<uint32_t>(shape_.slots);
  }
  std::byte* payload(uint64_t index) const { return slot(index) + kLine; }
  SlotHeader* header(uint64_t index) const { return reinterpret_cast<SlotHeader*>(slot(index)); }
  void Publish(uint64_t sent_after) const {
    StoreAndWake(head(), static_cast<uint32_t>(sent_after));
  }

  // Consumer. `received`: messages consumed so far.
  uint32_t Unread(uint64_t received) const {
    return head().value.load() - static_cast<uint32_t>(received);
  }
  void Release(uint64_t received_after) const {
    StoreAndWake(tail(), static_cast<uint32_t>(received_after));
  }

  WaitWord& head() const { return *reinterpret_cast<WaitWord*>(memory_); }
  WaitWord& tail() const { return *reinterpret_cast<WaitWord*>(memory_ + kLine); }

 private:
  static constexpr int64_t kLine = 64;
  std::byte* slot(uint64_t index) const {
    return memory_ + 2 * kLine +
           static_cast<int64_t>(index % static_cast<uint64_t>(shape_.slots)) * stride_;
  }

  std::byte* memory_ = nullptr;
  PipeShape shape_;
  int64_t stride_ = 0;
};

}  // namespace meshwright::collective
