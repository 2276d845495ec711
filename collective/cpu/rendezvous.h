// How two processes agree on the pipes between them: both list the pipes with keys, ranks and
// shapes; the lists must be equal. The listening side may offer one shared region that holds the
// rings of all of them, in list order, and another one with the boards of their common groups.
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/cpu/pipe.h"
#include "collective/cpu/wire.h"

namespace meshwright::collective {

// A pipe to or from another process; exactly one end is here.
struct PipeSpec {
  ManifestEntry entry = {};
  PipeSender* sender = nullptr;
  PipeReceiver* receiver = nullptr;
};

// The board of a group whose members are processes of this host. The one whose first rank is lowest
// offers it to the others.
struct BoardSpec {
  uint64_t key = 0;
  int64_t bytes = 0;
  int64_t offset = -1;  // in the region offered to the peer; -1: the peer is to offer it
  std::function<void(std::byte*)> attach;
};

// Everything new between this process and a peer.
struct PeerOffer {
  std::vector<PipeSpec> pipes;
  std::vector<BoardSpec> boards;
  RegionHandle board_region;  // of the boards offered by this side
};

// The entries of `pipes`, sorted by key. Sorts `pipes` alike.
std::vector<ManifestEntry> ListPipes(std::vector<PipeSpec>& pipes);

// Errors: kInvalidArgument naming the first pipe that only one side has, or that differs, and the
// peer.
Status ComparePipes(const std::vector<ManifestEntry>& own, const std::vector<ManifestEntry>& peer,
                    const std::string& peer_name);

// Bytes of a shared region for `entries`, and the ring of each of them inside it.
int64_t SharedRegionBytes(const std::vector<ManifestEntry>& entries);
std::vector<SlotRing> LayOutRings(const Region& region, const std::vector<ManifestEntry>& entries);

}  // namespace meshwright::collective
