// Arguments of our own kernels: plain data, so that the plugin and the host code share them without
// CUDA's headers.
//
// Data are addresses of the device, at multiples of 16 bytes unless said otherwise. A float tensor
// has its FloatType beside it, or has always f32 (float*). Shapes are what is left of the op's when
// dims that are treated alike are merged.
//
// Thread rule: plain values.
#pragma once

#include <cstdint>

#include "ops/device_state.h"

namespace meshwright::ops::cuda {

// As in device/cuda/driver.h.
using Code = int32_t;
using StreamHandle = void*;

enum class FloatType : uint8_t { kF32, kBF16, kF16 };
constexpr int64_t FloatBytes(FloatType type) { return type == FloatType::kF32 ? 4 : 2; }

inline constexpr int kMaxDims = 8;

// Blocks of a grid in its first dim and in the others, and the code of a launch that needs more:
// cudaErrorInvalidConfiguration.
inline constexpr int64_t kMostBlocks = INT32_MAX;
inline constexpr int64_t kMostGridRows = 65535;
inline constexpr Code kTooManyBlocks = 9;

// ---- Norms --------------------------------------------------------------------------------------

// layer_norm; rms_norm where mean and b are null.
struct NormArgs {
  const void* x = nullptr;  // [rows, width]
  const void* w = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
  float* mean = nullptr;  // [rows]
  float* rstd = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  float eps = 0;
  FloatType type = FloatType::kF32;    // of x, w, b
  FloatType result = FloatType::kF32;  // of y
};

// The parts in which the weights' gradients are summed before they are summed up: as many blocks as
// fill a GPU, with a thread for 16 elements of a row.
inline int64_t NormGradParts(int64_t rows, int64_t width) {
  constexpr int64_t kMultiprocessors = 132;
  constexpr int64_t kThreads = kMultiprocessors * 1024;
  const int64_t most = kThreads / (width / 16 + 1);
  const int64_t parts = most < 8 * kMultiprocessors ? most : 8 * kMultiprocessors;
  const int64_t wanted = parts > kMultiprocessors ? parts : kMultiprocessors;
  return wanted < rows ? wanted : rows;
}
struct NormGradArgs {
  const void* x = nullptr;
  const void* w = nullptr;
  const float* mean = nullptr;  // null: rms_norm_grad
  const float* rstd = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
  void* dw = nullptr;
  void* db = nullptr;        // null: rms_norm_grad
  float* scratch = nullptr;  // 2 * NormGradParts * width
  int64_t rows = 0;
  int64_t width = 0;
  FloatType type = FloatType::kF32;  // of all but the statistics
};

// ---- Structure ----------------------------------------------------------------------------------

// to[r][place + j] = from[r][j + shift] for j < to_bytes, 0 where there is no such byte: slices and
// paddings of one dim, and parts that lie one behind the other along it.
struct CopyRowsArgs {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t rows = 0;
  int64_t from_bytes = 0;  // of a row
  int64_t to_bytes = 0;
  int64_t shift_bytes = 0;
  int64_t to_row_bytes = 0;  // from one row of `to` to the next; 0: to_bytes
  int64_t place_bytes = 0;
};

// Also copies that repeat along dims without a stride; then the last dim has stride 1.
struct TransposeArgs {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t element_bytes = 0;       // 1, 2, 4, 8
  int32_t rank = 0;                // at least 1
  int64_t dims[kMaxDims] = {};     // of the result
  int64_t strides[kMaxDims] = {};  // in `from`, elements; one of them is 1
};

// ---- Sources ------------------------------------------------------------------------------------

// The local block of a sharded tensor as runs that are contiguous in the global one; see
// ops/global_runs.h, of which it is the device's form for one microbatch.
struct RunsArgs {
  int64_t runs = 1;
  int64_t run_length = 0;
  int64_t first = 0;       // global index of run 0's first element but for the outer dims
  int64_t valid = 0;       // elements of a run that exist globally
  int32_t outer_rank = 0;  // dims before the one that is split
  int64_t local_dims[kMaxDims] = {};
  int64_t global_dims[kMaxDims] = {};
  int64_t starts[kMaxDims] = {};
  int64_t strides[kMaxDims] = {};  // global
};

struct FillArgs {
  void* to = nullptr;
  int64_t count = 0;
  double value = 0;
  FloatType type = FloatType::kF32;
};

struct RandomNormalArgs {
  void* to = nullptr;
  RunsArgs runs;
  uint64_t stream = 0;
  double mean = 0;
  double deviation = 1;
  const StepState* state = nullptr;
  FloatType type = FloatType::kF32;
};

struct NoiseArgs {
  void* to = nullptr;
  RunsArgs runs;
  uint64_t stream = 0;
  bool normal = false;  // else uniform
  const StepState* state = nullptr;
  FloatType type = FloatType::kF32;
};

struct LearningRateArgs {
  enum class Schedule : uint8_t {
    kConstant,
    kLinear,
    kCosine,
    kPolynomial,
    kRestarts,
    kInverseSqrt,
    kRelative,
    kRelativeWarmup
  };
  void* to = nullptr;
  Schedule schedule = Schedule::kConstant;
  double lr = 0;
  double min_lr = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double number = 1;  // the power of kPolynomial, the cosines of kRestarts
  int64_t shift = 0;  // of kInverseSqrt where there is no warm-up
  const StepState* state = nullptr;
  FloatType type = FloatType::kF32;
};

struct DropoutArgs {
  const void* x = nullptr;
  void* y = nullptr;
  RunsArgs runs;
  uint64_t stream = 0;
  uint32_t threshold = 0;
  float keep_scale = 1;
  const StepState* state = nullptr;
  FloatType type = FloatType::kF32;
};

// ---- Reductions ---------------------------------------------------------------------------------

// The last dim of x is reduced, or kept; kept dims are in the result's order. Without x the parts
// are in scratch already, and only outputs, splits, y and result count.
struct ReduceSumArgs {
  const void* x = nullptr;
  void* y = nullptr;
  float* scratch = nullptr;  // splits * outputs; null with one split
  int64_t outputs = 1;       // product of the kept dims
  int64_t reduced = 1;       // product of the reduced dims
  int64_t splits = 1;        // parts of `reduced` that are summed beside each other
  int32_t kept_rank = 0;
  int32_t reduced_rank = 0;
  int64_t kept_dims[kMaxDims] = {};
  int64_t kept_strides[kMaxDims] = {};
  int64_t reduced_dims[kMaxDims] = {};
  int64_t reduced_strides[kMaxDims] = {};
  bool last_is_kept = false;
  FloatType type = FloatType::kF32;
  FloatType result = FloatType::kF32;
};

inline constexpr int64_t kSumSquaresParts = 1056;
struct SumSquaresArgs {
  const void* x = nullptr;
  void* y = nullptr;
  float* scratch = nullptr;  // kSumSquaresParts
  int64_t count = 0;
  FloatType type = FloatType::kF32;
  FloatType result = FloatType::kF32;
};

// The largest: of a ReduceSumArgs only what describes x, y and the dims; there are no splits.
struct ReduceMaxArgs {
  ReduceSumArgs dims;
};

// Scalars.
struct ClipMultiplierArgs {
  const void* sum_squares = nullptr;
  const void* count = nullptr;
  void* multiplier = nullptr;
  void* norm = nullptr;
  double max_norm = 0;
  FloatType type = FloatType::kF32;
};

// ---- Embedding, position ------------------------------------------------------------------------

// Who reports a bad id.
struct FaultArgs {
  Fault* fault = nullptr;
  int32_t op = 0;  // 1 + ir::Op
  int64_t table_rows = 0;
};

struct EmbeddingArgs {
  const void* table = nullptr;  // [rows, width]
  const int32_t* ids = nullptr;
  void* to = nullptr;  // [count, width]
  int64_t count = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  FaultArgs fault;
};

// Positions in the order of their ids are cut into parts of so many, whatever the ids are: each
// part is added up beside the others.
inline constexpr int64_t kEmbeddingPart = 64;
constexpr int64_t EmbeddingParts(int64_t count) {
  return (count + kEmbeddingPart - 1) / kEmbeddingPart;
}
struct EmbeddingGradArgs {
  const int32_t* ids = nullptr;
  const void* dy = nullptr;           // [count, width]
  const void* accumulator = nullptr;  // [rows, width] or null; may be `to`
  void* to = nullptr;                 // [rows, width]
  float* sums = nullptr;              // [EmbeddingParts(count), 2, width]
  int32_t* scratch = nullptr;         // 2 * rows + 1 + 2 * count
  int64_t count = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t width = 0;
  FaultArgs fault;
  FloatType type = FloatType::kF32;
};

inline constexpr int kMaxRotaryPairs = 128;
// Which tokens of a sequence lie at the places of a block (ir/sequence_order.h).
struct TokenPlaces {
  int64_t start = 0;  // of the block in the sequence
  int64_t chunk = 0;  // tokens of a chunk in zigzag order; 0: places are positions
  int64_t parts = 1;
};

struct RotaryArgs {
  const void* x = nullptr;  // [batch, sequence, heads, head_size]
  void* y = nullptr;
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t head_size = 0;
  TokenPlaces places;
  double frequencies[kMaxRotaryPairs] = {};  // of pairs: radians from one position to the next
  float sign = 1;                            // -1: inverse
  FloatType type = FloatType::kF32;
};

struct SegmentsArgs {
  const int32_t* ids = nullptr;  // [rows, width]
  int32_t* to = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int32_t separator = 0;
};

}  // namespace meshwright::ops::cuda
