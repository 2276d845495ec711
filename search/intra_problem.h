// The cheapest shardings of a training step on one mesh: intra-operator parallelism as a problem of
// choices (search/choice_problem.h).
//
// What is chosen. Per node: its strategy (search/node_strategies.h). Per param: how it is stored
// (split over the data axis: ZeRO-3). Per value with several readers: the form in which it is
// delivered to all of them, so that one conversion serves them. That form of a gradient is the one
// in which it is summed over the microbatches (as produced: one reduction per step; split: ZeRO-2).
// The optimizer's state is stored as the optimizer node is split (over the data axis: ZeRO-1).
// Forward, backward and update are one problem, so that they agree about weights. Equal layers
// choose once (search/short_model.h).
//
// What it costs: seconds per step of all devices along the way of one value: nodes by an interface,
// conversions by their cheapest path with a link per axis, each times how often per step it
// happens. A weight is brought into the form that a microbatch needs once in its forward and once
// in its backward. Values that cross layers or stages are reduced there at the latest.
//
// What it takes: params, optimizer state, gradients and what the forwards keep for the backwards at
// all times, and in every layer what is alive at its fullest moment, must fit in the budget.
//
// Microbatches are not chosen: "micro" splits what planner::ChooseStrategies splits by it.
//
// Thread rule: pure functions. Source: Alpa (Zheng et al., OSDI'22) section 4, with ZeRO, memory
// and compute in the objective.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "mesh/cost.h"
#include "mesh/sharding.h"
#include "planner/stages.h"
#include "planner/strategy.h"
#include "search/choice_problem.h"
#include "search/choice_solver.h"
#include "search/deciders.h"

namespace meshwright::search {

class IntraCosts {
 public:
  virtual ~IntraCosts() = default;
  // Seconds of one execution (one microbatch of a forward or backward node) on one device,
  // collectives left out. `mesh` has the axes of the strategy, "micro" included.
  virtual double NodeSeconds(const ir::Graph& graph, const ir::Node& node,
                             const planner::NodeStrategy& strategy,
                             const mesh::Mesh& mesh) const = 0;
  virtual mesh::LinkCost Link(const std::string& axis) const = 0;
  // Of a pass of a device over its own memory, per byte read or written: blocks that are no runs
  // are packed for a collective.
  virtual mesh::LinkCost Copy() const { return {0, 0}; }
};

// What the caller has decided.
struct IntraPins {
  std::map<std::string, mesh::Sharding> params;  // by name, optimizer state included
  // Axes that split rows, tokens or experts in forward and backward, and whatever follows from
  // them, as planner::ChooseStrategies says by their roles (planner/axes.h); the update and the
  // storage of params are free to use them. Of "context": how attention meets it.
  std::vector<std::string> batch_axes;
  planner::ContextAttention context_attention = planner::ContextAttention::kAuto;
};

struct IntraOptions {
  std::vector<ir::MeshAxis> axes;  // of space; those of size 1 are ignored
  int64_t microbatches = 1;
  int64_t kept_microbatches = 1;  // whose activations a device keeps at once, at most
  int64_t budget_bytes = 0;       // of a device
  double budget_gap = 0.03;       // above the best that is good enough where the budget binds
  IntraPins pins = {};
};

struct IntraAnswer {
  planner::Strategies strategies;
  double step_s = 0;
  double bound_s = 0;      // nothing costs less
  int64_t left_bytes = 0;  // of the budget at the fullest moment
  Decider decider = Decider::kMessages;
};

// Solves the problem. The limits on memory come in only where the best choices without them do not
// fit; what is then near enough to the bound is answered at once, since the rest of the gap takes
// seconds. Errors: as MakeIntraModel (search/intra_model.h) and as the solver; kInvalidArgument
// naming the pins when they allow nothing together; kResourceExhausted: the step does not fit in
// the budget.
Result<IntraAnswer> SearchIntra(const ir::Graph& graph, const planner::StageAssignment& stages,
                                const IntraOptions& options, const IntraCosts& costs,
                                const Clock& clock, const SolveOptions& solve = {});

}  // namespace meshwright::search
