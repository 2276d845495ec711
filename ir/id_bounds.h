// Which inputs of a program are ids, and below what: an id outside of its table fails on a device,
// so whoever brings the input is told before.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ir/graph.h"

namespace meshwright::ir {

struct IdBound {
  int64_t size = 0;                // ids are in [0, size)
  std::optional<int64_t> ignored;  // or this, where all that reads them does not count it

  bool Holds(int64_t id) const { return (id >= 0 && id < size) || (ignored && id == *ignored); }
};

// By the "source" of feeds of i32 that reach the ids of an embedding or the labels of a loss, as
// they are or cut, reshaped and transposed; of several readers what all of them take.
std::map<std::string, IdBound> IdBoundsOf(const Graph& graph);

}  // namespace meshwright::ir
