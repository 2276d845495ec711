// Products of a tensor group in chunks of their rows: one chunk is on its way while another is
// computed.
//
//   gathered before    link     gather 1 | gather 2 |
//                      device            | product 1 | product 2
//   summed up behind   device   product 1 | product 2 |
//                      link               | sum 1     | sum 2
//
// Each row is the same sum as without, up to how kernels round by the number of rows, and as many
// bytes are sent, in more calls. Forward and backward have one degree: what is computed again is
// what it was. Nothing starts or awaits a chunk: bytes say when a collective may run
// (docs/adr/0079). What is between two products, such as an activation function, is computed in
// their chunks; what others need whole is put together once.
//
// A dim that a group of p devices gathers or scatters is cut within the block of each device: chunk
// i has of each of p blocks the i-th part, so that gathering and scattering know nothing of it.
//
// Thread rule: pure functions. Source: "collective matmul", Wang et al., "Overlap Communication
// with Dependent Computation via Decomposition in Large Deep Learning Models", ASPLOS'23.
// Deviation: chunks are gathered by the group's collective, not block by block around a ring.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "planner/layout.h"
#include "planner/node_prices.h"
#include "planner/pieces.h"

namespace meshwright::planner {

// A local graph, with `chunks` chunks in each product that gathers or sums up over axes of `tensor`
// and whose rows divide into as many. products: how many these are; not counted where null.
// REQUIRES: chunks > 1.
Result<ir::Graph> WithStreamedProducts(const ir::Graph& local,
                                       const std::vector<ir::MeshAxis>& tensor, int64_t chunks,
                                       int64_t* products = nullptr);

struct StreamCosts {
  std::vector<NodePrices>& prices;  // per stage
  const Layout& layout;
  double beside = 0;   // the share of a collective's time in which a device computes
  int64_t chunks = 0;  // of every product; 0: 1, 2, 4 or 8, as seconds are least
};
struct StreamedProducts {
  int64_t products = 0;  // of one microbatch of all stages
  int64_t chunks = 1;
  bool beside = false;  // collectives run beside what computes
};
// Of all pieces but those of the update, in one degree.
Result<StreamedProducts> StreamProducts(const StreamCosts& costs, Partition& partition);

// What a plan says about it; `asked`: the chunks that the job wants.
std::string NoteOf(const StreamedProducts& streamed, int64_t asked);

}  // namespace meshwright::planner
