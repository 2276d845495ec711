// Links: the groups and channels that the local devices use, each made once.
//
// A collective over mesh axes runs in the group of the devices of the stage's mesh that differ only
// in these axes, ordered row-major over the axes as listed (the first is the major one). Programs
// of a device share the group of equal axes and ranks; its name ("data=2,tensor=2/tensor/0-1") is
// the same on all members. Where that is too long for the handshake, the ranks are given as the
// first, their number and a hash of the whole name ("tensor/0x512/1f0c...").
//
// Thread rule: built by one thread; Stats afterwards from any. Ownership: groups and channels
// belong to the fabric.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/communicator.h"
#include "ir/program.h"
#include "worker/runtime.h"

namespace meshwright::worker {

struct GroupRef {
  collective::Group* group = nullptr;  // null when the group is the device alone
  int64_t size = 1;
};

class Links {
 public:
  explicit Links(collective::Fabric& fabric) : fabric_(fabric) {}

  // Errors: kInvalidArgument naming an unknown or repeated axis.
  Result<GroupRef> GroupOf(const ir::Program& program, const std::vector<std::string>& axes);

  // The program's own end. Errors: kInvalidArgument when both ends are local and differ.
  Result<collective::Channel*> ChannelOf(const ir::Program& program, const ir::ChannelEnd& end);

  // Used links of one rank: per axes and kind, and one entry "pipeline" for its channels.
  std::vector<CollectiveStat> Stats(int rank) const;

 private:
  struct GroupEntry {
    std::string axes;
    std::map<int, collective::Group*> members;  // by local rank
  };
  struct ChannelEntry {
    int from = 0;
    int to = 0;
    int capacity = 0;
    int64_t max_message_bytes = 0;
    collective::Fabric::Ends ends;
  };

  collective::Fabric& fabric_;
  std::map<std::string, GroupEntry> groups_;      // by name
  std::map<std::string, ChannelEntry> channels_;  // by name
};

}  // namespace meshwright::worker
