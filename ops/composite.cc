#include "ops/composite.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "ir/fused.h"

namespace meshwright::ops {
namespace {

// Where a value of the body lives while the node runs.
struct Home {
  enum class Kind : uint8_t { kOperand, kResult, kOwn };
  Kind kind = Kind::kOwn;
  size_t index = 0;  // of the operand or result; offset in own memory
};

class Composite final : public Kernel {
 public:
  static KernelResult Make(const Target& target, const KernelSpec& spec) {
    MW_ASSIGN_OR_RETURN(ir::Graph body, ir::ExpandFused(spec.attrs, spec.inputs));
    auto kernel = std::make_unique<Composite>(std::move(body));
    for (const ir::Node& node : kernel->body_.nodes) {
      if (node.op == ir::Op::kInput) continue;
      MW_ASSIGN_OR_RETURN(auto step, MakeKernel(target, kernel->body_, node, spec.coords));
      kernel->step_scratch_bytes_ = std::max(kernel->step_scratch_bytes_, step->scratch_bytes());
      kernel->steps_.push_back(std::move(step));
    }
    kernel->FindHomes();
    if (target.backend != Backend::kCuda) {
      kernel->own_.resize(static_cast<size_t>(kernel->own_bytes_));
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  explicit Composite(ir::Graph body) : body_(std::move(body)) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    MW_CHECK(outputs.size() == body_.outputs.size() && values_.size() == homes_.size())
        << outputs.size() << " results of " << body_.outputs.size();
    std::byte* const own = own_.empty() ? context.scratch : own_.data();
    for (size_t v = 0; v < homes_.size(); ++v) {
      values_[v].data = AddressOf(homes_[v], inputs, outputs, own);
    }
    RunContext of_step = context;
    of_step.scratch = context.scratch == nullptr ? nullptr : context.scratch + own_bytes_;
    auto step = steps_.begin();
    size_t next = 0;
    for (const ir::Node& node : body_.nodes) {
      if (node.op == ir::Op::kInput) continue;
      const auto begin = arguments_.begin() + static_cast<ptrdiff_t>(next);
      auto end = begin;
      for (ValueId id : node.inputs) *end++ = values_[id.index()];
      for (ValueId id : node.outputs) *end++ = values_[id.index()];
      MW_TRY((*step++)->Run(
          of_step, {begin, node.inputs.size()},
          {begin + static_cast<ptrdiff_t>(node.inputs.size()), node.outputs.size()}));
      next += node.inputs.size() + node.outputs.size();
    }
    MW_CHECK(step == steps_.end() && next == arguments_.size()) << "steps of a fused node are left";
    for (const auto& [result, value] : copies_) {
      const int64_t bytes = values_[value].type->bytes();
      if (context.queue != nullptr) {
        MW_TRY(context.queue->Copy(outputs[result].data, values_[value].data, bytes));
      } else {
        std::memcpy(outputs[result].data, values_[value].data, static_cast<size_t>(bytes));
      }
    }
    return {};
  }

  int64_t scratch_bytes() const override {
    return own_.empty() ? own_bytes_ + step_scratch_bytes_ : 0;
  }

 private:
  void FindHomes() {
    const size_t operands = body_.NodesOf(ir::Op::kInput).size();
    homes_.resize(body_.values.size());
    std::vector<bool> settled(body_.values.size(), false);
    for (size_t i = 0; i < operands; ++i) {
      homes_[i] = {Home::Kind::kOperand, i};
      settled[i] = true;
    }
    for (size_t r = 0; r < body_.outputs.size(); ++r) {
      const auto value = body_.outputs[r].value.index();
      if (settled[value]) {  // an operand, or a second name of a result
        copies_.emplace_back(r, value);
        continue;
      }
      homes_[value] = {Home::Kind::kResult, r};
      settled[value] = true;
    }
    size_t arguments = 0;
    for (const ir::Node& node : body_.nodes) {
      if (node.op != ir::Op::kInput) arguments += node.inputs.size() + node.outputs.size();
    }
    arguments_.resize(arguments);
    for (size_t v = 0; v < homes_.size(); ++v) {
      values_.push_back({nullptr, &body_.values[v].type});
      if (settled[v]) continue;
      homes_[v] = {Home::Kind::kOwn, static_cast<size_t>(own_bytes_)};
      own_bytes_ += device::AlignUp(body_.values[v].type.bytes());
    }
  }

  static void* AddressOf(const Home& home, Inputs inputs, Outputs outputs, std::byte* own) {
    switch (home.kind) {
      case Home::Kind::kOperand:
        return inputs[home.index].data;
      case Home::Kind::kResult:
        return outputs[home.index].data;
      case Home::Kind::kOwn:
        return own + home.index;
    }
    return nullptr;
  }

  const ir::Graph body_;  // the tensors point at its types
  std::vector<std::unique_ptr<Kernel>> steps_;
  std::vector<Home> homes_;
  std::vector<Tensor> values_;
  std::vector<Tensor> arguments_;                  // per step its operands, then its results
  std::vector<std::pair<size_t, size_t>> copies_;  // result, value
  int64_t own_bytes_ = 0;
  int64_t step_scratch_bytes_ = 0;
  std::vector<std::byte> own_;  // of the host
};

}  // namespace

KernelResult MakeComposite(const Target& target, const KernelSpec& spec) {
  return Composite::Make(target, spec);
}

}  // namespace meshwright::ops
