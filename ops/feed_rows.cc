#include "ops/feed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace meshwright::ops {

Result<FeedRows> FeedRows::Of(const KernelSpec& spec) {
  FeedRows rows;
  const ir::TensorType& type = spec.outputs[0];
  rows.source_ = spec.attrs.Str("source");
  rows.batch_ = spec.attrs.Int("batch", 1) != 0;
  MW_ASSIGN_OR_RETURN(rows.block_, spec.BlockOf(type));
  const ShardBlock& block = rows.block_;
  for (size_t d = rows.batch_ ? 1 : 0; d < block.local_dims.size(); ++d) {
    if (block.local_dims[d] == block.global_dims[d]) continue;
    return Fail(InvalidArgument(
        fmt::format("feed '{}': {} splits dim {} of a value that is read in whole rows",
                    rows.source_, type.ToString(), d)));
  }
  if (rows.batch_) rows.local_rows_ = block.local_dims[0];
  rows.row_bytes_ = rows.local_rows_ == 0 ? 0 : type.bytes() / rows.local_rows_;
  return rows;
}

Status FeedRows::Read(const RunContext& context, std::byte* out) const {
  if (context.feed == nullptr) {
    return FailedPrecondition(
        fmt::format("feed '{}': this run has no data source; attach one to the job", source_));
  }
  const auto row = [&](int64_t i) {
    return std::span<std::byte>(out + i * row_bytes_, static_cast<size_t>(row_bytes_));
  };
  if (!batch_) return context.feed->ReadRow(source_, context.step, row(0));
  const int64_t first = context.step * block_.global_dims[0] + block_.Start(0, context.microbatch);
  const int64_t valid = block_.Valid(0, context.microbatch);
  for (int64_t i = 0; i < valid; ++i) MW_TRY(context.feed->ReadRow(source_, first + i, row(i)));
  std::fill(out + valid * row_bytes_, out + bytes(), std::byte{0});
  return OkStatus();
}

}  // namespace meshwright::ops
