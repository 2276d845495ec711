// Abstract execution of the programs of one launch: every program runs as far as it can, channels
// are bounded, collectives meet. Internal to ir/.
//
// The outcome does not depend on the interleaving: SEND blocks on a full channel, RECV on an empty
// one, a collective until its group is there, and each channel end and group seat belongs to one
// program. So one round-robin run decides for all. Thread rule: one thread. Ownership: programs and
// facts must outlive it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/program.h"
#include "ir/verify_facts.h"
#include "ir/verify_memory.h"

namespace meshwright::ir {

class VerifyMachine {
 public:
  struct Member {
    const Program* program;
    std::vector<std::shared_ptr<const ExecutableFacts>> facts;
  };

  // Members are statically checked programs of different devices. Call Connect, then Run.
  // `one_per_mesh`: as VerifyOptions has it.
  explicit VerifyMachine(std::vector<Member> members, bool one_per_mesh = false);

  // Pairs channel ends and meshes. Errors: kInvalidArgument: an end without peer, meshes that
  // differ.
  Status Connect();
  Status Run();

 private:
  struct Message {
    Content content;
    TensorType type;  // of the tile
  };
  // Tiles of one value on one channel: one slot at either end, offsets that grow.
  struct Flow {
    SlotId slot;
    Dims offset;
  };
  struct Channel {
    int32_t capacity = 1;
    std::deque<Message> messages;
    std::map<std::pair<std::string_view, int>, Flow> sent;
    std::map<std::pair<std::string_view, int>, Flow> received;
  };
  struct Group {
    std::vector<int> ranks;
    std::map<size_t, size_t> waiting;  // member index -> its instruction
    std::string signature;
    int64_t rounds_done = 0;
  };
  struct Device {
    const Member* member;
    SlotStates slots;
    std::vector<Channel*> channels;           // per channel of the program
    std::vector<std::vector<Group*>> groups;  // per executable and collective; null: alone
    size_t pc = 0;
    std::optional<size_t> collective;      // inside a RUN: the next one
    std::optional<int64_t> awaited_round;  // set while waiting in a group
  };
  enum class Progress : uint8_t { kDone, kBlocked };

  Status ConnectChannels();
  Status ConnectMesh(size_t index);
  Result<Group*> GroupFor(size_t index, const CollectiveFact& fact);

  // Executes the instruction at pc; kBlocked leaves the device as it was but for its seat in a
  // group.
  Result<Progress> Step(size_t index);
  Result<Progress> StepRun(size_t index, const Instruction& run);
  Result<Progress> StepCollective(size_t index, const Instruction& run, const CollectiveFact& fact,
                                  Group& group);
  Result<Progress> StepSend(Device& device, const Instruction& send);
  Result<Progress> StepRecv(Device& device, const Instruction& recv);
  Status Advance(size_t index, bool& moved);
  Status CheckFinished() const;

  std::vector<Member> members_;
  const bool one_per_mesh_;
  std::vector<Device> devices_;  // one per member
  std::map<int, size_t> by_rank_;
  std::map<std::string, std::unique_ptr<Channel>> channels_;
  std::map<std::pair<std::string, std::vector<int>>, std::unique_ptr<Group>> groups_;
};

}  // namespace meshwright::ir
