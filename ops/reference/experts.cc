// Experts: expert_slots, dispatch, combine and their gradients, grouped_matmul and its gradient.
#include <algorithm>
#include <memory>
#include <vector>

#include "ops/expert_runs.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

SlotRequest RequestOf(const KernelSpec& spec) {
  const ir::Dims& dims = spec.inputs[0].dims;
  return {dims[1],
          dims[2],
          spec.attrs.Int("experts"),
          spec.attrs.Int("groups"),
          spec.attrs.Int("capacity"),
          spec.attrs.Int("by_choice") != 0,
          spec.attrs.Int("drop") != 0};
}

// visit(choice, place) for all choices that have a place here, in order.
template <typename Visit>
void ForEachPlace(const SlotBlock& block, const int32_t* slots, const Visit& visit) {
  const int64_t of_row = block.tokens * block.k;
  for (int64_t row = 0; row < block.rows; ++row) {
    for (int64_t i = 0; i < of_row; ++i) {
      const int64_t choice = row * of_row + i;
      const int64_t place = block.PlaceOf(row, slots[choice]);
      if (place >= 0) visit(choice, place);
    }
  }
}

template <typename T>
KernelResult MakeDispatchOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.outputs[0], spec.inputs[1]));
  return MakeFunctionKernel([block](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    T* out = outputs[0].as<T>();
    std::fill_n(out, outputs[0].elements(), T{0});
    const bool weighted = inputs.size() > 2;
    ForEachPlace(block, inputs[1].as<int32_t>(), [&](int64_t choice, int64_t place) {
      const T weight = weighted ? inputs[2].as<T>()[choice] : T{1};
      const T* x = inputs[0].as<T>() + choice / block.k * block.width;
      for (int64_t j = 0; j < block.width; ++j) out[place * block.width + j] = weight * x[j];
    });
    return {};
  });
}

template <typename T>
KernelResult MakeCombineOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.inputs[0], spec.inputs[1]));
  return MakeFunctionKernel([block](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    T* out = outputs[0].as<T>();
    std::fill_n(out, outputs[0].elements(), T{0});
    const bool weighted = inputs.size() > 2;
    ForEachPlace(block, inputs[1].as<int32_t>(), [&](int64_t choice, int64_t place) {
      const T weight = weighted ? inputs[2].as<T>()[choice] : T{1};
      const T* y = inputs[0].as<T>() + place * block.width;
      T* token = out + choice / block.k * block.width;
      for (int64_t j = 0; j < block.width; ++j) token[j] += weight * y[j];
    });
    return {};
  });
}

template <typename T>
KernelResult MakeCombineGradWeightsOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.inputs[1], spec.inputs[2]));
  return MakeFunctionKernel([block](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    T* out = outputs[0].as<T>();
    std::fill_n(out, outputs[0].elements(), T{0});
    ForEachPlace(block, inputs[2].as<int32_t>(), [&](int64_t choice, int64_t place) {
      const T* dy = inputs[0].as<T>() + choice / block.k * block.width;
      const T* y = inputs[1].as<T>() + place * block.width;
      T sum{0};
      for (int64_t j = 0; j < block.width; ++j) sum += dy[j] * y[j];
      out[choice] = sum;
    });
    return {};
  });
}

// Element (e, i, j) of weights is e * d * f + i * rows + j * columns.
struct WeightStrides {
  int64_t rows, columns;
};

template <typename T>
KernelResult MakeGroupedMatmulOf(const KernelSpec& spec) {
  const ir::Dims x = spec.inputs[0].dims;
  const int64_t experts = spec.inputs[1].dims[1];
  const int64_t d = x[3];
  const int64_t f = spec.outputs[0].dims[3];
  const bool transposed = spec.attrs.Int("transposed") != 0;
  const WeightStrides strides = transposed ? WeightStrides{1, d} : WeightStrides{f, 1};
  return MakeFunctionKernel(
      [x, experts, d, f, strides](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
        std::vector<ExpertRun> runs;
        MW_TRY(FindExpertRuns(inputs[1].as<int32_t>(), x[0], experts, x[1], x[2], runs));
        T* out = outputs[0].as<T>();
        std::fill_n(out, outputs[0].elements(), T{0});
        for (const ExpertRun& run : runs) {
          const T* w = inputs[2].as<T>() + run.expert * d * f;
          for (int64_t slot = run.first; slot < run.first + run.count; ++slot) {
            for (int64_t j = 0; j < f; ++j) {
              T sum{0};
              for (int64_t i = 0; i < d; ++i) {
                sum += inputs[0].as<T>()[slot * d + i] * w[i * strides.rows + j * strides.columns];
              }
              out[slot * f + j] = sum;
            }
          }
        }
        return {};
      });
}

template <typename T>
KernelResult MakeGroupedMatmulGradOf(const KernelSpec& spec) {
  const ir::Dims x = spec.inputs[0].dims;
  const int64_t experts = spec.inputs[1].dims[1];
  const int64_t d = x[3];
  const int64_t f = spec.inputs[2].dims[3];
  return MakeFunctionKernel(
      [x, experts, d, f](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
        std::vector<ExpertRun> runs;
        MW_TRY(FindExpertRuns(inputs[1].as<int32_t>(), x[0], experts, x[1], x[2], runs));
        T* out = outputs[0].as<T>();
        if (inputs.size() < 4) {
          std::fill_n(out, outputs[0].elements(), T{0});
        } else if (inputs[3].data != outputs[0].data) {
          std::copy_n(inputs[3].as<T>(), inputs[3].elements(), out);
        }
        for (const ExpertRun& run : runs) {
          T* dw = out + run.expert * d * f;
          for (int64_t slot = run.first; slot < run.first + run.count; ++slot) {
            const T* dy = inputs[2].as<T>() + slot * f;
            for (int64_t i = 0; i < d; ++i) {
              const T value = inputs[0].as<T>()[slot * d + i];
              for (int64_t j = 0; j < f; ++j) dw[i * f + j] += value * dy[j];
            }
          }
        }
        return {};
      });
}

}  // namespace

KernelResult MakeExpertSlots(const KernelSpec& spec) {
  const SlotRequest request = RequestOf(spec);
  auto assigner = std::make_shared<SlotAssigner>(request);
  return MakeFunctionKernel(
      [request, assigner](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
        const int64_t of_row = request.tokens * request.k;
        for (int64_t row = 0; row * of_row < inputs[0].elements(); ++row) {
          MW_TRY(assigner
                     ->Assign(inputs[0].as<int32_t>() + row * of_row,
                              outputs[0].as<int32_t>() + row * of_row,
                              outputs[1].as<int32_t>() + row * request.experts,
                              outputs[2].as<int32_t>() + row * request.experts)
                     .WithContext("expert_slots"));
        }
        return {};
      });
}

KernelResult MakeDispatch(const KernelSpec& spec) {
  return ForFloatType(spec, spec.inputs[0].dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    switch (spec.op) {
      case ir::Op::kDispatch:
        return MakeDispatchOf<T>(spec);
      case ir::Op::kCombine:
        return MakeCombineOf<T>(spec);
      default:
        return MakeCombineGradWeightsOf<T>(spec);
    }
  });
}

KernelResult MakeGroupedMatmul(const KernelSpec& spec) {
  return ForFloatType(spec, spec.inputs[0].dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    return spec.op == ir::Op::kGroupedMatmul ? MakeGroupedMatmulOf<T>(spec)
                                             : MakeGroupedMatmulGradOf<T>(spec);
  });
}

}  // namespace meshwright::ops::reference
