// What every backend's feed kernel does on the host: reads the rows of a device's block.
//
// Thread rule: immutable.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "ops/kernel.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops {

class FeedRows {
 public:
  // Errors: as KernelSpec::BlockOf; kInvalidArgument for a block that splits more than its rows.
  static Result<FeedRows> Of(const KernelSpec& spec);

  // The rows of context.step and context.microbatch to `out`, which has bytes() bytes; rows beyond
  // the global batch are 0. Errors: the source's; kFailedPrecondition without one.
  Status Read(const RunContext& context, std::byte* out) const;

  int64_t bytes() const { return row_bytes_ * local_rows_; }

 private:
  FeedRows() = default;

  std::string source_;
  bool batch_ = true;
  ShardBlock block_;
  int64_t row_bytes_ = 0;
  int64_t local_rows_ = 1;
};

}  // namespace meshwright::ops
