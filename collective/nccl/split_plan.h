// Which communicators a mesh needs, and in which order all ranks split them from the world.
//
// A split is a call of every rank of the parent, member or not, in the same order. But a process
// knows only its own groups and channels. So every process declares them (Link), the declarations
// are gathered over the world, and every rank makes the same plan from all of them. Communicators
// that share no rank are made by one split, as its colours: the tensor groups of all stages, say,
// take one split together. Groups of the same ranks in the same order share a communicator.
//
// A channel has a communicator of its own, so that a message that waits for its receiver holds up
// nothing else, whatever the order in which the two ends use their channels.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace meshwright::collective::nccl {

struct Link {
  enum class Kind : uint8_t { kGroup, kChannel };
  Kind kind = Kind::kGroup;
  std::string name;
  std::vector<int> ranks;  // of a channel: sender, receiver
  int64_t capacity = 0;    // of a channel
  int64_t max_message_bytes = 0;

  friend bool operator==(const Link&, const Link&) = default;
};

// Little-endian: per link a byte kind, u32 + name, u32 + i32 ranks, i64 capacity, i64 bytes.
std::string EncodeLinks(std::span<const Link> links);
// Errors: kDataLoss.
Result<std::vector<Link>> DecodeLinks(std::string_view bytes);

// What one process declared.
struct Declaration {
  std::vector<int> ranks;  // of the process
  std::vector<Link> links;
};
using RankNamer = std::function<std::string(int rank)>;
// All links, each once, by kind and name. Errors: kInvalidArgument when two processes made
// different ones of one name, or a member did not make it; names both.
Result<std::vector<Link>> MergeLinks(const std::vector<Declaration>& declarations,
                                     const RankNamer& name_of);

// One communicator to be: its ranks in order.
struct Part {
  std::string name;  // of its first link, or of the channel
  std::vector<int> ranks;
};
struct Round {
  std::vector<Part> parts;  // disjoint; the index is the colour
  // The part of a rank and its position there; -1: none.
  int ColorOf(int rank) const;
  int KeyOf(int rank) const;
};
struct SplitPlan {
  std::vector<Round> groups;
  std::vector<Round> channels;
};
// known: rank lists that have a communicator; what is planned is added. Deterministic: a function
// of the links and `known`.
SplitPlan PlanSplits(const std::vector<Link>& links, std::set<std::vector<int>>* known);

}  // namespace meshwright::collective::nccl
