// What the ops of a graph do with padding: zeros behind the end of a dim (planner/padding.h).
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "ir/schema.h"

namespace meshwright::planner {

// Whether the node computes the same with this factor padded: each element of a result comes from
// none of the padding, or is in it. Of a reduced one: once its operands are ready (BeforeSum).
bool CarriesPadding(const ir::Node& node, const ir::FactorRule& rule, ir::FactorIndex factor);

// What has to be done to an operand before the node sums over padding of it.
enum class BeforeSum : uint8_t {
  kNothing,  // it looks at no padding
  kZero,     // it must be zeros there
  kCut,      // it must be made zeros there: what comes back to each summand is not zero
  kMask,     // it must be far below all else there
};
BeforeSum ReadyFor(const ir::Node& node, size_t operand);

// Whether padding of the results is zeros. Per operand: whether it has padding, and whether that is
// zeros.
struct OperandPadding {
  bool padded = false;
  bool zero = false;
};
bool GivesZeros(const ir::Node& node, const std::vector<OperandPadding>& operands);

}  // namespace meshwright::planner
