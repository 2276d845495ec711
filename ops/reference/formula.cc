// The elementwise ops of ir/elementwise.h: the steps of their formulas in double over blocks of
// elements, whatever the elements' type.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ir/elementwise.h"
#include "ops/parallel.h"
#include "ops/reference/elements.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

constexpr int64_t kBlock = 256;
constexpr size_t kMostValues = 12;

constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

double Gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(kGeluScale * (x + kGeluCubic * x * x * x)));
}

double GeluSlope(double x) {
  const double t = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
  const double inner = kGeluScale * (1.0 + 3.0 * kGeluCubic * x * x);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double SiluSlope(double x) {
  const double s = Sigmoid(x);
  return s * (1.0 + x * (1.0 - s));
}

double Sign(double x) { return std::isnan(x) ? x : (x > 0) - (x < 0); }
double Larger(double x, double y) { return x > y || std::isnan(x) ? x : y; }
double Smaller(double x, double y) { return x < y || std::isnan(x) ? x : y; }

// Values of a block: operands, then those that the steps make.
struct Block {
  const double* x[3];
  double* out;
  int64_t count;

  template <typename F>
  void Each(const F& f) const {
    for (int64_t i = 0; i < count; ++i) out[i] = f(x[0][i]);
  }
  template <typename F>
  void Pairs(const F& f) const {
    for (int64_t i = 0; i < count; ++i) out[i] = f(x[0][i], x[1][i]);
  }
};

// True when the op is one of these.
bool ApplyToPairs(ir::Op op, const Block& b) {
  using ir::Op;
  switch (op) {
    case Op::kAdd:
      return b.Pairs([](double x, double y) { return x + y; }), true;
    case Op::kSub:
      return b.Pairs([](double x, double y) { return x - y; }), true;
    case Op::kMul:
      return b.Pairs([](double x, double y) { return x * y; }), true;
    case Op::kDivide:
      return b.Pairs([](double x, double y) { return x / y; }), true;
    case Op::kPow:
      return b.Pairs([](double x, double y) { return std::pow(x, y); }), true;
    case Op::kMaximum:
      return b.Pairs(Larger), true;
    case Op::kMinimum:
      return b.Pairs(Smaller), true;
    case Op::kGate:
      return b.Pairs([](double x, double y) { return x > 0 ? y : 0.0; }), true;
    case Op::kEqual:
      return b.Pairs([](double x, double y) { return x == y ? 1.0 : 0.0; }), true;
    case Op::kLess:
      return b.Pairs([](double x, double y) { return x < y ? 1.0 : 0.0; }), true;
    case Op::kLessEqual:
      return b.Pairs([](double x, double y) { return x <= y ? 1.0 : 0.0; }), true;
    case Op::kGeluGrad:
      return b.Pairs([](double x, double dy) { return GeluSlope(x) * dy; }), true;
    case Op::kSiluGrad:
      return b.Pairs([](double x, double dy) { return SiluSlope(x) * dy; }), true;
    default:
      return false;
  }
}

bool ApplyToEach(ir::Op op, const Block& b, double value) {
  using ir::Op;
  switch (op) {
    case Op::kScale:
      return b.Each([value](double x) { return x * value; }), true;
    case Op::kShift:
      return b.Each([value](double x) { return x + value; }), true;
    case Op::kAbs:
      return b.Each([](double x) { return std::abs(x); }), true;
    case Op::kSign:
      return b.Each(Sign), true;
    case Op::kRelu:
      return b.Each([](double x) { return Larger(x, 0); }), true;
    case Op::kExp:
      return b.Each([](double x) { return std::exp(x); }), true;
    case Op::kLog:
      return b.Each([](double x) { return std::log(x); }), true;
    case Op::kLog1p:
      return b.Each([](double x) { return std::log1p(x); }), true;
    case Op::kSqrt:
      return b.Each([](double x) { return std::sqrt(x); }), true;
    case Op::kRsqrt:
      return b.Each([](double x) { return 1 / std::sqrt(x); }), true;
    case Op::kTanh:
      return b.Each([](double x) { return std::tanh(x); }), true;
    case Op::kSigmoid:
      return b.Each(Sigmoid), true;
    case Op::kErf:
      return b.Each([](double x) { return std::erf(x); }), true;
    case Op::kGelu:
      return b.Each(Gelu), true;
    case Op::kSilu:
      return b.Each([](double x) { return x / (1.0 + std::exp(-x)); }), true;
    default:
      return false;
  }
}

void Apply(ir::Op op, const Block& b, double value) {
  if (op == ir::Op::kSelect) {
    for (int64_t i = 0; i < b.count; ++i) b.out[i] = b.x[0][i] != 0 ? b.x[1][i] : b.x[2][i];
    return;
  }
  const bool known = ApplyToPairs(op, b) || ApplyToEach(op, b, value);
  MW_CHECK(known) << ir::OpName(op) << " is no native op";
}

// The formula of one node, its constants resolved.
class Program {
 public:
  explicit Program(const KernelSpec& spec) : formula_(*ir::FormulaOf(spec.op)) {
    MW_CHECK(formula_.names + static_cast<int>(formula_.steps.size()) <=
             static_cast<int>(kMostValues))
        << ir::OpName(spec.op) << " has too long a formula";
    const bool wide = spec.outputs[0].dtype == ir::DType::kF64;
    for (const ir::FormulaStep& step : formula_.steps) {
      const double value = ir::ConstantOf(step, spec.attrs);
      // Elements of f32 and less are computed with constants of f32.
      constants_.push_back(wide ? value : static_cast<double>(static_cast<float>(value)));
    }
  }

  void Run(Inputs inputs, const Tensor& out, int64_t begin, int64_t end) const {
    double values[kMostValues][kBlock];
    const auto names = static_cast<size_t>(formula_.names);
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      for (size_t k = 0; k < names; ++k) LoadBlock(inputs[k], at, count, values[k]);
      for (size_t i = 0; i < formula_.steps.size(); ++i) {
        const ir::FormulaStep& step = formula_.steps[i];
        Block block{{}, values[names + i], count};
        for (size_t k = 0; k < 3; ++k) block.x[k] = values[step.operands[k]];
        Apply(step.op, block, constants_[i]);
      }
      StoreBlock(values[formula_.result], out, at, count);
    }
  }

 private:
  const ir::Formula& formula_;
  std::vector<double> constants_;
};

template <typename T>
KernelResult MakeSumOf() {
  return MakeFunctionKernel([](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    T* out = outputs[0].as<T>();
    const int64_t count = outputs[0].elements();
    for (int64_t i = 0; i < count; ++i) {
      double total = static_cast<double>(inputs[0].as<T>()[i]);
      for (size_t k = 1; k < inputs.size(); ++k) total += static_cast<double>(inputs[k].as<T>()[i]);
      out[i] = static_cast<T>(total);
    }
    return {};
  });
}

}  // namespace

KernelResult MakeFormula(const KernelSpec& spec) {
  return MakeFunctionKernel([program = Program(spec)](const RunContext& context, Inputs inputs,
                                                      Outputs outputs) -> Status {
    ParallelRange(context, outputs[0].elements(), kElementGrain,
                  [&](int64_t begin, int64_t end) { program.Run(inputs, outputs[0], begin, end); });
    return {};
  });
}

KernelResult MakeSum(const KernelSpec& spec) {
  return ForFloatType(spec, spec.outputs[0].dtype,
                      [](auto zero) { return MakeSumOf<decltype(zero)>(); });
}

}  // namespace meshwright::ops::reference
