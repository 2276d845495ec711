// Why a tensor of a plan is split as it is: every legal way to store a param or to compute a node,
// what each would cost, and which one the plan has.
//
// The prices are those of the search for shardings (search/intra_problem.h), on the plan's layout:
// seconds of one value's way through all layers and stages, forward to update; fusion is not seen.
// Each way has two prices: what changes when nothing else does, and what the best step with it
// takes when all else is chosen anew. Where rules chose the shardings (planner/strategy.h), the
// second one can be less for all ways than what the plan takes.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/plan.h"

namespace meshwright::report {

// Seconds are per step.
struct ShardingCosts {
  double compute_s = 0;
  double reduce_s = 0;   // sums over devices: all-reduce, reduce-scatter
  double reshard_s = 0;  // other conversions: all-gather, all-to-all
  double total_s() const { return compute_s + reduce_s + reshard_s; }
};

struct ShardingAlternative {
  std::string text;  // of a param its sharding; of a node "operand x operand -> result"
  bool chosen = false;
  bool possible = false;  // with the rest chosen for it
  ShardingCosts costs;    // of the whole step, with the rest chosen for it
  double alone_s = 0;     // more than the plan takes, with the rest as it is; kForbidden: cannot be
  int64_t bytes = 0;      // of a device: the param, or what the node makes per microbatch
  int64_t over_bytes = 0;  // by which a device's memory is exceeded
};

struct ShardingExplanation {
  std::string name;                // "param a.b.c", "einsum %17 (layer 0, forward)"
  std::vector<std::string> alike;  // names of all that choose together, this one included
  size_t unpriced = 0;             // alternatives that are left out
  std::vector<ShardingAlternative> alternatives;  // from the cheapest; impossible ones last
};

struct ShardingExplanations {
  std::vector<ShardingExplanation> tables;
  size_t left_out = 0;    // tables that the pattern has, too
  ShardingCosts planned;  // what the plan's choices take
};

struct ExplainOptions {
  bool by_search = false;     // the plan's shardings are the search's and not the rules'
  size_t most_tables = 6;     // of a pattern
  size_t most_priced = 24;    // alternatives of a table: those with the least own costs
  int64_t timeout_ms = 2000;  // of each problem
};

struct ExplainShardingsInput {
  const ir::JobRequest& job;
  const mesh::Topology& topology;
  const planner::Plan& plan;  // made for the two
  ExplainOptions options = {};
};

// `pattern`: the name of a param ("h.0.attn.weight"), of an output of the step ("grad/h.0...",
// "loss"), a value ("%17", as in the explanations), or a glob over names ("*.attn.*"; over params
// unless it has a '/'). Things that choose together have one explanation; behind a param there is
// one of the node that computes with it. Errors: kNotFound naming the nearest name; as
// planner::MakePlan and SearchIntra.
Result<ShardingExplanations> ExplainShardings(const ExplainShardingsInput& input,
                                              const std::string& pattern, const Clock& clock);

}  // namespace meshwright::report
