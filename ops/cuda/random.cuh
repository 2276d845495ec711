// Random numbers of global elements on the device: base/philox.h, ops/global_runs.h. For .cu files
// only.
//
// Thread rule: as kernels.
#pragma once

#include "base/philox.h"
#include "ops/cuda/language.cuh"

namespace meshwright::ops::cuda {

// The bits of elements that come one after the other: four share a block.
class PhiloxWords {
 public:
  __device__ PhiloxWords(uint64_t key, uint64_t step) : key_(key), step_(step) {}

  __device__ uint32_t At(uint64_t index) {
    if (!made_ || index >> 2 != block_) {
      block_ = index >> 2;
      words_ = Philox(key_, block_, step_);
      made_ = true;
    }
    const unsigned word = static_cast<unsigned>(index & 3);
    const uint32_t low = word == 0 ? words_[0] : words_[1];
    const uint32_t high = word == 2 ? words_[2] : words_[3];
    return word < 2 ? low : high;
  }

 private:
  uint64_t key_;
  uint64_t step_;
  uint64_t block_ = 0;
  PhiloxBlock words_{};
  bool made_ = false;
};

// Global index of the first element of run `run`; `valid` elements of it exist globally.
__device__ inline int64_t GlobalStart(const RunsArgs& args, int64_t run, int64_t* valid) {
  int64_t start = args.first;
  *valid = args.valid;
  for (int d = args.outer_rank - 1; d >= 0; --d) {
    const int64_t outer = run / args.local_dims[d];
    const int64_t global = args.starts[d] + run - outer * args.local_dims[d];
    if (global >= args.global_dims[d]) *valid = 0;
    start += global * args.strides[d];
    run = outer;
  }
  return start;
}

// Calls body(local index, index in the run, global index of the run, valid elements of the run) for
// every unit of N elements; N divides the length of runs. One run needs no division per unit.
template <int N, typename Body>
__device__ void ForEachGlobalUnit(const RunsArgs& args, const Body& body) {
  const int64_t units = args.run_length / N;
  int64_t valid = 0;
  int64_t start = GlobalStart(args, 0, &valid);
  for (int64_t i = GlobalThread(); i < args.runs * units; i += GridThreads()) {
    int64_t run = 0;
    if (args.runs > 1) {
      run = i / units;
      start = GlobalStart(args, run, &valid);
    }
    body(i * N, (i - run * units) * N, start, valid);
  }
}

}  // namespace meshwright::ops::cuda
