// The one primitive under groups and channels: a directed, ordered, bounded pipe of messages
// between two ranks.
//
// Both ends work on a SlotRing. Between threads or processes of a host the ring itself is the
// transport; between hosts each end has its own ring, and a doorbell tells the connection that
// something was committed or consumed. The sender fills the slot in place (Reserve, Commit); the
// receiver reads it in place (Front, Pop).
//
// Failure: an end never hangs. When the peer does not come by the deadline, left, or the fabric was
// aborted, the status says so and names the peer's rank; the caller decides to abort the fabric.
//
// Thread rule: each end is used by one thread at a time, after Attach(). Ownership: see PipeWiring.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "collective/cpu/fabric_context.h"
#include "collective/cpu/slot_ring.h"

namespace meshwright::collective {

// Tells a connection to look at its side of a ring.
class Doorbell {
 public:
  virtual ~Doorbell() = default;
  virtual void Ring() = 0;  // any thread, does not block
};

// What an end runs on; everything outlives the end's last call.
struct PipeWiring {
  SlotRing ring = {};
  Doorbell* doorbell = nullptr;                 // null: the peer works on the same ring
  const std::atomic<bool>* departed = nullptr;  // the peer's process said goodbye
  Patience patience = {};
};

class PipeEnd {
 public:
  // peer_rank: for messages. context outlives the end.
  PipeEnd(std::string name, int peer_rank, const FabricContext& context)
      : name_(std::move(name)), peer_rank_(peer_rank), context_(context) {}

  void Attach(const PipeWiring& wiring) { wiring_ = wiring; }
  bool attached() const { return wiring_.ring.valid(); }
  const std::string& name() const { return name_; }
  int peer_rank() const { return peer_rank_; }

 protected:
  WaitScope Scope(Deadline deadline) const {
    return {&context_.latch, wiring_.departed, deadline, wiring_.patience};
  }
  // `awaited`: what the peer did not do, e.g. "receive".
  Status WaitFailure(WaitResult result, const char* awaited) const;
  Status NotConnected() const;

  std::string name_;
  int peer_rank_;
  const FabricContext& context_;
  PipeWiring wiring_;
  uint64_t count_ = 0;  // messages committed or popped
};

class PipeSender : public PipeEnd {
 public:
  using PipeEnd::PipeEnd;
  // Waits for a free slot; the result is its payload, slot_bytes long, valid until Commit().
  Result<std::byte*> Reserve(Deadline deadline);
  // REQUIRES a reserved slot, 0 <= bytes <= slot_bytes.
  void Commit(int64_t bytes, uint64_t tag);
};

class PipeReceiver : public PipeEnd {
 public:
  using PipeEnd::PipeEnd;
  struct Message {
    const std::byte* data = nullptr;
    int64_t bytes = 0;
    uint64_t tag = 0;
  };
  // Waits for the next message; data is valid until Pop(). Errors also: kDataLoss when the ring is
  // corrupt.
  Result<Message> Front(Deadline deadline);
  // REQUIRES a message from Front().
  void Pop();
};

}  // namespace meshwright::collective
