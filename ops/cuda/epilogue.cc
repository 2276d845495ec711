#include "ops/cuda/epilogue.h"

#include <algorithm>
#include <vector>

#include "ir/fused.h"

namespace meshwright::ops::cuda {
namespace {

// Libraries want rows of the aux at multiples of so many elements.
constexpr int64_t kAuxElements = 8;

// Walks along the steps behind the product: each reads what the one before it made.
class EpilogueFinder {
 public:
  EpilogueFinder(const ir::Graph& body, int producer, int64_t columns)
      : body_(body), columns_(columns) {
    const ir::Node& product = body.nodes[static_cast<size_t>(producer)];
    value_ = product.outputs[0];
    dtype_ = body.type(value_).dtype;
    one_type_ = body.type(product.inputs[0]).dtype == dtype_;
    for (size_t n = static_cast<size_t>(producer) + 1; n < body.nodes.size(); ++n) {
      if (body.nodes[n].op != ir::Op::kInput) steps_.push_back(&body.nodes[n]);
    }
  }

  std::optional<EpilogueForm> Run() {
    if (!one_type_) return std::nullopt;
    TakeBias();
    const bool found = TakeGelu() || TakeGeluGrad() || form_.epilogue != BlasEpilogue::kNone;
    if (!found || next_ != steps_.size() || !NameResults()) return std::nullopt;
    return form_;
  }

 private:
  const ir::Node* Next(ir::Op op) const {
    return next_ < steps_.size() && steps_[next_]->op == op ? steps_[next_] : nullptr;
  }
  // The operand of the node, when the value is one, has this many elements and the one type.
  int OperandOf(ValueId id, int64_t elements) const {
    const ir::TensorType& type = body_.type(id);
    const bool fits = body_.producer(id).op == ir::Op::kInput && type.elements() == elements &&
                      type.dtype == dtype_;
    return fits ? id.value() : -1;
  }

  void TakeBias() {
    const ir::Node* add = Next(ir::Op::kAdd);
    if (add == nullptr || add->inputs[0] != value_) return;
    form_.bias = OperandOf(add->inputs[1], columns_);
    if (form_.bias < 0) return;
    form_.epilogue = BlasEpilogue::kBias;
    value_ = add->outputs[0];
    ++next_;
  }

  bool TakeGelu() {
    const ir::Node* gelu = Next(ir::Op::kGelu);
    if (gelu == nullptr || gelu->inputs[0] != value_) return false;
    form_.epilogue = form_.bias < 0 ? BlasEpilogue::kGelu : BlasEpilogue::kBiasGelu;
    kept_ = value_;
    value_ = gelu->outputs[0];
    ++next_;
    return true;
  }

  bool TakeGeluGrad() {
    const ir::Node* grad = Next(ir::Op::kGeluGrad);
    if (form_.bias >= 0 || grad == nullptr || grad->inputs[1] != value_) return false;
    form_.aux_operand = OperandOf(grad->inputs[0], body_.type(value_).elements());
    if (form_.aux_operand < 0 || columns_ % kAuxElements != 0) return false;
    form_.epilogue = BlasEpilogue::kGeluGrad;
    value_ = grad->outputs[0];
    ++next_;
    const ir::Node* sum = Next(ir::Op::kReduceSum);
    if (sum == nullptr || sum->inputs[0] != value_ || !ir::IsColumnSum(*sum)) return true;
    const ir::TensorType& type = body_.type(sum->outputs[0]);
    if (type.elements() != columns_ || type.dtype != dtype_) return true;
    form_.epilogue = BlasEpilogue::kGeluGradSum;
    sum_ = sum->outputs[0];
    ++next_;
    return true;
  }

  // Every result is one that the product writes.
  bool NameResults() {
    form_.result = -1;
    for (size_t r = 0; r < body_.outputs.size(); ++r) {
      const ValueId id = body_.outputs[r].value;
      int& place = id == value_ ? form_.result
                   : id == sum_ ? form_.bias_gradient
                                : form_.aux_result;
      if (id != value_ && id != sum_ && id != kept_) return false;
      if (place >= 0) return false;
      place = static_cast<int>(r);
    }
    if (form_.aux_result >= 0) {
      if (columns_ % kAuxElements != 0) return false;
      form_.epilogue = form_.bias < 0 ? BlasEpilogue::kGeluAux : BlasEpilogue::kBiasGeluAux;
    }
    return form_.result >= 0 && sum_.valid() == (form_.bias_gradient >= 0);
  }

  const ir::Graph& body_;
  const int64_t columns_;
  std::vector<const ir::Node*> steps_;
  size_t next_ = 0;
  ir::DType dtype_ = ir::DType::kF32;
  bool one_type_ = false;
  ValueId value_;  // what the product with the steps so far makes
  ValueId kept_;   // what gelu reads
  ValueId sum_;
  EpilogueForm form_;
};

}  // namespace

void EpilogueForm::SetMemory(Inputs inputs, Outputs outputs, BlasMemory& memory) const {
  const auto input = [&](int i) { return inputs[static_cast<size_t>(i)].data; };
  const auto output = [&](int i) { return outputs[static_cast<size_t>(i)].data; };
  memory.c = output(result);
  if (bias >= 0) memory.bias = input(bias);
  if (bias_gradient >= 0) memory.bias = output(bias_gradient);
  if (aux_operand >= 0) memory.aux = input(aux_operand);
  if (aux_result >= 0) memory.aux = output(aux_result);
}

std::optional<EpilogueForm> FindEpilogue(const ir::Graph& body, int producer, int64_t columns) {
  return EpilogueFinder(body, producer, columns).Run();
}

}  // namespace meshwright::ops::cuda
