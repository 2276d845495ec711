// What a collective moves and how long that takes: the alpha-beta model.
//
// A group of q devices, each with n local bytes before the call. Bytes received per device:
//   all_gather (q-1)n; all_to_all, reduce_scatter (q-1)/q n; all_reduce 2(q-1)/q n; broadcast
//   (q-1)/q n; ring_shift n; slice 0.
// Totals over the group are q times that. In terms of the full tensor of N bytes (N = qn when it is
// split before the call, N = n when every device holds all of it or a summand of it) they are:
// broadcast, all_gather, reduce_scatter (q-1)N; all_reduce 2(q-1)N; all_to_all (q-1)/q N.
//
// Seconds depend on the algorithm. The group has p members on each of h hosts (q = p h), links
// within a host cost a, b (seconds per message, seconds per byte), between hosts A, B. L(x) is
// ceil(log2 x). Reduce-scatter; all-gather is the same with q n for n, all-reduce is both:
//   ring          (q-1) messages of n/q around a ring through all hosts, each as slow as the
//                 slowest link: (q-1) max(a,A) + (q-1)/q n max(b,B)
//   recursive     halving, within hosts first: L(p) a + (p-1)/p n b + L(h) A + (h-1)/h n/p B;
//                 p and h powers of two
//   hierarchical  a ring within hosts, then p rings of one member per host side by side:
//                 (p-1) a + (p-1)/p n b + (h-1) A + (h-1)/h n/p B
// All-to-all: ring: one message per peer, (p-1) a + (p-1)/q n b + (q-p) A + (q-p)/q n B; recursive
// (Bruck): L(q) messages of n/2 over the slowest link; hierarchical: within hosts, then between
// them: (p-1) a + (p-1)/p n b + (h-1) A + (h-1)/h n B. Broadcast: ring, pipelined: (q-1) max(a,A) +
// n max(b,B); recursive: L(q) (max(a,A) + n max(b,B)); hierarchical, pipelined: (p-1) a + n b +
// (h-1) A + n B. Ring shift: one message of n over the slowest link, whatever the algorithm.
//
// A host's network cards carry all of its members' messages at once: with f flows out of a host,
// B is at least f times the seconds per byte of the cards. The group has f = 1 in a ring, p else;
// and programs are SPMD, so the host's other devices are taken to run the same collective at the
// same moment, each p of them with as many flows.
//
// Thread rule: pure functions. Source: Thakur, Rabenseifner
// and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA 2005, sections
// 3 and 4; Patarasu and Yuan, JPDC 2009 (rings).
#pragma once

#include <cstdint>
#include <string_view>

namespace meshwright::mesh {

enum class CollectiveKind : uint8_t {
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kRingShift,
};

struct LinkCost {
  double alpha_s = 5e-6;            // per message
  double seconds_per_byte = 1e-10;  // of one device in one direction
  friend bool operator==(const LinkCost&, const LinkCost&) = default;
};
// What both together are at least: the worse of each number.
LinkCost Slower(const LinkCost& a, const LinkCost& b);

// Bytes that one device receives. `local_bytes` is what it holds before the call (broadcast: the
// message).
double BytesPerDevice(CollectiveKind kind, double local_bytes, int64_t group_size);

enum class CollectiveAlgorithm : uint8_t { kRing, kRecursive, kHierarchical };
std::string_view CollectiveAlgorithmName(CollectiveAlgorithm algorithm);  // "ring", ...

// What the seconds of a collective need to know of its group.
struct GroupShape {
  int64_t members = 1;
  int64_t hosts = 1;
  int64_t members_per_host = 1;  // the most on one host
  bool is_even = true;           // as many on every host
  LinkCost within;               // a host
  LinkCost between;              // hosts; the slowest pair of the group's
  // Of a host's cards together; 0: they are no limit.
  double nic_seconds_per_byte = 0;
  int64_t groups_per_host = 1;  // that share the cards at the same moment, this one included
};

struct CollectiveCost {
  double seconds = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
  // Received per device, on average over the members.
  double bytes_within = 0;
  double bytes_between = 0;
};

// The cheapest algorithm, as the runtime takes it; ties go to the one listed first. A group of one
// costs nothing.
CollectiveCost CostOfCollective(CollectiveKind kind, double local_bytes, const GroupShape& group);

// With one algorithm. Seconds are infinite where the group does not suit it: recursive needs powers
// of two, hierarchical several members on each of several hosts, both an even group.
CollectiveCost CostOfCollective(CollectiveKind kind, double local_bytes, const GroupShape& group,
                                CollectiveAlgorithm algorithm);

}  // namespace meshwright::mesh
