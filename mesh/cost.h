// What a collective moves and how long that takes: the alpha-beta model.
//
// A group of q devices, each with n local bytes before the call. Bytes received per device, ring
// algorithms:
//   all_gather (q-1)n; all_to_all, reduce_scatter (q-1)/q n; all_reduce 2(q-1)/q n; broadcast
//   (q-1)/q n; slice 0.
// Totals over the group are q times that. In terms of the full tensor of N bytes (N = qn when it is
// split before the call, N = n when every device holds all of it or a summand of it) they are:
// broadcast, all_gather, reduce_scatter (q-1)N; all_reduce 2(q-1)N; all_to_all (q-1)/q N. Seconds =
// alpha per call + bytes per device x seconds per byte.
//
// Thread rule: pure functions. Source: design parallelism.md, header and 2.15.
#pragma once

#include <cstdint>

namespace meshwright::mesh {

enum class CollectiveKind : uint8_t {
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
};

struct LinkCost {
  double alpha_s = 5e-6;
  double seconds_per_byte = 1e-10;
};

// Bytes that one device receives. `local_bytes` is what it holds before the call (broadcast: the
// message).
double BytesPerDevice(CollectiveKind kind, double local_bytes, int64_t group_size);

}  // namespace meshwright::mesh
