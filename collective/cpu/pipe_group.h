// A group with members in other processes: every pair of members has a pipe in each direction.
//
// All operations are direct exchanges in chunks of one slot: for every chunk a member sends to all
// others, then receives from all others in list order. A member that is k chunks in has consumed
// everything up to chunk k-1, so the slowest member never waits for room and the exchange cannot
// deadlock, whatever the number of slots. all-reduce = reduce-scatter + all-gather: member j
// combines block j over the members in list order.
//
// Thread rule and ownership: as Group; the pipes belong to the group.
#pragma once

#include <string>
#include <vector>

#include "collective/cpu/group_base.h"
#include "collective/cpu/pipe.h"

namespace meshwright::collective {

// Pipes of groups: 256 KiB chunks stay in the L3 cache (measured best for staged transfers).
inline constexpr PipeShape kGroupPipeShape{.slots = 4, .slot_bytes = 256 << 10};

class PipeGroup final : public GroupBase {
 public:
  PipeGroup(std::string name, std::vector<int> ranks, int position, const FabricContext& context);

  // The ends at this member of the pipes to and from `member`. REQUIRES member != rank().
  PipeSender& sender(int member) { return *peers_[static_cast<size_t>(member)].sender; }
  PipeReceiver& receiver(int member) { return *peers_[static_cast<size_t>(member)].receiver; }

  // Also called by a DirectGroup that cannot work in place.
  Status Execute(const Operation& operation, int64_t* bytes_sent) override;

 private:
  struct Peer {
    std::unique_ptr<PipeSender> sender;  // null at this member's own position
    std::unique_ptr<PipeReceiver> receiver;
  };
  // What goes to and comes from one member in a phase.
  struct Leg {
    const std::byte* out = nullptr;
    int64_t out_bytes = 0;
    std::byte* in = nullptr;  // unused when reducing
    int64_t in_bytes = 0;
  };
  // Where the combination of all members' pieces goes, and this member's own piece.
  struct Combine {
    const std::byte* own = nullptr;
    std::byte* output = nullptr;
    int64_t bytes = 0;
  };

  Status ReduceScatterPhase(const Operation& operation, int64_t* bytes_sent);
  Status AllReducePhases(const Operation& operation, int64_t* bytes_sent);
  void FillLegs(const Operation& operation);
  Status Exchange(const Operation& operation, int phase, const Combine* combine,
                  int64_t* bytes_sent);
  Status SendChunk(const Operation& operation, int phase, int64_t offset, int64_t* bytes_sent);
  Status ReceiveChunk(const Operation& operation, int phase, int64_t offset,
                      const Combine* combine);
  Status CheckMessage(int member, const PipeReceiver::Message& message, uint64_t tag,
                      int64_t bytes) const;

  std::vector<Peer> peers_;
  std::vector<Leg> legs_;
  Accumulator accumulator_;
};

}  // namespace meshwright::collective
