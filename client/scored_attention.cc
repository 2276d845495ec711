#include "client/scored_attention.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace meshwright::client {

using ir::Op;
using ir::TensorType;

namespace {

// Which keys a query sees: [s, s], with segments [b, 1, s, s].
ValueId SeenKeys(Builder& builder, int64_t tokens, const AttentionOptions& options) {
  ValueId sees;
  if (options.causal) {
    const ValueId keys = builder.Iota(tokens);
    const ValueId queries = builder.Reshape(keys, {tokens, 1});
    sees = builder.GreaterEqual(queries, keys);
    if (options.window > 0) {
      const ValueId far = builder.Iota(tokens + options.window);
      const ValueId ahead = builder.Slice(far, 0, options.window, tokens);
      sees = builder.And(sees, builder.Less(queries, ahead));
    }
  }
  if (!options.segments.valid()) return sees;
  const Dims rows = builder.dims(options.segments);
  if (rows.size() != 2) return ValueId();
  const ValueId of_queries = builder.Reshape(options.segments, {rows[0], 1, tokens, 1});
  const ValueId of_keys = builder.Reshape(options.segments, {rows[0], 1, 1, tokens});
  const ValueId same = builder.Equal(of_queries, of_keys);
  return sees.valid() ? builder.And(same, sees) : same;
}

}  // namespace

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
  const bool hides = options.segments.valid() || options.causal;
  if ((hides && queries != keys) || (options.window > 0 && !options.causal)) {
    builder.Fail(InvalidArgument(
        fmt::format("attention of {} queries and {} keys knows segments and causal order only "
                    "where both are as many, and a window only with causal order; put the mask "
                    "into the bias",
                    queries, keys)));
    return ValueId();
  }
  const Dims grouped = {of_q[0], queries, of_k[2], of_q[2] / of_k[2], of_q[3]};
  const double scale =
      options.scale > 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(of_q[3]));
  const ValueId products = builder.Einsum("bqgre,bkge->bgrqk", builder.Reshape(q, grouped), k);
  ValueId scores = builder.Reshape(products, {of_q[0], of_q[2], queries, keys});
  const double cap = options.score_cap;
  scores = cap > 0 ? builder.Scale(builder.Tanh(builder.Scale(scores, scale / cap)), cap)
                   : builder.Scale(scores, scale);
  if (options.bias.valid()) scores = builder.AddTo(scores, options.bias);
  if ((hides || options.seen_keys.valid()) && builder.status().ok()) {
    constexpr double kNever = -1e30;
    const ValueId never = builder.AddOne(Op::kConstant, {}, {{"value", kNever}},
                                         {TensorType{builder.type(scores).dtype, {}}});
    ValueId sees = hides ? SeenKeys(builder, queries, options) : ValueId();
    if (options.seen_keys.valid()) {
      const ValueId keys_seen = builder.Reshape(options.seen_keys, {of_k[0], 1, 1, keys});
      sees = hides ? builder.And(sees, keys_seen) : keys_seen;
    }
    scores = builder.Where(sees, scores, never);
  }
  const ValueId p =
      builder.Dropout(builder.Softmax(scores), options.dropout.rate, options.dropout.name);
  const ValueId apart = builder.Reshape(p, {of_q[0], of_k[2], grouped[3], queries, keys});
  return builder.Reshape(builder.Einsum("bgrqk,bkge->bqgre", apart, v),
                         {of_q[0], queries, of_q[2], of_q[3]});
}

}  // namespace meshwright::client
