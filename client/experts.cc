#include "client/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace meshwright::client {

using ir::Op;

int64_t CapacityOf(const ExpertOptions& options, int64_t tokens) {
  const double fair =
      static_cast<double>(tokens * options.chosen) / static_cast<double>(options.experts);
  const auto wanted = static_cast<int64_t>(std::ceil(options.capacity_factor * fair));
  return std::clamp<int64_t>(wanted, 1, tokens);
}

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
  return OkStatus();
}

MixtureOfExperts RouteToExperts(Builder& builder, ValueId x, const std::string& name,
                                const ExpertOptions& options) {
  MixtureOfExperts mixture{builder, options, {}, {}, {}, {}, {}, {}};
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
  const ValueId gate = builder.Param(name + ".gate.weight", {options.experts, dims[2]});
  const ValueId logits = builder.Einsum("bsd,ed->bse", x, gate);
  const ValueId shares = builder.Softmax(logits);
  const TopValues top = builder.TopK(shares, options.chosen);
  mixture.weights = options.normalised
                        ? builder.Div(top.values, builder.ReduceSum(top.values, {2}, true))
                        : top.values;
  // Each expert has slots of its own where it may be full, and else all share them.
  const bool drops = options.capacity_factor > 0;
  const int64_t groups = drops ? options.experts : 1;
  const int64_t capacity = drops ? CapacityOf(options, tokens) : tokens * options.chosen;
  const std::vector<ValueId> routed = builder.Add(Op::kExpertSlots, {top.ids},
                                                  {{"experts", options.experts},
                                                   {"groups", groups},
                                                   {"capacity", capacity},
                                                   {"by_choice", int64_t{drops ? 1 : 0}},
                                                   {"drop", int64_t{drops ? 1 : 0}}});
  MW_CHECK(routed.size() == 3) << "expert_slots gives " << routed.size() << " results";
  mixture.slot = routed[0];
  mixture.used = routed[1];
  mixture.slots = builder.AddOne(Op::kDispatch, {x, mixture.slot},
                                 {{"groups", groups}, {"capacity", capacity}});
  const double scale =
      static_cast<double>(options.experts) / static_cast<double>(tokens * options.chosen);
  const ValueId got = builder.Scale(builder.Cast(routed[2], builder.dtype()), scale);
  mixture.balance = builder.ReduceSum(builder.MulBy(got, builder.ReduceMean(shares, {1})), {1});
  mixture.z = builder.ReduceMean(builder.Square(builder.LogSumExp(logits)), {1});
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
                        {{"groups", in[1]}, {"rows", rows}});
}

ValueId MixtureOfExperts::Combine(ValueId y) const {
  return builder.AddOne(Op::kCombine, {y, slot, weights});
}

}  // namespace meshwright::client
