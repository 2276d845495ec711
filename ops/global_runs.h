// GlobalRuns: the local block of a sharded tensor as runs that are contiguous in the *global*
// tensor.
//
// Random numbers are functions of the global element index; this is how a kernel walks its block
// while knowing it. Thread rule: immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/kernel_spec.h"

namespace meshwright::ops {

class GlobalRuns {
 public:
  explicit GlobalRuns(const ShardBlock& block);

  struct Run {
    int64_t global_start = 0;  // linear index in the global tensor of the run's first element
    int64_t valid = 0;         // elements of the run that exist globally; the rest is padding
  };
  // The local block is runs() * run_length() elements, row-major.
  int64_t runs() const { return runs_; }
  int64_t run_length() const { return run_length_; }
  // The last dim that is not whole: runs are its blocks and all dims behind it. -1: all are whole.
  int split_dim() const { return split_dim_; }
  Run At(int64_t run, int32_t microbatch) const;

 private:
  ShardBlock block_;
  int64_t runs_ = 1;
  int64_t run_length_ = 1;
  int split_dim_ = -1;
  int64_t tail_ = 1;  // elements per index of split_dim_
};

}  // namespace meshwright::ops
