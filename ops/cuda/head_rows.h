// HeadRows: the loss of rows of logits and its gradient, for head_loss.
//
// Logits are f32 [rows, columns], rows `pitch` apart. A row's loss is log(sum(exp(row))) - the
// label's logit; 0 where the label is `ignored`. A label outside of the row is noted as a fault and
// counts as ignored. Sums are over all rows in one order, so that they are the same every time.
//
// Each call puts its work into `stream` and returns the runtime's code. Thread rule: thread-safe;
// the device of the stream is in use by the calling thread.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cuda/driver.h"
#include "ir/dtype.h"
#include "ops/kernel.h"

namespace meshwright::ops::cuda {

// Elements from row to row of logits: rows start at multiples of 64 bytes.
inline constexpr int64_t kHeadGrain = 16;
constexpr int64_t HeadPitch(int64_t vocabulary) {
  return (vocabulary + kHeadGrain - 1) / kHeadGrain * kHeadGrain;
}

struct HeadBlockRows {
  // f32, at a multiple of 16 bytes as every row is; becomes the gradient.
  void* logits = nullptr;
  const int32_t* labels = nullptr;  // [rows]
  float* losses = nullptr;          // [rows], written
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t pitch = 0;  // elements from row to row, a multiple of 4
  int64_t ignored = 0;
  // Null: no gradient. Else the factor of softmax - onehot(label), which replaces the logits in
  // `gradient` type: 16-bit ones at the start of the memory of their own row.
  const float* dloss = nullptr;
  ir::DType gradient = ir::DType::kF32;
  // Where faults go, and what they say beside the id.
  Fault* fault = nullptr;
  int32_t op = 0;
  int64_t first_position = 0;  // of row 0
};

// The kernels of head_rows.cu: in the plugin on a GPU, in tests on the host.
class HeadRows {
 public:
  virtual ~HeadRows() = default;

  virtual device::cuda::Code RunBlock(const HeadBlockRows& block,
                                      device::cuda::StreamHandle stream) = 0;
  // loss = the sum of losses[rows]; count = the number of labels that are not `ignored`.
  virtual device::cuda::Code AddUp(const float* losses, const int32_t* labels, int64_t rows,
                                   int64_t ignored, float* loss, float* count,
                                   device::cuda::StreamHandle stream) = 0;
};

std::unique_ptr<HeadRows> MakeHeadRows();

}  // namespace meshwright::ops::cuda
