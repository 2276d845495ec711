// Can a dim of a value stay split all the way downstream? Looks ahead through the forward users: a
// factor that some user needs whole (a norm over the hidden dim, the head size in attention) says
// no; a contraction or reduction of it says yes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ir/graph.h"

namespace meshwright::planner {

class SplitCheck {
 public:
  enum Verdict : uint8_t { kFits, kDoesNotDivide, kNeededWhole };
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
