#include "tests/emulated/sdpa.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/half.h"
#include "ops/cuda/sdpa_graph.h"
#include "ops/cuda/workspace.h"
#include "tests/emulated/driver.h"

namespace meshwright::emulated {
namespace {

using ops::cuda::GraphNode;
using ops::cuda::GraphOp;
using ops::cuda::GraphTensor;
using ops::cuda::SdpaGraph;
using ops::cuda::SdpaMemory;
using ops::cuda::SdpaName;
using ops::cuda::SdpaShape;

using Place = std::array<int64_t, 4>;

class EmulatedSdpaPlan final : public ops::cuda::SdpaPlan {
 public:
  explicit EmulatedSdpaPlan(const SdpaShape& shape) : shape_(shape) {}
  int64_t workspace_bytes() const override { return ops::cuda::WorkspaceBytes(ScratchBytes()); }
  // What cuDNN needs: for gradients memory of all scores in 16 bits.
  int64_t ScratchBytes() const { return shape_.gradient ? ops::cuda::ScoreBytes(shape_) : 0; }
  const SdpaShape& shape() const { return shape_; }

 private:
  const SdpaShape shape_;
};

// Every tensor of a graph in doubles, dense, rounded to its type where that is narrower.
class Evaluation {
 public:
  Evaluation(const SdpaShape& shape, const SdpaMemory& memory)
      : shape_(shape), memory_(memory), graph_(ops::cuda::MakeSdpaGraph(shape)) {}

  void Run() {
    for (const GraphTensor& tensor : graph_.tensors) {
      std::vector<double>& dense = values_.emplace_back(static_cast<size_t>(Elements(tensor)));
      if (tensor.name >= SdpaName::kScale) {
        dense[0] = static_cast<double>(ops::cuda::ValueOf(tensor.name, shape_));
      } else if (tensor.name != SdpaName::kInner) {
        ForEach(tensor, [&](size_t i, const Place& place) { dense[i] = Read(tensor, place); });
      }
    }
    for (const GraphNode& node : graph_.nodes) Compute(node);
  }

 private:
  static int64_t Elements(const GraphTensor& tensor) {
    return tensor.dims[0] * tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
  }
  template <typename Body>
  static void ForEach(const GraphTensor& tensor, const Body& body) {
    size_t i = 0;
    Place at{};
    for (at[0] = 0; at[0] < tensor.dims[0]; ++at[0]) {
      for (at[1] = 0; at[1] < tensor.dims[1]; ++at[1]) {
        for (at[2] = 0; at[2] < tensor.dims[2]; ++at[2]) {
          for (at[3] = 0; at[3] < tensor.dims[3]; ++at[3]) body(i++, at);
        }
      }
    }
  }

  double Read(const GraphTensor& tensor, const Place& place) const {
    const void* data = ops::cuda::PlaceOf(tensor.name, memory_);
    const int64_t i = Offset(tensor, place);
    if (tensor.type == ir::DType::kF32) {
      return static_cast<double>(static_cast<const float*>(data)[i]);
    }
    const uint16_t bits = static_cast<const uint16_t*>(data)[i];
    return static_cast<double>(tensor.type == ir::DType::kBF16 ? Bf16ToFloat(bits)
                                                               : F16ToFloat(bits));
  }
  void Write(const GraphTensor& tensor, const Place& place, double value) const {
    void* data = ops::cuda::PlaceOf(tensor.name, memory_);
    const int64_t i = Offset(tensor, place);
    const auto rounded = static_cast<float>(value);
    if (tensor.type == ir::DType::kF32) {
      static_cast<float*>(data)[i] = rounded;
    } else {
      static_cast<uint16_t*>(data)[i] =
          tensor.type == ir::DType::kBF16 ? FloatToBf16(rounded) : FloatToF16(rounded);
    }
  }
  static int64_t Offset(const GraphTensor& tensor, const Place& place) {
    int64_t offset = 0;
    for (size_t dim = 0; dim < 4; ++dim) offset += place[dim] * tensor.strides[dim];
    return offset;
  }
  static double Rounded(ir::DType type, double value) {
    const auto narrow = static_cast<float>(value);
    if (type == ir::DType::kBF16) return static_cast<double>(Bf16ToFloat(FloatToBf16(narrow)));
    if (type == ir::DType::kF16) return static_cast<double>(F16ToFloat(FloatToF16(narrow)));
    return value;
  }

  // The element of tensor `index` at a place, repeated along dims of size 1.
  double At(int index, Place place) const {
    const GraphTensor& tensor = graph_.tensors[static_cast<size_t>(index)];
    int64_t i = 0;
    for (size_t dim = 0; dim < 4; ++dim) {
      i = i * tensor.dims[dim] + (tensor.dims[dim] == 1 ? 0 : place[dim]);
    }
    return values_[static_cast<size_t>(index)][static_cast<size_t>(i)];
  }

  void Compute(const GraphNode& node) {
    const GraphTensor& result = graph_.tensors[static_cast<size_t>(node.result)];
    std::vector<double>& dense = values_[static_cast<size_t>(node.result)];
    ForEach(result, [&](size_t i, const Place& place) {
      dense[i] = Rounded(result.type, Element(node, result, place));
      if (result.name != SdpaName::kInner) Write(result, place, dense[i]);
    });
  }

  double Element(const GraphNode& node, const GraphTensor& result, const Place& place) const {
    const auto operand = [&](size_t i) { return At(node.operands[i], place); };
    switch (node.op) {
      case GraphOp::kMatmul:
        return Product(node, result, place);
      case GraphOp::kMultiply:
        return operand(0) * operand(1);
      case GraphOp::kAdd:
        return operand(0) + operand(1);
      case GraphOp::kSubtract:
        return operand(0) - operand(1);
      case GraphOp::kDivide:
        return operand(0) / operand(1);
      case GraphOp::kExp:
        return std::exp(operand(0));
      case GraphOp::kLog:
        return std::log(operand(0));
      case GraphOp::kNotLess:
        return operand(0) >= operand(1) ? 1 : 0;
      case GraphOp::kSelect:
        return operand(2) != 0 ? operand(0) : operand(1);
      case GraphOp::kRowIndex:
        return static_cast<double>(place[2]);
      case GraphOp::kColumnIndex:
        return static_cast<double>(place[3]);
      case GraphOp::kMax:
      case GraphOp::kSum:
        return Reduced(node, result, place);
      case GraphOp::kReshape:
        return At(node.operands[0], {place[0], place[1], place[3], place[2]});
    }
    return 0;
  }

  double Product(const GraphNode& node, const GraphTensor& result, const Place& place) const {
    const GraphTensor& a = graph_.tensors[static_cast<size_t>(node.operands[0])];
    const GraphTensor& b = graph_.tensors[static_cast<size_t>(node.operands[1])];
    const int64_t head = place[1] / (result.dims[1] / b.dims[1]);
    double sum = 0;
    for (int64_t k = 0; k < a.dims[3]; ++k) {
      sum += At(node.operands[0], {place[0], place[1], place[2], k}) *
             At(node.operands[1], {place[0], head, k, place[3]});
    }
    return sum;
  }

  double Reduced(const GraphNode& node, const GraphTensor& result, const Place& place) const {
    const GraphTensor& x = graph_.tensors[static_cast<size_t>(node.operands[0])];
    const int64_t heads = x.dims[1] / result.dims[1];
    const int64_t columns = x.dims[3] / result.dims[3];
    double value = node.op == GraphOp::kMax ? std::numeric_limits<double>::lowest() : 0;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t c = 0; c < columns; ++c) {
        const double next = At(node.operands[0],
                               {place[0], place[1] * heads + h, place[2], place[3] * columns + c});
        value = node.op == GraphOp::kMax ? std::max(value, next) : value + next;
      }
    }
    return value;
  }

  const SdpaShape& shape_;
  const SdpaMemory& memory_;
  const SdpaGraph graph_;
  std::vector<std::vector<double>> values_;
};

}  // namespace

Result<const ops::cuda::SdpaPlan*> EmulatedSdpa::Plan(const SdpaShape& shape) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_.ok()) return Fail(failure_);
  if (!ops::cuda::MayRunSdpa(shape) || (shape.gradient && refuse_gradients_)) {
    return Fail(Unimplemented("CUDNN_STATUS_NOT_SUPPORTED"));
  }
  std::unique_ptr<ops::cuda::SdpaPlan>& plan = plans_[shape];
  if (plan == nullptr) plan = std::make_unique<EmulatedSdpaPlan>(shape);
  return plan.get();
}

Status EmulatedSdpa::Run(const ops::cuda::SdpaPlan& plan, const SdpaMemory& memory,
                         device::cuda::StreamHandle stream) {
  const auto& emulated = static_cast<const EmulatedSdpaPlan&>(plan);
  const SdpaShape& shape = emulated.shape();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++runs_;
  }
  const int64_t scratch_bytes = emulated.ScratchBytes();
  const device::cuda::Code code =
      static_cast<Stream*>(stream)->Push([shape, memory, scratch_bytes] {
        // Nothing of it is expected to be kept from call to call.
        auto* const scratch = static_cast<uint8_t*>(ops::cuda::WorkspaceAt(memory.workspace));
        std::fill_n(scratch, scratch_bytes, uint8_t{0xff});
        Evaluation(shape, memory).Run();
        return true;
      });
  return code == device::cuda::kSuccess ? OkStatus() : Internal("CUDNN_STATUS_EXECUTION_FAILED");
}

void EmulatedSdpa::RefuseGradients(bool refuse) {
  const std::lock_guard<std::mutex> lock(mutex_);
  refuse_gradients_ = refuse;
}

void EmulatedSdpa::FailPlans(Status status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_ = std::move(status);
}

int EmulatedSdpa::runs() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return runs_;
}

int EmulatedSdpa::plans() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(plans_.size());
}

}  // namespace meshwright::emulated
