// cross_entropy, its gradient, logsumexp, pick, nll. Labels equal to ignore_index neither count nor
// have a gradient.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/reference/larger.h"
#include "ops/reference/reference.h"
#include "ops/token_ids.h"

namespace meshwright::ops::reference {
namespace {

int64_t IgnoreIndex(const KernelSpec& spec) {
  return spec.attrs.Int("ignore_index", kDefaultIgnoreIndex);
}

// -inf for an empty row or one of only -inf.
template <typename T>
double LogSumExp(const T* x, int64_t count) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < count; ++i) largest = Larger(largest, static_cast<double>(x[i]));
  if (std::isinf(largest)) return largest;
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += std::exp(static_cast<double>(x[i]) - largest);
  return largest + std::log(total);
}

template <typename T>
KernelResult MakeLogSumExp(const KernelSpec& spec) {
  return MakeFunctionKernel([width = spec.inputs[0].dims.back()](const RunContext&, Inputs inputs,
                                                                 Outputs outputs) -> Status {
    const int64_t rows = outputs[0].elements();
    for (int64_t r = 0; r < rows; ++r) {
      outputs[0].as<T>()[r] = static_cast<T>(LogSumExp(inputs[0].as<T>() + r * width, width));
    }
    return {};
  });
}

template <typename T>
KernelResult MakeCrossEntropy(const KernelSpec& spec) {
  return MakeFunctionKernel([width = spec.inputs[0].dims.back(), ignore = IgnoreIndex(spec)](
                                const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    const int32_t* labels = inputs[1].as<int32_t>();
    const int64_t rows = inputs[1].elements();
    MW_TRY(CheckTokenIds("cross_entropy", labels, rows, width, ignore));
    double loss = 0;
    int64_t count = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const T* logits = inputs[0].as<T>() + r * width;
      const double lse = LogSumExp(logits, width);
      outputs[2].as<T>()[r] = static_cast<T>(lse);
      if (labels[r] == ignore) continue;
      loss += lse - static_cast<double>(logits[labels[r]]);
      ++count;
    }
    *outputs[0].as<T>() = static_cast<T>(loss);
    *outputs[1].as<T>() = static_cast<T>(count);
    return {};
  });
}

// Columns beyond the global vocabulary (padding of an uneven split) get 0.
template <typename T>
KernelResult MakeCrossEntropyGrad(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.inputs[0]));
  return MakeFunctionKernel([block, ignore = IgnoreIndex(spec)](const RunContext& context,
                                                                Inputs inputs,
                                                                Outputs outputs) -> Status {
    const int dim = static_cast<int>(block.local_dims.size()) - 1;
    const int64_t width = block.local_dims.back();
    const int64_t first = block.Start(dim, context.microbatch);
    const int64_t valid = block.Valid(dim, context.microbatch);
    const int32_t* labels = inputs[1].as<int32_t>();
    const double dloss = static_cast<double>(*inputs[3].as<T>());
    for (int64_t r = 0; r < inputs[1].elements(); ++r) {
      const T* logits = inputs[0].as<T>() + r * width;
      T* grad = outputs[0].as<T>() + r * width;
      std::fill_n(grad, width, T{0});
      if (labels[r] == ignore) continue;
      const double lse = static_cast<double>(inputs[2].as<T>()[r]);
      for (int64_t j = 0; j < valid; ++j) {
        const double target = first + j == labels[r] ? 1.0 : 0.0;
        grad[j] = static_cast<T>(dloss * (std::exp(static_cast<double>(logits[j]) - lse) - target));
      }
    }
    return {};
  });
}

template <typename T>
KernelResult MakePick(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.inputs[0]));
  return MakeFunctionKernel([block, ignore = IgnoreIndex(spec)](const RunContext& context,
                                                                Inputs inputs,
                                                                Outputs outputs) -> Status {
    const int64_t width = block.local_dims.back();
    const int64_t first =
        block.Start(static_cast<int>(block.local_dims.size()) - 1, context.microbatch);
    const int32_t* labels = inputs[1].as<int32_t>();
    const int64_t rows = inputs[1].elements();
    MW_TRY(CheckTokenIds("pick", labels, rows, block.global_dims.back(), ignore));
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t column = labels[r] - first;
      const bool here = labels[r] != ignore && column >= 0 && column < width;
      outputs[0].as<T>()[r] = here ? inputs[0].as<T>()[r * width + column] : T{0};
    }
    return {};
  });
}

template <typename T>
KernelResult MakeNll(const KernelSpec& spec) {
  return MakeFunctionKernel([ignore = IgnoreIndex(spec)](const RunContext&, Inputs inputs,
                                                         Outputs outputs) -> Status {
    double loss = 0;
    int64_t count = 0;
    for (int64_t r = 0; r < inputs[2].elements(); ++r) {
      if (inputs[2].as<int32_t>()[r] == ignore) continue;
      loss += static_cast<double>(inputs[0].as<T>()[r]) - static_cast<double>(inputs[1].as<T>()[r]);
      ++count;
    }
    *outputs[0].as<T>() = static_cast<T>(loss);
    *outputs[1].as<T>() = static_cast<T>(count);
    return {};
  });
}

}  // namespace

KernelResult MakeLoss(const KernelSpec& spec) {
  return ForFloatType(spec, spec.inputs[0].dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    switch (spec.op) {
      case ir::Op::kLogSumExp:
        return MakeLogSumExp<T>(spec);
      case ir::Op::kCrossEntropy:
        return MakeCrossEntropy<T>(spec);
      case ir::Op::kCrossEntropyGrad:
        return MakeCrossEntropyGrad<T>(spec);
      case ir::Op::kPick:
        return MakePick<T>(spec);
      default:
        return MakeNll<T>(spec);
    }
  });
}

}  // namespace meshwright::ops::reference
