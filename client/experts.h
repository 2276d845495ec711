// A mixture of experts as a layer: a router gives every token to a few experts and weighs what they
// say.
//
// Rows of the batch are routed one by one: which tokens an expert takes does not depend on the
// other rows, and so not on how the batch is split over devices and microbatches. Without a
// capacity no token is dropped, however uneven the router is.
//
// clang-format off
//   ExpertOptions options{.experts = 8, .chosen = 2, .router = TopOfSoftmax{}};
//   MixtureOfExperts mixture = RouteToExperts(b, x, "mlp", options);
//   ValueId h = b.Gelu(mixture.Matmul(mixture.slots, "mlp.up", 512));
//   ValueId y = mixture.Combine(mixture.Matmul(h, "mlp.down", d));
// clang-format on
//
// What keeps the router from using few experts: losses of balance (client/balance.h), or the bias
// of TopOfSigmoid.
//
// Thread rule: that of the builder, which outlives it. Sources: Shazeer et al. 2017 (noisy top-k),
// GShard 2020 (groups of tokens with a capacity), Switch 2021 (one expert, weighed by its
// probability; z-loss: ST-MoE 2022), Mixtral 2024 (weights normalised over those chosen),
// DeepSeek-V3 2024 (sigmoid, groups, a bias in the place of a loss).
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "client/layers.h"

namespace meshwright::client {

// Routers: logits of a token are x W^T, W the param `name`.gate.weight [experts, d], where "gate"
// is ExpertOptions::gate here and below.

// The largest of a softmax over all experts. Weights are the probabilities, or these divided by
// their sum. Not normalised and one expert a token: Switch.
struct TopOfSoftmax {
  bool normalised = true;
};

// A softmax over the logits of those chosen.
struct SoftmaxOfTop {
  bool bias = false;  // the param `name`.gate.bias [experts] is added to the logits
};

// As SoftmaxOfTop, of logits with normal noise of the size softplus(x V^T); V is the param
// `name`.noise.weight. Where a model is validated or asked, there is no noise.
struct NoisyTop {};

// Each expert has a score of its own, sigmoid(logit). A bias, which is no part of the weights, is
// added where experts are chosen: the param `name`.gate.e_score_correction_bias. After each step it
// goes down by `bias_rate` for experts that got more than their share of the step's choices and up
// for the others, whatever the optimizer is. 0: it stays.
struct TopOfSigmoid {
  bool normalised = true;     // weights: divided by their sum
  double scale = 1;           // and then times this
  int64_t groups = 1;         // of neighbouring experts, each judged by its best two;
  int64_t chosen_groups = 1;  // a token takes experts of so many groups only
  double bias_rate = 0.001;
};

// Experts choose tokens: each takes those of a row with the largest probabilities (a softmax over
// all experts), as many as its capacity, at capacity_factor 0 the fair share; weights are the
// probabilities. A token has any number of experts, and the load is always even. Not causal:
// whether a token is taken depends on those behind it. Source: Zhou et al. 2022.
struct ExpertChoice {};

using Router = std::variant<TopOfSoftmax, SoftmaxOfTop, NoisyTop, TopOfSigmoid, ExpertChoice>;

struct ExpertOptions {
  int64_t experts = 8;
  int64_t chosen = 2;  // experts of a token
  Router router = TopOfSoftmax{};
  // Room of an expert: this x tokens x chosen / experts of a row. What finds none is dropped,
  // second choices first. 0: there is room for all.
  double capacity_factor = 0;
  // Without a capacity: what each of several ranks that share experts has slots for, of a row: this
  // x the choices that come to it on average. A step that wants more fails. 0: all that may come.
  double slots_factor = 0;
  std::string gate = "gate";     // the router's name in the layer
  std::string stored_gate = {};  // another name of its matrix in files, which is read, too
};

struct MixtureOfExperts {
  Builder& builder;
  ExpertOptions options;
  ValueId slots;    // [b, groups, capacity, d]: tokens where their experts take them
  ValueId used;     // i32[b, experts]: slots of each expert
  ValueId slot;     // i32[b, s, k]; of ExpertChoice k is all experts here
  ValueId weights;  // [b, s, k]
  ValueId ids;      // i32[b, s, k]: the experts of a token, best first; of ExpertChoice in order
  // What losses of balance judge. shares: probabilities of all experts, which add up to 1 for each
  // token (of sigmoids: divided by their sum); choices: how many each expert got, dropped ones too;
  // z: the mean over a row of the squared log-sum-exp of the router's logits. Gradients pass
  // through shares and z.
  ValueId shares;   // [b, s, experts]
  ValueId choices;  // [b, experts]; of ExpertChoice: of tokens that were taken
  ValueId z;        // [b]
  // Zero, with the gradient that moves a bias of the router: the loss has to have its sum over
  // rows. Invalid: there is no such bias.
  ValueId steering;  // [b]

  // Of slots [.., d]: each times its expert's matrix, [.., out]; the weights are a param [experts,
  // d, out].
  ValueId Matmul(ValueId x, const std::string& name, int64_t out,
                 const ParamOptions& param = {}) const;
  // Of slots [.., d]: plus the vector of each one's expert; the vectors are a param [experts, 1,
  // d], which begins at zero and does not decay.
  ValueId AddBias(ValueId y, const std::string& name, const ParamOptions& param = {}) const;
  // Slots [.., d] back to their tokens: [b, s, d].
  ValueId Combine(ValueId y) const;
};

// x [b, s, d].
MixtureOfExperts RouteToExperts(Builder& builder, ValueId x, const std::string& name,
                                const ExpertOptions& options);

// Errors: kInvalidArgument naming the field.
Status Validate(const ExpertOptions& options);

// Slots of one expert of a row of `tokens`, where tokens may be dropped; capacity_factor 0 is 1.
int64_t CapacityOf(const ExpertOptions& options, int64_t tokens);

}  // namespace meshwright::client
