// How queries meet the keys of a row whose tokens several devices share: which way moves least, and
// what graphs need for it.
//
// Per attention, device and step, of n own tokens of a row over c devices, with h query heads and g
// heads of keys of e elements (those of one tensor rank), elements on the wire are
//   gather   4 (c - 1) n g e               keys and values; their gradients back
//   ring     (6 c - 4) n g e               keys and values twice, their gradients behind them;
//            (6 k + 2) n g e               where a window ends k blocks before
//   ulysses  4 (c - 1) n (h + g) e / c     q, k, v and o change from tokens to heads or back
//   nested   that of ulysses among u neighbours, and that of a ring of c / u groups
// Source of ulysses: Jacobs et al., DeepSpeed-Ulysses, 2023; of nested: Fang and Zhao, USP, 2024.
//
// Heads that do not come out even: each head of keys is repeated for several of its query heads,
// and heads of zeros are added where that is not enough; what they give is cut off again.
//
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

// Of each ContextAttention.
inline constexpr std::array<const char*, 5> kContextAttentionNames = {"auto", "gather", "ring",
                                                                      "ulysses", "nested"};

// Heads of one tensor rank.
struct Heads {
  int64_t queries = 1;
  int64_t keys = 1;
  friend bool operator==(const Heads&, const Heads&) = default;
};

// Heads as devices share them: each head of keys `copies` times, then heads of zeros up to `heads`.
struct SharedHeads {
  int64_t copies = 1;
  Heads heads;
  friend bool operator==(const SharedHeads&, const SharedHeads&) = default;
};

// For `devices` that share them: the least work, then the fewest heads of keys. None: more devices
// than query heads. REQUIRES: heads.keys divides heads.queries.
std::optional<SharedHeads> ShareHeads(const Heads& heads, int64_t devices);

// How often blocks of keys move on in a ring, for queries that see `window` keys (0: all before
// them) of blocks of `tokens` in the order of their positions.
int64_t RingSteps(int64_t window, int64_t tokens, int64_t devices);

// Devices that share a row, how often blocks of keys move on among them, and how many neighbours
// share heads where they are nested.
struct Ring {
  int64_t devices = 1;
  int64_t steps = 0;
  int64_t neighbours = 1;
};
// Elements that a device sends for each of its tokens and each element of a head, by the table
// above. REQUIRES: a way that is not kAuto.
double ElementsMoved(ContextAttention way, const Heads& heads, const Ring& ring);

// Whether all attention of the graph is of windows so short that blocks of tokens in the order of
// their positions are as much work each.
bool HasShortWindows(const ir::Graph& graph, int64_t tokens);

// Neighbours of `devices` that can share heads while the others are a ring: the most that divide
// both. 1: none.
int64_t Neighbours(const Heads& heads, int64_t devices);

// The layout with a way in the place of kAuto: heads are shared where that moves less than keys do
// and they come out even; else keys go round a ring where they are large, or move less so. A note
// says what each moves. REQUIRES layout.context() > 1. Errors: kInvalidArgument where heads are to
// be shared and there are too few, or masks of dropout would be those of other heads; where
// neighbours are to share them and none can.
Result<Layout> ResolveContextAttention(const ir::JobRequest& job, const Layout& layout,
                                       std::vector<std::string>& notes);

// Every attention with heads that the devices can share. REQUIRES: a layout that
// ResolveContextAttention gave, of heads that are shared; packed attention is no more
// (planner/job_on_axes.h).
Result<ir::JobRequest> WithSharedHeads(const ir::JobRequest& job, const Layout& layout);

}  // namespace meshwright::planner
