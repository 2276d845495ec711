// Pipeline stages on submeshes, as tables of costs: what a search for stages decides, and what an
// answer costs.
//
// A stage is a contiguous range of layers, an *option* (one way to compute layers on a submesh of
// one class of devices: its sharding, with or without recomputation), and so a submesh. A stage i
// costs per microbatch and per step
//   compute_i = forward + backward              transfer_i: to the next stage and back
//   period_i  = compute_i + transfer_i          (the larger of both where transfers overlap)
//   fill_i    = compute_i + transfer_i - delayed weight gradients
//   tail_i    = update + exposed gradient sync + delayed weight gradients
// and a step of m microbatches takes
//   T = sum_i fill_i + (m - 1) max_i period_i + max_i tail_i.
// Memory is a constraint: state + in flight x activations + transient <= memory of a device. So is
// placement: the submeshes must lie on the hosts that exist (search/stage_packing.h); devices may
// stay idle. EvaluateStages recomputes an answer from nothing but the problem.
//
// Thread rule: values, pure functions; callables of a problem are called on the caller's thread and
// must be pure. Source: Alpa (Zheng et al., OSDI'22) section 5, equation 2, which has no transfers,
// update, sync, classes or placement; delayed weight gradients: Qi et al., ICLR'24, section 2.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "search/stage_packing.h"

namespace meshwright::search {

struct StageDeviceClass {
  std::string name;
  std::vector<int> host_devices;  // devices of every host
  int64_t memory_bytes = 0;       // of a device; 0: unknown, not checked
};

// Of one layer, or of a range of layers. Bytes are per device.
struct LayerCost {
  double forward_s = 0;          // per microbatch
  double backward_s = 0;         // per microbatch
  double weight_s = 0;           // the part of backward_s that a schedule may delay
  double update_s = 0;           // per step
  double gradient_sync_s = 0;    // per step, what no computation hides
  int64_t state_bytes = 0;       // weights, gradients, optimizer
  int64_t activation_bytes = 0;  // per microbatch in flight
  int64_t transient_bytes = 0;   // while it computes; layers compute one after another
};

// A way to compute layers on a submesh.
struct StageOption {
  std::string name;  // for messages
  int device_class = 0;
  SubmeshShape shape;
  // How boundary tensors lie on its devices: options with equal ports transfer at equal costs.
  // The search takes the square of their number as a factor.
  int port = 0;
  std::vector<LayerCost> layers;  // per layer
};

// What the search needs to know of a pipeline schedule.
struct PipelineModel {
  std::string name;
  // Microbatches whose activations a stage holds at most, >= 1, from the number of stages from it
  // to the last one (that one: 1) and the number of microbatches.
  std::function<int(int stages_to_end, int microbatches)> in_flight;
  // How much of weight_s leaves the filling of the pipeline and is made up at the end of the step:
  // 0 without delay; 2 for the handcrafted zero-bubble schedule H1, whose bubble is
  // forward + backward - 2 weight per stage.
  double delayed_weight = 0;
};

PipelineModel GpipeModel();                  // m in flight
PipelineModel OneForwardOneBackwardModel();  // min(m, stages to the end)

// What the user has decided already.
struct StagePins {
  std::optional<std::vector<int>> begins;  // first layer of every stage
  std::optional<int> stages;               // their number
  struct Option {
    int stage = 0;
    int option = 0;
  };
  std::vector<Option> options;  // need `begins` or `stages`
  // The number of stages, if it is decided.
  std::optional<int> stage_count() const {
    return begins ? std::optional(static_cast<int>(begins->size())) : stages;
  }
};

struct StageProblem {
  int layers = 0;
  std::vector<StageDeviceClass> classes;
  std::vector<StageOption> options;
  std::vector<int64_t> boundary_bytes;  // per pair of neighbouring layers, per microbatch
  // Seconds per microbatch from a stage of one port to the next one and back, of a boundary's
  // bytes; charged to the earlier stage. Null: transfers are free.
  std::function<double(int from_port, int to_port, int64_t bytes)> transfer_s;
  // The cost of layers [first, end) together, where it is not the sum over layers (of transients:
  // the largest). Null, or nothing returned: it is.
  std::function<std::optional<LayerCost>(int option, int first, int end)> range_cost;
  int microbatches = 1;
  PipelineModel schedule;
  StagePins pins;

  int ports() const;
};

// Errors: kInvalidArgument naming the field that is not of the form above, or the pins that
// contradict each other or the inventory.
Status CheckStageProblem(const StageProblem& problem);

// Of two ranges of layers computed one after the other: sums, and the larger of transients.
void AddLayerCost(LayerCost& sum, const LayerCost& cost);

// Cost of layers [first, end) under an option. REQUIRES: first < end, in range.
LayerCost RangeCost(const StageProblem& problem, int option, int first, int end);

// Errors: kInvalidArgument: seconds that are negative or no number, bytes of more than 1 PiB, more
// weight gradients than backward, or more delay than computation.
Status CheckLayerCost(const LayerCost& cost, const PipelineModel& schedule);

// state + in_flight x activations + transient; saturates.
int64_t StageMemoryBytes(const LayerCost& cost, int in_flight);

struct StageChoice {
  int first_layer = 0;
  int end_layer = 0;  // one past the last
  int option = 0;
  friend bool operator==(const StageChoice&, const StageChoice&) = default;
};

struct StageNumbers {
  double compute_s = 0;
  double transfer_s = 0;
  double period_s = 0;
  double fill_s = 0;
  double tail_s = 0;
  int in_flight = 0;
  int64_t memory_bytes = 0;
  int64_t over_bytes = 0;  // above the memory of its devices; 0: it fits
  SubmeshPlace place;      // hosts of its class; empty when the stages cannot be placed
};

struct StageEvaluation {
  double step_s = 0;  // T
  std::vector<StageNumbers> stages;
  std::vector<std::string> violations;  // memory, placement, pins, layers that no stage has
  int worst_stage = -1;                 // the one with the most over_bytes, if any
  bool feasible() const { return violations.empty(); }
};

// REQUIRES: CheckStageProblem is OK. Stages that do not cover the layers in order, or name no
// option, are violations and have no numbers.
StageEvaluation EvaluateStages(const StageProblem& problem, std::span<const StageChoice> stages);

// "stage 1 of 4 (layers 3..5, a100 2x8, \"data 4 x tensor 4\")", for messages and tables.
// REQUIRES: the stage is of the problem.
std::string FormatStage(const StageProblem& problem, std::span<const StageChoice> stages,
                        int stage);

}  // namespace meshwright::search
