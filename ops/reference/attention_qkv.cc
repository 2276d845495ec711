// attention_qkv as attention of three copied slices.
#include <cstring>
#include <utility>
#include <vector>

#include "ops/attention_shape.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

// Slice `index` of rows of three slices, copied out of or into the packed tensor.
template <typename T>
void CopySlice(T* packed, T* slice, int64_t rows, int64_t width, int64_t index, bool out) {
  for (int64_t r = 0; r < rows; ++r) {
    T* place = packed + (r * 3 + index) * width;
    T* row = slice + r * width;
    std::memcpy(out ? row : place, out ? place : row, static_cast<size_t>(width) * sizeof(T));
  }
}

// The three slices of a packed tensor as tensors of their own.
template <typename T>
class Slices {
 public:
  Slices(ir::TensorType type, int64_t rows, int64_t width)
      : type_(std::move(type)),
        rows_(rows),
        width_(width),
        data_(static_cast<size_t>(3 * rows * width)) {}

  Tensor at(int64_t index) { return {data_.data() + index * rows_ * width_, &type_}; }
  void Load(const Tensor& packed) { Copy(packed, true); }
  void Store(const Tensor& packed) { Copy(packed, false); }

 private:
  void Copy(const Tensor& packed, bool out) {
    for (int64_t i = 0; i < 3; ++i) {
      CopySlice(packed.as<T>(), at(i).template as<T>(), rows_, width_, i, out);
    }
  }

  ir::TensorType type_;
  int64_t rows_;
  int64_t width_;
  std::vector<T> data_;
};

template <typename T>
class QkvKernel final : public Kernel {
 public:
  QkvKernel(std::unique_ptr<Kernel> attention, const ir::TensorType& head_type, int64_t rows,
            int64_t width, bool gradient)
      : attention_(std::move(attention)),
        gradient_(gradient),
        operands_(head_type, rows, width),
        results_(head_type, gradient ? rows : 0, width) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    operands_.Load(inputs[0]);
    std::vector<Tensor> operands = {operands_.at(0), operands_.at(1), operands_.at(2)};
    operands.insert(operands.end(), inputs.begin() + 1, inputs.end());
    if (!gradient_) return attention_->Run(context, operands, outputs);
    const std::vector<Tensor> results = {results_.at(0), results_.at(1), results_.at(2)};
    MW_TRY(attention_->Run(context, operands, results));
    results_.Store(outputs[0]);
    return {};
  }

 private:
  const std::unique_ptr<Kernel> attention_;
  const bool gradient_;
  Slices<T> operands_;
  Slices<T> results_;
};

}  // namespace

KernelResult MakeAttentionQkv(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionQkvShapeOf(spec));
  const bool gradient = spec.op == ir::Op::kAttentionQkvGrad;
  const ir::TensorType head{spec.inputs[0].dtype, {shape.b, shape.s, shape.h, shape.e}};
  KernelSpec parts = spec;
  parts.op = gradient ? ir::Op::kAttentionGrad : ir::Op::kAttention;
  parts.inputs = {head, head, head};
  parts.inputs.insert(parts.inputs.end(), spec.inputs.begin() + 1, spec.inputs.end());
  if (gradient) parts.outputs = {head, head, head};
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> attention, MakeAttention(parts));
  return ForFloatType(spec, head.dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    return std::unique_ptr<Kernel>(std::make_unique<QkvKernel<T>>(
        std::move(attention), head, shape.b * shape.s, shape.q_stride(), gradient));
  });
}

}  // namespace meshwright::ops::reference
