// Which nodes become one fused node. Internal to compile/.
//
// A group is a producer (a matrix product, a norm's gradient) or an elementwise node, and the
// elementwise nodes and column sums that follow it on values of one size. It is emitted where its
// last member was, so that nothing outside may read one of its values before that place.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace meshwright::compile {

struct Group {
  std::vector<size_t> members;  // nodes, in order
  bool has_producer = false;
  int64_t elements = 0;  // of its full values
  int64_t width = 0;     // elements of its narrow values; 0: none yet
};

// Groups of two or more nodes, in order of their last members.
std::vector<Group> FindGroups(const ir::Graph& graph);

}  // namespace meshwright::compile
