// StridedCopy: an n-dimensional copy between two strided layouts. Slice, pad, transpose and operand
// packing are all this.
//
// Planned once: dims of size one are dropped, dims that are contiguous in both layouts are merged,
// the dim with unit destination stride is innermost. When the source is contiguous along another
// dim (a transpose), 16 rows are copied together, so that whole cache lines are read and written.
//
// Thread rule: immutable; Run may be called from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/kernel.h"

namespace meshwright::ops {

class StridedCopy {
 public:
  StridedCopy() = default;
  // Strides in elements; element_bytes in {1, 2, 4, 8}. All three lists have one entry per dim.
  StridedCopy(const ir::Dims& sizes, const ir::Dims& source_strides,
              const ir::Dims& destination_strides, int64_t element_bytes);

  // Ranges must not overlap.
  void Run(const RunContext& context, const void* source, void* destination) const;

 private:
  struct Loop {
    int64_t size = 1;
    int64_t source = 0;       // bytes
    int64_t destination = 0;  // bytes
  };
  void CopyRows(const char* source, char* destination, int64_t rows) const;

  std::vector<Loop> outer_;  // major first
  Loop inner_;
  Loop row_{1, 0, 0};  // the last of outer_: neighbouring rows
  int64_t rows_ = 1;   // product of outer_ sizes
  int64_t element_bytes_ = 1;
};

}  // namespace meshwright::ops
