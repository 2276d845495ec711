// What a graph renews: ops that say so (ir::RenewedOf), and outputs "update/P", which stand for
// params P.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace meshwright::planner {

// By the value that renews it, each param. REQUIRES a graph as ir::AppendUpdate makes it: every
// such output has its param.
std::map<ValueId, ValueId> RenewedParams(const ir::Graph& step_graph);

// A running mean (ir/averages.h): it lies, and is renewed, where its param does.
struct Mean {
  std::string name;
  std::string of;  // the param
  ValueId of_value;
  ValueId value;    // before the step
  ValueId renewed;  // behind it
};
// REQUIRES as above.
std::vector<Mean> MeansOf(const ir::Graph& step_graph);

}  // namespace meshwright::planner
