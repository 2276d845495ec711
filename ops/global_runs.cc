#include "ops/global_runs.h"

namespace meshwright::ops {

GlobalRuns::GlobalRuns(const ShardBlock& block) : block_(block) {
  const int rank = static_cast<int>(block.local_dims.size());
  for (int i = 0; i < rank; ++i) {
    const size_t d = static_cast<size_t>(i);
    const bool moves = block.offsets.base[d] != 0 || block.offsets.micro_stride[d] != 0;
    if (block.local_dims[d] != block.global_dims[d] || moves) split_dim_ = i;
  }
  const size_t split = static_cast<size_t>(split_dim_ + 1);
  tail_ = Product(block.local_dims, split, block.local_dims.size());
  run_length_ = tail_;
  if (split_dim_ >= 0) {
    run_length_ *= block.local_dims[split - 1];
    runs_ = Product(block.local_dims, 0, split - 1);
  }
}

GlobalRuns::Run GlobalRuns::At(int64_t run, int32_t microbatch) const {
  if (split_dim_ < 0) return {0, run_length_};
  Run result;
  int64_t stride = tail_;
  const size_t split = static_cast<size_t>(split_dim_);
  result.global_start = block_.Start(split_dim_, microbatch) * stride;
  result.valid = block_.Valid(split_dim_, microbatch) * tail_;
  stride *= block_.global_dims[split];
  int64_t rest = run;
  for (size_t i = split; i-- > 0;) {
    const int64_t local = rest % block_.local_dims[i];
    rest /= block_.local_dims[i];
    const int64_t global = block_.Start(static_cast<int>(i), microbatch) + local;
    if (global >= block_.global_dims[i]) result.valid = 0;
    result.global_start += global * stride;
    stride *= block_.global_dims[i];
  }
  return result;
}

}  // namespace meshwright::ops
