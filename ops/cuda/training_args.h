// Arguments of the kernels of losses, optimizers and attention; as kernel_args.h.
//
// Thread rule: plain values.
#pragma once

#include "ops/cuda/kernel_args.h"

namespace meshwright::ops::cuda {

// ---- Losses -------------------------------------------------------------------------------------

// lse of rows and, with labels, the logit at the label: 0 where it is ignored.
struct LogSumExpArgs {
  const void* x = nullptr;  // [rows, width]
  const int32_t* labels = nullptr;
  float* lse = nullptr;     // [rows]
  float* picked = nullptr;  // [rows], with labels
  int64_t rows = 0;
  int64_t width = 0;
  int32_t ignore = 0;
  FaultArgs fault;
  FloatType type = FloatType::kF32;
};

struct CrossEntropyGradArgs {
  const void* logits = nullptr;  // [rows, width]
  const int32_t* labels = nullptr;
  const float* lse = nullptr;
  const float* dloss = nullptr;
  void* to = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t first_column = 0;
  int64_t valid_columns = 0;  // the rest is padding
  int32_t ignore = 0;
  FloatType type = FloatType::kF32;
};

struct PickArgs {
  const void* logits = nullptr;
  const int32_t* labels = nullptr;
  float* to = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t first_column = 0;
  int32_t ignore = 0;
  FaultArgs fault;
  FloatType type = FloatType::kF32;
};

struct NllArgs {
  const void* lse = nullptr;
  const void* picked = nullptr;
  const int32_t* labels = nullptr;
  void* loss = nullptr;
  void* count = nullptr;
  int64_t rows = 0;
  int32_t ignore = 0;
  FloatType type = FloatType::kF32;    // of lse and picked
  FloatType result = FloatType::kF32;  // of loss and count
};

// ---- Optimizers ---------------------------------------------------------------------------------

// What fits into a kernel's 4 KiB of arguments.
inline constexpr int kMaxUpdates = 40;
struct UpdateTensor {
  const void* p = nullptr;
  const void* g = nullptr;
  const void* m = nullptr;
  const void* v = nullptr;  // AdamW's
  void* p_to = nullptr;
  void* m_to = nullptr;
  void* v_to = nullptr;
  int64_t count = 0;
};
struct UpdateArgs {
  UpdateTensor tensors[kMaxUpdates];
  int32_t first_block[kMaxUpdates] = {};  // set by the launch
  int32_t tensor_count = 0;
  const float* multiplier = nullptr;
  const float* lr = nullptr;
  const StepState* state = nullptr;
  FloatType type = FloatType::kF32;      // of p
  FloatType gradient = FloatType::kF32;  // of g: as p, or of 16 bits beside f32
  FloatType moments = FloatType::kF32;   // of m and v: f32 or bf16
  bool skips = false;                    // with a multiplier of 0 all stays as it is
};
// The scalars of one step, as in ops/optimizer_math.h.
struct AdamWScalars {
  float multiplier = 1;
  float keep = 1;
  float step_size = 0;
  float root_scale = 1;
};
struct AdamWArgs {
  UpdateArgs update;
  AdamWScalars* scratch = nullptr;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
};
struct SgdArgs {
  UpdateArgs update;
  double momentum = 0;
  double weight_decay = 0;
  double sign_beta = -1;  // below 0: plain, else Lion
};

// A param seen as matrices of rows x columns (ir/factored.h).
struct AdafactorArgs {
  const void* p = nullptr;
  const void* g = nullptr;
  const float* rows = nullptr;     // [matrices, rows]
  const float* columns = nullptr;  // [matrices, columns]
  void* p_to = nullptr;
  float* rows_to = nullptr;
  float* columns_to = nullptr;
  float* scratch = nullptr;  // [matrices * (2 * rows + 1) + 2]
  const float* multiplier = nullptr;
  const float* lr = nullptr;
  const StepState* state = nullptr;
  int64_t matrices = 1;
  int64_t row_count = 1;
  int64_t column_count = 1;
  double decay_rate = 0;
  double clip_threshold = 1;
  double weight_decay = 0;
  bool scales = true;
  bool skips = false;  // with a multiplier of 0 all stays as it is
  FloatType type = FloatType::kF32;
};

// ---- Attention ----------------------------------------------------------------------------------

// [batch, token, head, head_size] with any strides but the last; elements.
struct HeadsArgs {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
};

// Mask of probability (b, h, i, j): that of index ((first + b * heads + h) * sequence + i) *
// sequence + j, counted globally.
struct ProbabilityMaskArgs {
  uint64_t stream = 0;
  uint32_t threshold = 0;  // 0: no dropout
  float keep_scale = 1;
  int64_t first = 0;
  int64_t heads = 0;
  int64_t sequence = 0;
  const StepState* state = nullptr;
};

inline constexpr int64_t kMaxHeadSize = 256;
struct AttentionArgs {
  HeadsArgs q, k, v, o;
  float* lse = nullptr;               // [batch, heads, sequence]
  const int32_t* segments = nullptr;  // [batch, tokens]
  ProbabilityMaskArgs mask;
  int64_t batch = 0;
  int64_t sequence = 0;  // queries
  int64_t keys = 0;
  int64_t tokens = 0;  // of the whole sequence
  TokenPlaces query_places;
  TokenPlaces key_places;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;  // at most kMaxHeadSize
  float scale = 1;
  bool causal = true;
  int64_t window = 0;  // 0: a query sees all keys before it
  FloatType type = FloatType::kF32;
};
struct AttentionGradArgs {
  AttentionArgs forward;  // lse is read
  HeadsArgs d_o, dq, dk, dv;
  float* scratch = nullptr;  // [batch, heads, sequence]
};

}  // namespace meshwright::ops::cuda
