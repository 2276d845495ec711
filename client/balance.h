// Losses that make routers use all experts alike, as published with the families that have them.
//
// Symbols of a layer with E experts, k of them for a token: c_i the choices that expert i got, p_i
// its mean probability, T tokens in a row, N tokens in the global batch, L layers with experts.
// clang-format off
//   form       value                                         of                    if all are alike
//   sequence   E / (k T) x sum_i c_i p_i                     a row; mean of rows   1
//   gshard     1 / (E T) x sum_i c1_i p_i                    a row; mean of rows   1 / E^2
//   switch     E / (k N) x sum_i c_i p_i                     the global batch      1
//   mixtral    E x sum_i (c_i / (L N)) p_i, c summed and p   the global batch,     k
//              averaged over layers                          all layers
// clang-format on
// gshard counts first choices only (c1). Values of layers are added up; mixtral has one value for
// all of them. sequence is DeepSeek's sequence-wise loss, too; switch with k > 1 is Megatron's.
// The mean over rows weighs a row by its tokens that count in the loss, so that microbatches and
// replicas add up. Products of sums over the global batch do not: with several microbatches the
// planner has the counts swept together first, or refuses them. Gradients pass through p, counts
// are constants.
//
// Thread rule: that of the builder, which outlives it. Sources: GShard 2020 (algorithm 1), Switch
// 2021 (equation 4), Hugging Face's Mixtral 2023, DeepSeek-V3 2024 (equations 17 to 20).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/experts.h"

namespace meshwright::client {

enum class BalanceForm : uint8_t { kSequence, kGshard, kSwitch, kMixtral };

std::vector<std::string> BalanceFormNames();
// Errors: kInvalidArgument naming the known ones.
Result<BalanceForm> ParseBalanceForm(const std::string& name);

class BalanceLoss {
 public:
  BalanceLoss(Builder& builder, BalanceForm form) : b_(builder), form_(form) {}

  // In the order of layers.
  void Add(const MixtureOfExperts& mixture);

  // The loss x the tokens that count; counted [b]: how many of each row do. Invalid: nothing was
  // added.
  ValueId Sum(ValueId counted) const;

 private:
  // sum_i of counts x probabilities, both [.., experts]: [..].
  ValueId Inner(ValueId counts, ValueId shares) const;
  // `sum` over the rows, as that of all microbatches of a step.
  ValueId OfWholeBatch(ValueId sum) const;
  void AddTo(ValueId& sum, ValueId value) const;

  Builder& b_;
  const BalanceForm form_;
  ValueId value_;   // [b], or [] of the global batch
  ValueId counts_;  // mixtral: [experts], of all layers, divided by N
  ValueId shares_;  // mixtral: [experts], of all layers
  int64_t layers_ = 0;
};

}  // namespace meshwright::client
