#include "client/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "base/check.h"
#include "client/router.h"

namespace meshwright::client {

using ir::Op;

namespace {

// 1.1 x 10 is 11 and a little; it is no reason for a slot more.
constexpr double kOfRounding = 1e-9;

}  // namespace

int64_t CapacityOf(const ExpertOptions& options, int64_t tokens) {
  const double fair =
      static_cast<double>(tokens * options.chosen) / static_cast<double>(options.experts);
  const double factor = options.capacity_factor > 0 ? options.capacity_factor : 1;
  const auto wanted = static_cast<int64_t>(std::ceil(factor * fair - kOfRounding));
  return std::clamp<int64_t>(wanted, 1, tokens);
}

namespace {

Status ValidateGroups(const ExpertOptions& options, const TopOfSigmoid& router) {
  if (router.groups < 1 || options.experts % router.groups != 0) {
    return InvalidArgument(fmt::format("expert_groups is {}, which does not divide n_experts {}",
                                       router.groups, options.experts));
  }
  if (router.chosen_groups < 1 || router.chosen_groups > router.groups) {
    return InvalidArgument(fmt::format("expert_groups_per_token is {}; it must be in [1, {}]",
                                       router.chosen_groups, router.groups));
  }
  const int64_t of_group = options.experts / router.groups;
  if (router.chosen_groups < router.groups && of_group < 2) {
    return InvalidArgument(fmt::format(
        "expert_groups is {} for {} experts; a group is judged by its best two: at most {} groups",
        router.groups, options.experts, options.experts / 2));
  }
  if (options.chosen > router.chosen_groups * of_group) {
    return InvalidArgument(fmt::format(
        "experts_per_token is {}, but {} groups of {} experts have {}; raise "
        "expert_groups_per_token",
        options.chosen, router.chosen_groups, of_group, router.chosen_groups * of_group));
  }
  if (!(router.scale > 0 && router.scale <= 1e6)) {
    return InvalidArgument(fmt::format("routed_scale is {}; above 0, up to 1e6", router.scale));
  }
  if (!(router.bias_rate >= 0 && router.bias_rate <= 1)) {
    return InvalidArgument(fmt::format("router_bias_rate is {}; in [0, 1]", router.bias_rate));
  }
  return OkStatus();
}

Status ValidateSlots(const ExpertOptions& options) {
  if (options.slots_factor == 0) return OkStatus();
  if (!(options.slots_factor >= 1 && options.slots_factor <= 1e6)) {
    return InvalidArgument(
        fmt::format("expert_slots_factor is {}; 0 (room for all), or a number from 1 to 1e6",
                    options.slots_factor));
  }
  const bool chosen_by_experts = std::holds_alternative<ExpertChoice>(options.router);
  if (options.capacity_factor == 0 && !chosen_by_experts) return OkStatus();
  return InvalidArgument(
      "expert_slots_factor is for experts that drop nothing; remove it, or capacity_factor and "
      "router "
      "\"expert_choice\"");
}

}  // namespace

Status Validate(const ExpertOptions& options) {
  if (options.experts < 1) {
    return InvalidArgument(fmt::format("n_experts is {}; at least 1", options.experts));
  }
  if (options.chosen < 1 || options.chosen > options.experts) {
    return InvalidArgument(fmt::format("experts_per_token is {}; it must be in [1, {}]",
                                       options.chosen, options.experts));
  }
  if (!(options.capacity_factor >= 0 && options.capacity_factor <= 1e6)) {
    return InvalidArgument(
        fmt::format("capacity_factor is {}; 0, or a number up to 1e6", options.capacity_factor));
  }
  MW_TRY(ValidateSlots(options));
  const auto* sigmoid = std::get_if<TopOfSigmoid>(&options.router);
  return sigmoid == nullptr ? OkStatus() : ValidateGroups(options, *sigmoid);
}

namespace {

// Products of experts of so many rows of slots; over pages they are alone, as Builder::Einsum is.
ir::Attrs ProductAttrs(const Builder& builder, int64_t groups, int64_t rows) {
  ir::Attrs attrs = {{"groups", groups}, {"rows", rows}};
  if (builder.pages()) attrs.Set("alone", int64_t{1});
  return attrs;
}

// Zero for every row. Its gradient for the bias of an expert is what the expert got above its
// share, in whole numbers, so that the sign of a sum over rows, replicas and microbatches is exact.
ValueId SteeringOf(Builder& builder, const MixtureOfExperts& mixture, ValueId bias,
                   int64_t tokens) {
  const auto experts = static_cast<double>(mixture.options.experts);
  const auto choices = static_cast<double>(tokens * mixture.options.chosen);
  const ValueId above = builder.Shift(builder.Scale(mixture.choices, experts), -choices);
  const ValueId nothing = builder.Sub(bias, builder.StopGradient(bias));
  return builder.ReduceSum(builder.MulBy(above, nothing), {1});
}

}  // namespace

MixtureOfExperts RouteToExperts(Builder& builder, ValueId x, const std::string& name,
                                const ExpertOptions& options) {
  MixtureOfExperts mixture{builder, options, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  const Dims dims = builder.dims(x);
  if (const Status valid = Validate(options); !valid.ok()) {
    builder.Fail(valid);
    return mixture;
  }
  if (dims.size() != 3) {
    builder.Fail(InvalidArgument(fmt::format("experts '{}': x must be [b, s, d]", name)));
    return mixture;
  }
  const int64_t tokens = dims[1];
  const Routing routing = RouteTokens(builder, x, name, options);
  mixture.ids = routing.ids;
  mixture.weights = routing.weights;
  mixture.shares = routing.shares;
  // Each expert has slots of its own where it may be full, and else all share them.
  const bool chosen_by_experts = routing.scores.valid();
  const bool drops = options.capacity_factor > 0 || chosen_by_experts;
  if (drops && builder.pages()) {
    builder.Fail(Unimplemented(
        "experts whose room the tokens of a batch share cannot write in pages: what a token gets "
        "would depend on the others; only experts without capacity_factor, chosen by tokens, can"));
    return mixture;
  }
  const int64_t groups = drops ? options.experts : 1;
  const int64_t capacity = drops ? CapacityOf(options, tokens) : tokens * options.chosen;
  ir::Attrs attrs = {{"experts", options.experts},
                     {"groups", groups},
                     {"capacity", capacity},
                     {"by_choice", int64_t{drops && !chosen_by_experts ? 1 : 0}},
                     {"drop", int64_t{drops ? 1 : 0}}};
  // A step of a few tokens may send all of them to one rank.
  if (options.slots_factor > 0 && !builder.pages()) {
    attrs.Set("slots_factor", options.slots_factor);
    attrs.Set("name", name);
  }
  std::vector<ValueId> operands = {routing.ids};
  if (chosen_by_experts) operands.push_back(routing.scores);
  const std::vector<ValueId> routed = builder.Add(Op::kExpertSlots, operands, attrs);
  MW_CHECK(routed.size() == 3) << "expert_slots gives " << routed.size() << " results";
  mixture.slot = routed[0];
  mixture.used = routed[1];
  mixture.slots = builder.AddOne(Op::kDispatch, {x, mixture.slot},
                                 {{"groups", groups}, {"capacity", capacity}});
  mixture.choices = builder.Cast(routed[chosen_by_experts ? 1 : 2], builder.dtype());
  mixture.z = builder.ReduceMean(builder.Square(builder.LogSumExp(routing.logits)), {1});
  if (routing.bias.valid()) {
    mixture.steering = SteeringOf(builder, mixture, routing.bias, tokens);
  }
  return mixture;
}

ValueId MixtureOfExperts::Matmul(ValueId x, const std::string& name, int64_t out,
                                 const ParamOptions& param) const {
  const Dims in = builder.dims(x);
  if (in.size() != 4) {
    builder.Fail(InvalidArgument(fmt::format("experts '{}': x must be slots", name)));
    return ValueId();
  }
  const ValueId matrices = builder.Param(name, {options.experts, in[3], out}, param);
  const int64_t rows = builder.dims(slot).empty() ? 0 : builder.dims(slot)[1] * options.chosen;
  return builder.AddOne(Op::kGroupedMatmul, {x, used, matrices},
                        ProductAttrs(builder, in[1], rows));
}

ValueId MixtureOfExperts::AddBias(ValueId y, const std::string& name,
                                  const ParamOptions& param) const {
  const Dims in = builder.dims(y);
  const Dims tokens = builder.dims(slot);
  if (in.size() != 4 || tokens.size() != 3) {
    builder.Fail(InvalidArgument(fmt::format("experts '{}': y must be slots", name)));
    return ValueId();
  }
  // A one for each token, where its experts take it, times the vector.
  const ValueId ones =
      builder.AddOne(Op::kDispatch, {builder.Fill({tokens[0], tokens[1], 1}, 1), slot},
                     {{"groups", in[1]}, {"capacity", in[2]}});
  ParamOptions of_vectors = param;
  of_vectors.init = "zeros";
  of_vectors.decay = 0;
  const ValueId vectors = builder.Param(name, {options.experts, 1, in[3]}, of_vectors);
  return builder.AddTo(y, builder.AddOne(Op::kGroupedMatmul, {ones, used, vectors},
                                         ProductAttrs(builder, in[1], tokens[1] * options.chosen)));
}

ValueId MixtureOfExperts::Combine(ValueId y) const {
  return builder.AddOne(Op::kCombine, {y, slot, weights});
}

}  // namespace meshwright::client
