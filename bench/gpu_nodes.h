// The kernels of a step on a GPU, each alone and with its data out of the caches, and what the GPU
// could do at best: copies and square matrix products.
//
// A call's seconds are those of many calls behind each other, so that starting them costs what it
// costs in a recorded step. Calls take turns on as many copies of their operands as are larger than
// the L2 cache together.
//
// Thread rule: the device's own thread. Ownership: the target outlives each call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/program.h"
#include "ir/schema.h"
#include "ops/kernel.h"

namespace meshwright::bench {

struct GpuTiming {
  int64_t l2_bytes = 64 << 20;
  double batch_seconds = 0.02;  // of the calls that are timed together
  int batches = 5;              // the median counts
};

struct GpuNode {
  std::string kind;    // bench/profile.h; "37 x adamw f32[768]" for updates that are one kernel
  int64_t calls = 0;   // in a step
  double seconds = 0;  // of a call
  ir::OpCost cost;     // of a call
};

// By kind, the most expensive of a step first; sources of tokens are left out.
// Errors: kUnimplemented for programs with collectives; of the device and the kernels.
Result<std::vector<GpuNode>> TimeGpuNodes(const ops::Target& target, const ir::Program& step,
                                          const GpuTiming& timing);

// The cross-entropy of a block of the head, which is inside of one node with the head's products.
struct HeadRowsCase {
  int64_t rows = 4096;
  int64_t vocabulary = 0;
  ir::DType gradient = ir::DType::kBF16;
};
Result<GpuNode> TimeHeadRows(const ops::Target& target, const HeadRowsCase& of,
                             const GpuTiming& timing);

// Bytes per second of a copy, read and write counted.
Result<double> GpuCopyRate(const ops::Target& target, int64_t bytes, const GpuTiming& timing);

// FLOPs per second of an n x n x n product.
Result<double> GpuMatmulRate(const ops::Target& target, ir::DType dtype, int64_t n,
                             const GpuTiming& timing);

}  // namespace meshwright::bench
