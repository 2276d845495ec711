#include "client/paged_layers.h"

#include <fmt/format.h>

#include "base/check.h"

namespace meshwright::client {

using ir::Op;
using ir::TensorType;

int64_t PositionCount(const Builder& builder, ValueId tokens) {
  if (builder.pages()) return builder.pages()->shape.positions;
  const Dims of_tokens = builder.dims(tokens);
  return of_tokens.size() == 2 ? of_tokens[1] : 0;
}

ValueId DocumentsOf(Builder& builder, ValueId tokens, int64_t separator) {
  if (builder.documents()) return builder.documents()->segments;
  return separator < 0 ? ValueId() : builder.Segments(tokens, separator);
}

ValueId AtPositions(Builder& builder, ValueId table, ValueId tokens) {
  if (builder.pages()) return builder.Lookup(table, builder.pages()->position);
  if (builder.documents()) return builder.Lookup(table, builder.documents()->positions);
  const Dims rows = builder.dims(table);
  const int64_t count = PositionCount(builder, tokens);
  return !rows.empty() && count < rows[0] ? builder.Slice(table, 0, 0, count) : table;
}

ValueId Wanted(Builder& builder, ValueId x) {
  if (!builder.pages()) return x;
  const Dims of_x = builder.dims(x);
  const Dims of_wanted = builder.dims(builder.pages()->wanted);
  if (of_x.size() != 3 || of_wanted.size() != 2) return ValueId();  // after an error
  const Dims wide = {of_wanted[0], of_wanted[1], of_x[2]};
  const ValueId places =
      builder.AddOne(Op::kBroadcast, {builder.pages()->wanted}, {{"dims", std::vector<int64_t>{2}}},
                     {{ir::DType::kI32, wide}});
  return builder.Gather(x, places, 1);
}

ValueId KeptPages(Builder& builder, int64_t pages, int64_t kv_heads, int64_t head_size) {
  MW_CHECK(builder.pages().has_value()) << "nothing is kept without pages";
  const PageShape& shape = builder.pages()->shape;
  return builder.AddOne(
      Op::kParam, {},
      {{"name", fmt::format("pages/{}", builder.graph().NodesOf(Op::kPagedAttention).size())},
       {"init", "zeros"},
       {"decay", int64_t{0}},
       {"kept", int64_t{1}}},
      {TensorType{shape.dtype, {shape.groups, pages, 2, kv_heads, shape.page_tokens, head_size}}});
}

std::vector<ValueId> PagedAttention(Builder& builder, ValueId q, ValueId k, ValueId v,
                                    const AttentionOptions& options, ValueId of_distance) {
  const Dims of_k = builder.dims(k);
  if (!options.causal || of_k.size() != 4) {
    builder.Fail(Unimplemented("only causal attention keeps its keys in pages"));
    return {};
  }
  const PagedRows& rows = *builder.pages();
  const ValueId pages = KeptPages(builder, rows.shape.pages, of_k[2], of_k[3]);
  ir::Attrs attrs;
  if (options.window > 0) attrs.Set("window", options.window);
  if (options.score_cap > 0) attrs.Set("score_cap", options.score_cap);
  std::vector<ValueId> operands = {q, k, v, pages, rows.table, rows.row, rows.position};
  if (of_distance.valid()) operands.push_back(of_distance);
  return builder.Add(Op::kPagedAttention, std::move(operands), attrs);
}

ValueId PagedAttentionQkv(Builder& builder, ValueId qkv) {
  const Dims of_qkv = builder.dims(qkv);
  if (of_qkv.size() != 5) return ValueId();  // after an error
  const Dims heads = {of_qkv[0], of_qkv[1], of_qkv[3], of_qkv[4]};
  const auto part = [&](int64_t i) { return builder.Reshape(builder.Slice(qkv, 2, i, 1), heads); };
  const ValueId q = part(0);
  const ValueId k = part(1);
  const std::vector<ValueId> results = PagedAttention(builder, q, k, part(2), AttentionOptions());
  return results.empty() ? ValueId() : results[0];
}

}  // namespace meshwright::client
