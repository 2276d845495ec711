#include "ops/cpu/formula.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ir/elementwise.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/cpu/vec_math.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {

FormulaLoop::FormulaLoop(ir::Op op, const ir::Attrs& attrs)
    : second_is_scalar_(op == ir::Op::kMulScalar) {
  const ir::Formula* formula = ir::FormulaOf(op);
  MW_CHECK(formula != nullptr && !formula->steps.empty()) << ir::OpName(op) << " has no formula";
  operands_ = formula->names;
  temporaries_ = static_cast<int>(formula->steps.size()) - 1;
  for (const ir::FormulaStep& from : formula->steps) {
    MW_CHECK(from.count <= 2) << ir::OpName(from.op) << " is no op of floats alone";
    Step step{from.op, {}, static_cast<float>(ir::ConstantOf(from, attrs))};
    std::copy_n(from.operands.begin(), from.count, step.operands);
    steps_.push_back(step);
  }
}

const float* FormulaLoop::At(int value, const float* const* x, float* scratch) const {
  return value < operands_ ? x[value] : scratch + (value - operands_) * kSpan;
}

// Only the last step writes to `out`, which may be an operand that the steps before read.
void FormulaLoop::Run(const float* const* x, float* out, int64_t count, float* scratch) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    float* to = i + 1 == steps_.size() ? out : scratch + static_cast<int64_t>(i) * kSpan;
    const float* a = At(step.operands[0], x, scratch);
    const float* b = At(step.operands[1], x, scratch);
    if (second_is_scalar_) {
      VecScale(a, *b, to, count);
    } else {
      VecNative(step.op, a, b, step.value, to, count);
    }
  }
}

namespace {

// How the operands of a node lie along its elements.
struct OperandLayout {
  std::vector<int64_t> periods;  // elements of each operand
  int64_t row = 0;               // spans end where this many elements do; 0: anywhere

  // An operand that repeats is read in place where spans lie within its rows; shorter ones than
  // this are copied into spans.
  static constexpr int64_t kShortestRow = 64;
};

OperandLayout LayOut(const KernelSpec& spec) {
  OperandLayout layout;
  const int64_t elements = spec.outputs[0].elements();
  for (const ir::TensorType& type : spec.inputs) {
    const int64_t period = type.elements();
    layout.periods.push_back(period);
    if (period != elements && period >= OperandLayout::kShortestRow)
      layout.row = std::max(layout.row, period);
  }
  return layout;
}

// The operand's values for elements [at, at + count): where they are, or repeated into `span`.
const float* SpanOf(const float* x, int64_t period, int64_t at, int64_t count, float* span) {
  const int64_t first = at % period;
  if (first + count <= period) return x + first;
  if (period == 1) {
    std::fill_n(span, count, *x);
    return span;
  }
  for (int64_t done = 0; done < count;) {
    const int64_t from = (at + done) % period;
    const int64_t part = std::min(count - done, period - from);
    std::memcpy(span + done, x + from, static_cast<size_t>(part) * sizeof(float));
    done += part;
  }
  return span;
}

constexpr size_t kMostOperands = 2;

void RunSpans(const FormulaLoop& loop, const OperandLayout& layout, Inputs inputs, float* out,
              int64_t begin, int64_t end, bool scalar) {
  const int64_t operands = static_cast<int64_t>(inputs.size());
  float* const scratch = ThreadScratch((loop.temporaries() + operands) * FormulaLoop::kSpan);
  float* const copies = scratch + loop.temporaries() * FormulaLoop::kSpan;
  for (int64_t at = begin; at < end;) {
    int64_t count = std::min(FormulaLoop::kSpan, end - at);
    if (layout.row != 0) count = std::min(count, layout.row - at % layout.row);
    const float* x[kMostOperands] = {};
    for (size_t k = 0; k < inputs.size(); ++k) {
      const float* operand = inputs[k].as<float>();
      x[k] = scalar && k == 1 ? operand
                              : SpanOf(operand, layout.periods[k], at, count,
                                       copies + static_cast<int64_t>(k) * FormulaLoop::kSpan);
    }
    loop.Run(x, out + at, count, scratch);
    at += count;
  }
}

}  // namespace

KernelResult MakeFormula(const KernelSpec& spec) {
  FormulaLoop loop(spec.op, spec.attrs);
  const OperandLayout layout = LayOut(spec);
  const int64_t elements = spec.outputs[0].elements();
  const bool scalar = spec.op == ir::Op::kMulScalar;
  bool is_flat = loop.has_one_step();
  for (size_t k = 0; k < spec.inputs.size(); ++k) {
    is_flat = is_flat && (layout.periods[k] == elements || (scalar && k == 1));
  }
  if (is_flat) {
    return MakeFunctionKernel([loop, scalar](const RunContext& context, Inputs inputs,
                                             Outputs outputs) -> Status {
      float* out = outputs[0].as<float>();
      ParallelRange(context, outputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
        const float* x[kMostOperands] = {};
        for (size_t k = 0; k < inputs.size(); ++k) {
          x[k] = inputs[k].as<float>() + (scalar && k == 1 ? 0 : begin);
        }
        loop.Run(x, out + begin, end - begin, nullptr);
      });
      return {};
    });
  }
  return MakeFunctionKernel([loop, layout, scalar](const RunContext& context, Inputs inputs,
                                                   Outputs outputs) -> Status {
    float* out = outputs[0].as<float>();
    ParallelRange(context, outputs[0].elements(), kElementGrain, [&](int64_t begin, int64_t end) {
      RunSpans(loop, layout, inputs, out, begin, end, scalar);
    });
    return {};
  });
}

}  // namespace meshwright::ops::cpu
