// Reverse-mode differentiation on the graph.
//
// The loss graph has outputs "loss_sum" (scalar: sum of the per-token losses of the batch) and
// "count" (scalar: how many tokens it sums over). The objective is loss_sum / count over the global
// batch; gradients are those of loss_sum, so that microbatches and data shards simply add, and the
// division by the global count happens once, in the update.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

class Builder;

// A value and its gradient.
struct Seed {
  ValueId value;
  ValueId gradient;
};

// Appends the nodes that compute the gradients of sum_i <seed_i.gradient, seed_i.value> with
// respect to the values `wrt`, through the nodes from number `first_node` on, in the builder's
// layer and phase. Returns one id per entry of wrt, of its type; invalid where the seeds do not
// depend on it. The nodes are like any others: what they compute can be differentiated again.
// Errors: kUnimplemented naming an op without gradient on the way.
Result<std::vector<ValueId>> BackPropagate(Builder& builder, std::span<const Seed> seeds,
                                           std::span<const ValueId> wrt, size_t first_node = 0);

// The gradient of a scalar. Where it does not depend on an entry of wrt: zeros.
// Errors: as above; kInvalidArgument: `loss` is no floating point scalar, or a value is not one of
// the graph or not floating point.
Result<std::vector<ValueId>> AppendGradients(Builder& builder, ValueId loss,
                                             std::span<const ValueId> wrt);

// Extends `loss` with backward nodes (Phase::kBackward, layer of the node differentiated). Every
// param P gets an output "grad/P" (P: its name attribute). A gradient with several contributions is
// one `sum` node in use order. When the contributions come from one layer, the `sum` is in that
// layer (one tensor crosses back over a stage boundary); else it has the layer of the value's
// producer, and for a param layer -1 and Phase::kUpdate (each contribution accumulates over
// microbatches on its own, in the stage of its layer). Node and value ids of `loss` stay valid in
// the result. Values that do not depend on a param get no gradient.
// Errors: kInvalidArgument when "loss_sum" or "count" is missing or not a floating point scalar, or
// a param does not reach the loss (named); kUnimplemented naming an op without gradient on the way.
Result<Graph> Differentiate(const Graph& loss);

struct OptimizerSpec {
  std::string name = "adamw";  // "adamw" | "sgd" | "lion" | "adafactor"
  double lr = 3e-4;
  double min_lr = 0;
  std::string schedule = "constant";  // ir/rate_schedule.h
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0;                // sgd
  double max_norm = 1.0;              // global gradient norm; 0: no clipping
  DType moments_dtype = DType::kF32;  // kBF16: of f32 params, what adamw, sgd and lion remember
  // Adafactor: the rate is times the root mean square of the param, 1e-3 at least; the mean of
  // squares at step t has the decay 1 - t^-decay_rate; an update's root mean square is this at
  // most.
  bool scale_parameter = true;
  double decay_rate = 0.8;
  double clip_threshold = 1;
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

// Appends the update (Phase::kUpdate) to a graph made by Differentiate: sum_squares per gradient,
// `sum` of them, clip_multiplier, learning_rate, one adamw/sgd/adafactor per param. Optimizer state
// enters as `param` nodes named "opt.m/P", "opt.v/P", of Adafactor "opt.r/P", "opt.c/P"
// (ir/factored.h; init zeros, attr state:int 1). Weight decay applies
// where the param's `decay` attr is 1. Outputs: "update/P" and "update/opt.m/P"... (the new
// values), "loss" (loss_sum/count), "grad_norm", "lr", "tokens" (count). Outputs "grad/P" are kept.
// State is in f64 for f64 params, else in f32. A param with sign_rate goes by it against the sign
// of its gradient (an adamw that remembers nothing), and is no part of the norm. Errors:
// kInvalidArgument: no params, one without "grad/P", an unknown optimizer or schedule, a bad value.
Result<Graph> AppendUpdate(const Graph& differentiated, const OptimizerSpec& optimizer);

}  // namespace meshwright::ir
