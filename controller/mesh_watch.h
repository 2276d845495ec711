// MeshWatch: what is watched of a mesh while it works: whether it moves, and who is slow.
//
// Thread rule: a value.
#pragma once

#include <map>
#include <utility>

#include "base/ids.h"
#include "controller/slow_ranks.h"
#include "controller/stall_watch.h"

namespace meshwright::controller {

struct MeshWatch {
  StallWatch stalls;
  SlowRanks slow;
};

// By generation.
using MeshWatches = std::map<MeshGeneration, MeshWatch>;

}  // namespace meshwright::controller
