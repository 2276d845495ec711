// A mixture of experts as a layer: a router gives every token to a few experts and weighs what they
// say.
//
// Rows of the batch are routed one by one: which tokens an expert takes does not depend on the
// other rows, and so not on how the batch is split over devices and microbatches. Without a
// capacity no token is dropped, however uneven the router is.
//
// clang-format off
//   ExpertOptions options{.experts = 8, .chosen = 2};
//   MixtureOfExperts mixture = RouteToExperts(b, x, "mlp", options);
//   ValueId h = b.Gelu(mixture.Matmul(mixture.slots, "mlp.up", 512));
//   ValueId y = mixture.Combine(mixture.Matmul(h, "mlp.down", d));
// clang-format on
//
// Thread rule: that of the builder, which outlives it. Sources: Shazeer et al. 2017 (top-k of a
// softmax), GShard 2020 (groups of tokens with a capacity), Switch 2021 (z-loss: ST-MoE 2022),
// Mixtral 2024 (weights normalised over those chosen).
#pragma once

#include <cstdint>
#include <string>

#include "client/layers.h"

namespace meshwright::client {

struct ExpertOptions {
  int64_t experts = 8;
  int64_t chosen = 2;      // experts of a token
  bool normalised = true;  // weights of a token add up to one
  // Room of an expert: this x tokens x chosen / experts of a row. What finds none is dropped,
  // second choices first. 0: there is room for all.
  double capacity_factor = 0;
};

struct MixtureOfExperts {
  Builder& builder;
  ExpertOptions options;
  ValueId slots;    // [b, groups, capacity, d]: tokens where their experts take them
  ValueId used;     // i32[b, experts]: slots of each expert
  ValueId slot;     // i32[b, s, k]
  ValueId weights;  // [b, s, k]
  // By row of the batch, [b]; gradients pass. balance: experts * sum over experts of the share of
  // choices that they got x their mean probability, 1 when all are alike (GShard's and Switch's
  // form, per row). z: the mean of the squared log-sum-exp of the router's logits.
  ValueId balance;
  ValueId z;

  // Of slots [.., d]: each times its expert's matrix, [.., out]; the weights are a param [experts,
  // d, out].
  ValueId Matmul(ValueId x, const std::string& name, int64_t out,
                 const ParamOptions& param = {}) const;
  // Slots [.., d] back to their tokens: [b, s, d].
  ValueId Combine(ValueId y) const;
};

// x [b, s, d]. The router's weights are the param `name`.gate.weight [experts, d].
MixtureOfExperts RouteToExperts(Builder& builder, ValueId x, const std::string& name,
                                const ExpertOptions& options);

// Errors: kInvalidArgument naming the field.
Status Validate(const ExpertOptions& options);

// Slots of one expert of a row of `tokens`, where tokens may be dropped.
int64_t CapacityOf(const ExpertOptions& options, int64_t tokens);

}  // namespace meshwright::client
