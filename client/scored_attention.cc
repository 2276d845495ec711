#include "client/scored_attention.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace meshwright::client {

using ir::Op;
using ir::TensorType;

// Head j of q shares the kv head j / (h / g): q is [b, s, g, r, e].
ValueId ScoredAttention(Builder& builder, ValueId q, ValueId k, ValueId v,
                        const AttentionOptions& options) {
  const Dims of_q = builder.dims(q);
  const Dims of_k = builder.dims(k);
  if (of_q.size() != 4 || of_k.size() != 4 || of_q[2] % of_k[2] != 0) {
    builder.Fail(InvalidArgument(
        fmt::format("attention of [{}] and [{}]: needs [b,s,h,e] and [b,s,g,e], g divides h",
                    fmt::join(of_q, ","), fmt::join(of_k, ","))));
    return ValueId();
  }
  const int64_t queries = of_q[1];
  const int64_t keys = of_k[1];
  if (options.segments.valid() || options.window > 0 || (options.causal && queries != keys)) {
    builder.Fail(
        InvalidArgument(fmt::format("attention with a bias, or of {} queries and {} keys, knows no "
                                    "segments and no window, and is causal only "
                                    "where both are as many; put the mask into the bias",
                                    queries, keys)));
    return ValueId();
  }
  const Dims grouped = {of_q[0], queries, of_k[2], of_q[2] / of_k[2], of_q[3]};
  const double scale = 1.0 / std::sqrt(static_cast<double>(of_q[3]));
  const ValueId products = builder.Einsum("bqgre,bkge->bgrqk", builder.Reshape(q, grouped), k);
  ValueId scores =
      builder.Scale(builder.Reshape(products, {of_q[0], of_q[2], queries, keys}), scale);
  if (options.bias.valid()) scores = builder.AddTo(scores, options.bias);
  if (options.causal && builder.status().ok()) {
    constexpr double kNever = -1e30;
    const ValueId places = builder.Iota(queries);
    const ValueId sees = builder.GreaterEqual(builder.Reshape(places, {queries, 1}), places);
    const ValueId never = builder.AddOne(Op::kConstant, {}, {{"value", kNever}},
                                         {TensorType{builder.type(scores).dtype, {}}});
    scores = builder.Where(sees, scores, never);
  }
  const ValueId p =
      builder.Dropout(builder.Softmax(scores), options.dropout.rate, options.dropout.name);
  const ValueId apart = builder.Reshape(p, {of_q[0], of_k[2], grouped[3], queries, keys});
  return builder.Reshape(builder.Einsum("bgrqk,bkge->bqgre", apart, v),
                         {of_q[0], queries, of_q[2], of_q[3]});
}

}  // namespace meshwright::client
