// Can a dim of a value stay split all the way downstream? Looks ahead through the forward users: a
// factor that some user needs whole (a norm over the hidden dim, the head size in attention) says
// no; a contraction or reduction of it says yes. Where a reshape makes it the minor part of a dim,
// it is gathered: a block of it then lies in pieces all over the dim, which no sharding says.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ir/graph.h"
#include "ir/schema.h"

namespace meshwright::planner {

// Whether some dim of the node has the factor behind a larger one: splitting it splits no dim.
bool IsMinor(const ir::FactorRule& rule, ir::FactorIndex factor);

class SplitCheck {
 public:
  enum Verdict : uint8_t { kFits, kGathered, kDoesNotDivide, kNeededWhole };
  struct Answer {
    Verdict verdict = kFits;
    int64_t size = 0;            // the factor that does not divide
    bool is_vocabulary = false;  // ends in the loss
  };

  explicit SplitCheck(const ir::Graph& graph) : graph_(graph), users_(graph.Users()) {}

  // Splitting dim `dim` of `value` in `parts`.
  Answer Check(ValueId value, int dim, int64_t parts);

 private:
  Answer CheckUser(const ir::Node& user, size_t operand, int dim, int64_t parts);

  const ir::Graph& graph_;
  IdVector<ValueId, std::vector<NodeId>> users_;
};

}  // namespace meshwright::planner
