#include "mesh/cost.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace meshwright::mesh {
namespace {

bool IsPowerOfTwo(int64_t value) { return std::has_single_bit(static_cast<uint64_t>(value)); }

// ceil(log2 value)
double Log2Up(int64_t value) {
  return static_cast<double>(std::bit_width(static_cast<uint64_t>(value - 1)));
}

double Share(double count) { return (count - 1) / count; }

// The link between hosts with `flows` of each group out of a host.
LinkCost BetweenHosts(const GroupShape& group, double flows) {
  const double all_flows = flows * static_cast<double>(group.groups_per_host);
  return {group.between.alpha_s,
          std::max(group.between.seconds_per_byte, all_flows * group.nic_seconds_per_byte)};
}

// How often a reduce-scatter or all-gather is run, and the bytes that each starts with or ends at.
struct Halves {
  double count = 1;
  double bytes = 0;
};
Halves HalvesOf(CollectiveKind kind, double local_bytes, double members) {
  if (kind == CollectiveKind::kAllGather) return {1, members * local_bytes};
  return {kind == CollectiveKind::kAllReduce ? 2. : 1., local_bytes};
}

// Messages and bytes of one device over either link class.
struct Traffic {
  double messages_within = 0;
  double bytes_within = 0;
  double messages_between = 0;
  double bytes_between = 0;
};

CollectiveCost CostOfTraffic(const Traffic& traffic, const LinkCost& within,
                             const LinkCost& between) {
  CollectiveCost cost;
  cost.bytes_within = traffic.bytes_within;
  cost.bytes_between = traffic.bytes_between;
  cost.seconds =
      traffic.messages_within * within.alpha_s + traffic.bytes_within * within.seconds_per_byte +
      traffic.messages_between * between.alpha_s + traffic.bytes_between * between.seconds_per_byte;
  return cost;
}

// `messages` one after the other over the slowest link of the group, `bytes` in all.
CollectiveCost CostThroughAll(const GroupShape& group, double messages, double bytes,
                              double flows) {
  const LinkCost link =
      group.hosts > 1 ? Slower(group.within, BetweenHosts(group, flows)) : group.within;
  CollectiveCost cost;
  cost.seconds = messages * link.alpha_s + bytes * link.seconds_per_byte;
  // One in members_per_host of the ring's links leaves a host.
  const double outside =
      group.hosts > 1 ? static_cast<double>(group.hosts) / static_cast<double>(group.members) : 0;
  cost.bytes_between = bytes * outside;
  cost.bytes_within = bytes - cost.bytes_between;
  return cost;
}

CollectiveCost RingCost(CollectiveKind kind, double n, const GroupShape& group) {
  const auto q = static_cast<double>(group.members);
  if (kind == CollectiveKind::kBroadcast) return CostThroughAll(group, q - 1, n, 1);
  if (kind == CollectiveKind::kRingShift) return CostThroughAll(group, 1, n, 1);
  if (kind == CollectiveKind::kAllToAll) {
    const auto p = static_cast<double>(group.members_per_host);
    const Traffic traffic{p - 1, (p - 1) / q * n, q - p, (q - p) / q * n};
    return CostOfTraffic(traffic, group.within, BetweenHosts(group, p));
  }
  const Halves halves = HalvesOf(kind, n, q);
  return CostThroughAll(group, halves.count * (q - 1), halves.count * Share(q) * halves.bytes, 1);
}

CollectiveCost RecursiveCost(CollectiveKind kind, double n, const GroupShape& group) {
  const auto q = static_cast<double>(group.members);
  const auto p = static_cast<double>(group.members_per_host);
  const auto h = static_cast<double>(group.hosts);
  const double steps = Log2Up(group.members);
  if (kind == CollectiveKind::kBroadcast) return CostThroughAll(group, steps, steps * n, 1);
  if (kind == CollectiveKind::kAllToAll) return CostThroughAll(group, steps, steps * n / 2, p);
  const Halves halves = HalvesOf(kind, n, q);
  const Traffic traffic{halves.count * Log2Up(group.members_per_host),
                        halves.count * Share(p) * halves.bytes, halves.count * Log2Up(group.hosts),
                        halves.count * Share(h) * halves.bytes / p};
  return CostOfTraffic(traffic, group.within, BetweenHosts(group, p));
}

CollectiveCost HierarchicalCost(CollectiveKind kind, double n, const GroupShape& group) {
  const auto q = static_cast<double>(group.members);
  const auto p = static_cast<double>(group.members_per_host);
  const auto h = static_cast<double>(group.hosts);
  if (kind == CollectiveKind::kBroadcast) {
    return CostOfTraffic({p - 1, n, h - 1, n}, group.within, BetweenHosts(group, 1));
  }
  if (kind == CollectiveKind::kAllToAll) {
    return CostOfTraffic({p - 1, Share(p) * n, h - 1, Share(h) * n}, group.within,
                         BetweenHosts(group, p));
  }
  const Halves halves = HalvesOf(kind, n, q);
  const Traffic traffic{halves.count * (p - 1), halves.count * Share(p) * halves.bytes,
                        halves.count * (h - 1), halves.count * Share(h) * halves.bytes / p};
  return CostOfTraffic(traffic, group.within, BetweenHosts(group, p));
}

bool Suits(const GroupShape& group, CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::kRing:
      return true;
    case CollectiveAlgorithm::kRecursive:
      return group.is_even && IsPowerOfTwo(group.members_per_host) && IsPowerOfTwo(group.hosts);
    case CollectiveAlgorithm::kHierarchical:
      return group.is_even && group.hosts > 1 && group.members_per_host > 1;
  }
  return false;
}

}  // namespace

LinkCost Slower(const LinkCost& a, const LinkCost& b) {
  return {std::max(a.alpha_s, b.alpha_s), std::max(a.seconds_per_byte, b.seconds_per_byte)};
}

double BytesPerDevice(CollectiveKind kind, double local_bytes, int64_t group_size) {
  MW_CHECK(group_size >= 1) << "group_size " << group_size;
  const double others = static_cast<double>(group_size - 1);
  // Multiplying before dividing keeps whole numbers whole.
  const double share = others * local_bytes / static_cast<double>(group_size);
  switch (kind) {
    case CollectiveKind::kAllGather:
      return others * local_bytes;
    case CollectiveKind::kAllReduce:
      return 2 * share;
    case CollectiveKind::kRingShift:
      return group_size > 1 ? local_bytes : 0;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      break;
  }
  return share;
}

std::string_view CollectiveAlgorithmName(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::kRing:
      return "ring";
    case CollectiveAlgorithm::kRecursive:
      return "recursive";
    case CollectiveAlgorithm::kHierarchical:
      return "hierarchical";
  }
  return "?";
}

CollectiveCost CostOfCollective(CollectiveKind kind, double local_bytes, const GroupShape& group,
                                CollectiveAlgorithm algorithm) {
  MW_CHECK(group.members >= 1 && group.hosts >= 1 && group.members_per_host >= 1)
      << "members " << group.members << ", hosts " << group.hosts;
  CollectiveCost cost;
  if (group.members > 1) {
    switch (algorithm) {
      case CollectiveAlgorithm::kRing:
        cost = RingCost(kind, local_bytes, group);
        break;
      case CollectiveAlgorithm::kRecursive:
        cost = RecursiveCost(kind, local_bytes, group);
        break;
      case CollectiveAlgorithm::kHierarchical:
        cost = HierarchicalCost(kind, local_bytes, group);
        break;
    }
    const bool is_ring = algorithm == CollectiveAlgorithm::kRing;
    const bool suits = kind == CollectiveKind::kRingShift ? is_ring : Suits(group, algorithm);
    if (!suits) cost.seconds = std::numeric_limits<double>::infinity();
  }
  cost.algorithm = algorithm;
  return cost;
}

CollectiveCost CostOfCollective(CollectiveKind kind, double local_bytes, const GroupShape& group) {
  CollectiveCost best = CostOfCollective(kind, local_bytes, group, CollectiveAlgorithm::kRing);
  for (const CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::kRecursive, CollectiveAlgorithm::kHierarchical}) {
    const CollectiveCost cost = CostOfCollective(kind, local_bytes, group, algorithm);
    if (cost.seconds < best.seconds) best = cost;
  }
  return best;
}

}  // namespace meshwright::mesh
