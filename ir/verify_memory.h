// The slots of one program while the verifier executes it: which are alive, what they hold, and
// whether the next access keeps the meaning of the list. Internal to ir/. Ids are already checked;
// the rules are those of ir/verify.h. Thread rule: one thread. Ownership: the program and the facts
// must outlive it.
#pragma once

#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "ir/program.h"
#include "ir/verify_facts.h"

namespace meshwright::ir {

// Where an access belongs in the step: cadence, microbatch, executable. In-place writes follow this
// order.
using AccessKey = std::tuple<int, int, int>;

// What a slot or a message holds: a value's name and the microbatch that made it (-1: the step as a
// whole).
struct Content {
  std::string_view name;
  int microbatch = -1;
  friend bool operator==(const Content&, const Content&) = default;
};

class SlotStates {
 public:
  SlotStates(const Program& program,
             const std::vector<std::shared_ptr<const ExecutableFacts>>& facts);

  // Operands of a RUN are readable and belong to it; called when the RUN starts.
  Status BeginRun(const Instruction& run);
  // Outputs come alive or are replaced; called when the RUN is done.
  Status EndRun(const Instruction& run);
  // The content that a SEND takes; the slot is final from now on.
  Status Send(const Instruction& send, Content& content);
  // A tile arrives.
  Status Receive(const Instruction& recv, const Content& content);
  // A copy of what a far slot holds comes alive; it is given back before it ends, if it was written
  // and the far slot is alive.
  Status Prefetch(const Instruction& copy);
  Status Offload(const Instruction& copy);
  Status Free(const Instruction& free);
  // Only reported transient slots are alive.
  Status CheckEnd() const;

 private:
  enum class Life : uint8_t { kDead, kFilling, kLive, kOverwritten };
  struct State {
    Life life = Life::kDead;
    Content content;
    bool received = false;
    bool sent = false;
    AccessKey last_access{-1, -1, -1};
    AccessKey last_write{-1, -1, -1};
    std::vector<Box> tiles;  // received so far, while filling
    int64_t filled_elements = 0;
    // Of a copy: the far slot. Writing one makes a new version of the slot, which
    // makes every other copy old; the slot holds it when the copy was given back.
    SlotId home;
    int64_t version = 0;
    int64_t held_version = 0;  // of a far slot
  };

  State& At(SlotId id) { return states_[id.index()]; }
  const ExecutableFacts& FactsOf(const Instruction& run) const {
    return *facts_[run.executable.index()];
  }
  AccessKey KeyOf(const Instruction& run) const;
  Status RequireLive(SlotId id) const;
  // A copy was written, or what is in the host's memory where it lies.
  void MakeVersion(SlotId id);
  // A transient far slot gets what the copy holds for the first time.
  Status Begin(SlotId far, const State& copy);
  // A far slot ends: copies of its last version are on their own.
  void Detach(SlotId far);
  Status CheckInput(const Instruction& run, size_t input);
  Status Replace(SlotId id, const AccessKey& key, std::string_view name);
  // Marks the slot alive after checking that no other live slot has its bytes; those of inputs of
  // `run` that output `output` may overwrite are lost.
  Status Occupy(SlotId id, const Instruction* run = nullptr, size_t output = 0);
  bool MayOverwrite(const Instruction& run, size_t output, SlotId other) const;
  Status AddTile(SlotId id, const Box& box);

  const Program& p_;
  const std::vector<std::shared_ptr<const ExecutableFacts>>& facts_;
  std::vector<State> states_;
  // Transient slots, of the device's arena and of the host's.
  std::array<std::map<int64_t, SlotId>, kSpaceCount> live_by_offset_;
};

}  // namespace meshwright::ir
