// What the ranks of an emulated NCCL share: communicators, what is under way in them, messages.
// Internal to the emulation.
//
// Thread rule: under the mutex of the network.
#pragma once

#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated/nccl.h"

namespace meshwright::emulated {

using Bytes = std::vector<std::byte>;

struct EmulatedNetwork::Collective {
  std::string what;
  std::vector<Bytes> inputs;  // by position
  int arrived = 0;
};

struct EmulatedNetwork::Message {
  Bytes data;
  bool sent = false;
  bool taken = false;
};

struct EmulatedNetwork::Split {
  struct Entry {
    int color = 0;
    int key = 0;
    nccl::CommHandle* slot = nullptr;
    bool share = false;
    Comm* child = nullptr;
  };
  std::map<int, Entry> entries;  // by position
  bool finished = false;
};

struct EmulatedNetwork::Clique {
  std::vector<Comm*> members;  // null: has not come
  int family = 0;
  bool share = false;
  std::map<uint64_t, Collective> collectives;
  std::map<std::pair<std::pair<int, int>, uint64_t>, Message> messages;
  std::map<uint64_t, Split> splits;
  std::map<std::pair<int, int>, std::set<int>> links;  // from, to -> who has used it
};

struct EmulatedNetwork::Comm {
  EmulatedNccl* library = nullptr;
  Clique* clique = nullptr;
  int position = 0;
  int polls = 0;  // still to be answered by kInProgress
  uint64_t collectives = 0;
  uint64_t splits = 0;
  uint64_t split_pending = 0;  // 0: none
  int32_t device = -1;         // -1: not known
  bool in_progress = false;    // as far as was asked
  std::thread::id begun_by;
  std::set<std::string> used;             // kinds of collectives
  std::set<std::string> connecting;       // kinds that wait for the others' first use
  std::set<std::pair<int, int>> linking;  // links that wait for the other end's first use
  std::map<int, uint64_t> sent;
  std::map<int, uint64_t> received;
  bool finalized = false;
  bool gone = false;  // aborted or destroyed
  bool aborted = false;
};

}  // namespace meshwright::emulated
