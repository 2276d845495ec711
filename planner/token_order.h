// The programs of a job as ranks that share rows token by token compute them.
//
// Causal attention makes later tokens more work than earlier ones. So that blocks of a row are
// equal work, tokens lie in zigzag order (ir/sequence_order.h) from where a model looks them up on:
// ids and labels are reordered (they are few bytes), what knows positions is told the order, and
// all other ops compute on tokens wherever they lie. What leaves a program is in the order of
// positions. Attention of packed q, k, v becomes that of three tensors, whose tokens split apart.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

// REQUIRES layout.context() > 1. `notes`: why tokens lie in the order of their positions where they
// do.
Result<ir::JobRequest> WithTokenOrder(const ir::JobRequest& job, const Layout& layout,
                                      std::vector<std::string>& notes);

}  // namespace meshwright::planner
