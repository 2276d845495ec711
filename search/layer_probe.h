// What each kind of layer costs on a submesh, read off the pieces that the planner would make for
// it: the same graphs with the same collectives and fused kernels that would run.
//
// The step of a short model (search/short_model.h) is planned for one stage without a data axis,
// and every node of its pieces is priced by the cost model and counted to its layer: products of
// local shapes, and what the axes move for a microbatch (dispatch to experts and back, keys of a
// row that devices share). What depends on replicas (reducing gradients, ZeRO) has closed forms and
// is not in here.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "planner/cost_model.h"
#include "planner/plan.h"
#include "search/device_classes.h"
#include "search/short_model.h"

namespace meshwright::search {

struct ProbedWeight {
  ir::Dims dims;  // of its local block
  int64_t bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t copy_bytes = 0;       // in the type of the microbatches, where that is another
  bool shared = false;          // of an earlier layer
  bool copy_is_shared = false;  // an earlier layer reads the copy, too
  bool by_expert = false;       // each rank of the expert axis has some of it
  bool is_master = false;       // microbatches read nothing of it but the copy
};

// Of some weights together, and of what comes with them.
struct StateBytes {
  int weights = 0;  // how many
  int64_t bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t copy_bytes = 0;  // in the type of the microbatches, where that is another
  int64_t optimizer_bytes = 0;
  int64_t master_bytes = 0;   // of bytes: microbatches read a copy alone
  int64_t renewed_bytes = 0;  // what microbatches read: those copies, and the other weights
  void Add(const ProbedWeight& weight);  // without its copy
};

// Of one layer on one device of the submesh. Bytes are those of local blocks.
struct LayerProbe {
  double forward_s = 0;   // per microbatch
  double backward_s = 0;  // per microbatch, both parts
  double weight_s = 0;    // of backward_s: the gradients of weights
  double update_s = 0;    // per step: the optimizer on all of the weights, casts of them
  double flops = 0;       // of products, attention and head, per microbatch, recomputation included
  StateBytes own;
  bool gradients_stay = true;  // else they wait in a farther memory
  StateBytes of_experts;       // of its own, what ranks of the expert axis have some of each
  // Of weights of earlier layers that it reads, too: another stage holds a copy of them. Copies are
  // those that an earlier layer reads, too.
  StateBytes shared;
  int64_t shared_whole_bytes = 0;  // of these what every device of the tensor group has all of
  int shared_layer = -1;  // the first of those layers; their gradients are summed once per step
  std::vector<ProbedWeight> weights;
  // Per microbatch. A value counts with the first layer whose backward reads it: where a stage
  // begins, it has received that.
  int64_t kept_bytes = 0;  // from forward to backward
  // Where the backward is split: of kept_bytes what W reads, too, and what B makes for W.
  int64_t kept_for_weights_bytes = 0;
  int64_t made_for_weights_bytes = 0;
  int64_t largest_made_bytes = 0;    // of one value for W; its operands are still there meanwhile
  bool recomputes = false;           // some of what the backward reads
  bool makes_loss_gradient = false;  // the head, its loss and their gradients are one node
  int64_t transient_bytes = 0;       // between the kernels of one run
  int64_t packed_bytes = 0;          // of the largest collective's operand that is no run of memory
  int64_t boundary_bytes = 0;        // what the next layer reads of it
};

// What ZeRO splits of a layer over `replicas` (planner/zero.h): weights of which they divide a dim.
struct ZeroSplit {
  StateBytes own, of_experts, shared;  // as of LayerProbe
  int64_t largest_renewed_bytes = 0;   // of one weight that is no master
  int64_t largest_bytes = 0;           // of one gradient
  int64_t largest_gathered_bytes = 0;  // of one weight or its copy
  int64_t packed_bytes = 0;            // of the largest whose blocks are no runs of memory
};
// Of weights that have at least so many bytes on a device.
ZeroSplit SplitOver(const LayerProbe& probe, int64_t replicas, int64_t min_bytes);

struct ProbeOptions {
  planner::Degrees degrees;  // its data axis is 1
  planner::ContextAttention context_attention = planner::ContextAttention::kAuto;
  int64_t rows = 1;  // of a microbatch, on each rank of the expert axis
  bool sequence_parallel = false;
  planner::Recompute recompute = planner::Recompute::kNone;
};

// A step that probes share: the logical graph of the short model's step.
struct ProbeStep {
  ir::JobRequest job;  // of the short model
  ir::Graph graph;     // planner::MakeStepGraph
};
Result<ProbeStep> MakeProbeStep(const ir::JobRequest& job, const ShortModel& model);

// Per layer of the short model. `devices`: their group is that of the degrees, of the topology that
// `costs` knows. REQUIRES: as many in the group as degrees.device_count(). Errors:
// kInvalidArgument: the options do not divide the job. How tokens go to experts is chosen for the
// first device of the group, as plans choose it.
Result<std::vector<LayerProbe>> ProbeLayers(const ProbeStep& step, const ProbeOptions& options,
                                            const planner::CostModel& costs,
                                            const ProbeDevices& devices);

}  // namespace meshwright::search
