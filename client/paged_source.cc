#include "client/paged_source.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "client/paged_layers.h"

namespace meshwright::client {
namespace {

using ir::DType;
using ir::Op;

int64_t PagesOf(const PageShape& shape, int64_t positions) {
  return (positions + shape.page_tokens - 1) / shape.page_tokens;
}

// i32[g, count] of one number.
ValueId Numbers(Builder& builder, Dims dims, double value) {
  return builder.Cast(builder.Fill(std::move(dims), value), DType::kI32);
}

}  // namespace

std::vector<InputSpec> SourceInputs(const PageShape& shape, const SourceShape& source,
                                    int64_t tokens) {
  if (source.positions == 0) return {};
  std::vector<InputSpec> inputs = {{kSourceEnd, {DType::kI32, {shape.groups, tokens}}}};
  if (!source.reads) return inputs;
  const ir::TensorType of_source{DType::kI32, {shape.groups, source.positions}};
  inputs.push_back({kSourceTokens, of_source});
  inputs.push_back({kSourceRow, of_source});
  return inputs;
}

Batch WithSourceTable(Builder& builder, Batch in, const SourceShape& source) {
  if (source.positions == 0) return in;
  MW_CHECK(builder.pages().has_value()) << "sources without pages";
  const PageShape& shape = builder.pages()->shape;
  const int64_t of_source = PagesOf(shape, source.positions);
  const ValueId table =
      builder.Reshape(builder.Iota(shape.texts * of_source), {1, shape.texts, of_source});
  in[kSourceTable] = builder.BroadcastTo(table, {shape.groups, shape.texts, of_source});
  return in;
}

bool ReadsSource(const Batch& batch) { return batch.contains(kSourceTokens); }

ValueId SourceSeen(Builder& builder, const Batch& batch) {
  MW_CHECK(ReadsSource(batch)) << "no source is read";
  const ValueId row = batch.at(kSourceRow);
  return builder.GreaterEqual(row, Numbers(builder, {}, 0));
}

ValueId SourceAttention(Builder& builder, ValueId q, const SourceKeys& keys, const Batch& batch) {
  MW_CHECK(builder.pages().has_value() && batch.contains(kSourceTable)) << "sources without pages";
  const PageShape& shape = builder.pages()->shape;
  const ValueId table = batch.at(kSourceTable);
  const Dims of_table = builder.dims(table);
  if (of_table.size() != 3) return ValueId();  // after an error
  const int64_t pages = of_table[1] * of_table[2];
  const ValueId kept = KeptPages(builder, pages, keys.heads, keys.size);
  std::vector<ValueId> operands = {q, keys.k, keys.v};
  ValueId row;
  ValueId position;
  if (keys.k.valid()) {
    const Dims of_row = builder.dims(batch.at(kSourceRow));
    if (of_row.size() != 2) return ValueId();
    row = batch.at(kSourceRow);
    position = builder.BroadcastTo(builder.Iota(of_row[1]), of_row);
  } else {
    // One key that is of no text, so nothing is written.
    const ValueId none = builder.Fill({shape.groups, 1, keys.heads, keys.size}, 0);
    operands = {q, none, none};
    row = Numbers(builder, {shape.groups, 1}, -1);
    position = Numbers(builder, {shape.groups, 1}, 0);
  }
  // The op's own scale is 1 / sqrt(size).
  if (keys.scale > 0) {
    operands[0] = builder.Scale(q, keys.scale * std::sqrt(static_cast<double>(keys.size)));
  }
  const PagedRows& rows = *builder.pages();
  operands.insert(operands.end(), {kept, table, rows.row, batch.at(kSourceEnd), row, position});
  const std::vector<ValueId> results = builder.Add(Op::kPagedAttention, std::move(operands), {});
  return results.empty() ? ValueId() : results[0];
}

}  // namespace meshwright::client
