// Experts: expert_slots, dispatch, combine and their gradients, grouped_matmul and its gradient.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
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

// A choice that has a slot here, and where the elements of its token and of the slot begin.
struct PlacedChoice {
  int64_t choice, token, slot;
};

// The result is zero, and then `visit(inputs, out, choice, j)` for element j of the width of every
// choice that has a slot here, in order.
template <typename T, typename Visit>
KernelResult MakeOverPlaces(const Result<SlotBlock>& slots, size_t operand, const Visit& visit) {
  MW_ASSIGN_OR_RETURN(const SlotBlock block, slots);
  return MakeFunctionKernel(
      [block, operand, visit](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
        T* out = outputs[0].as<T>();
        std::fill_n(out, outputs[0].elements(), T{0});
        const int64_t of_row = block.tokens * block.k;
        for (int64_t i = 0; i < block.rows * of_row; ++i) {
          const int64_t place = block.PlaceOf(i / of_row, inputs[operand].as<int32_t>()[i]);
          const PlacedChoice at{i, i / block.k * block.width, place * block.width};
          for (int64_t j = 0; place >= 0 && j < block.width; ++j) visit(inputs, out, at, j);
        }
        return {};
      });
}

// What a choice is weighed by.
template <typename T>
T WeightOf(Inputs inputs, int64_t choice) {
  return inputs.size() > 2 ? inputs[2].as<T>()[choice] : T{1};
}

template <typename T>
KernelResult MakeDispatchOf(const KernelSpec& spec) {
  return MakeOverPlaces<T>(SlotBlock::Of(spec, spec.outputs[0], spec.inputs[1]), 1,
                           [](Inputs inputs, T* out, const PlacedChoice& at, int64_t j) {
                             out[at.slot + j] =
                                 WeightOf<T>(inputs, at.choice) * inputs[0].as<T>()[at.token + j];
                           });
}

template <typename T>
KernelResult MakeCombineOf(const KernelSpec& spec) {
  return MakeOverPlaces<T>(SlotBlock::Of(spec, spec.inputs[0], spec.inputs[1]), 1,
                           [](Inputs inputs, T* out, const PlacedChoice& at, int64_t j) {
                             out[at.token + j] +=
                                 WeightOf<T>(inputs, at.choice) * inputs[0].as<T>()[at.slot + j];
                           });
}

template <typename T>
KernelResult MakeCombineGradWeightsOf(const KernelSpec& spec) {
  return MakeOverPlaces<T>(SlotBlock::Of(spec, spec.inputs[1], spec.inputs[2]), 2,
                           [](Inputs inputs, T* out, const PlacedChoice& at, int64_t j) {
                             out[at.choice] +=
                                 inputs[0].as<T>()[at.token + j] * inputs[1].as<T>()[at.slot + j];
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

// Of a row; what is no number comes last.
void ReadScores(const Tensor& tensor, int64_t row, std::vector<double>& scores) {
  const auto first = row * static_cast<int64_t>(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    const int64_t at = first + static_cast<int64_t>(i);
    const double score = tensor.type->dtype == ir::DType::kF64
                             ? tensor.as<double>()[at]
                             : static_cast<double>(tensor.as<float>()[at]);
    scores[i] = std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
  }
}

// Where the slots are bounded (planner/job_on_axes.h).
Status NoRoom(const std::string& layer, int64_t row, const Status& assigned) {
  return ResourceExhausted(
      fmt::format("layer {}: row {} of the rows here sends an expert rank more than it has slots "
                  "for: {}; raise model.expert_slots_factor, or set it to 0, room for all that may "
                  "come",
                  layer, row, assigned.message()));
}

}  // namespace

namespace {

KernelResult MakeHostPlaces(const KernelSpec& spec) {
  const ir::Dims& slots = spec.inputs[0].dims;
  const ir::Dims& within = spec.outputs[1].dims;
  const HostRequest request{slots[1], slots[2], within[1],
                            spec.attrs.Int("groups") / within[1] * spec.attrs.Int("capacity"),
                            within[2]};
  return MakeFunctionKernel(
      [request, rows = slots[0]](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
        const int64_t of_row = request.hosts * request.host_capacity * request.k;
        for (int64_t row = 0; row < rows; ++row) {
          MW_TRY(PlaceOnHosts(request, inputs[0].as<int32_t>() + row * request.tokens * request.k,
                              outputs[0].as<int32_t>() + row * request.tokens * request.hosts,
                              outputs[1].as<int32_t>() + row * of_row,
                              outputs[2].as<int32_t>() + row * request.hosts));
        }
        return {};
      });
}

}  // namespace

KernelResult MakeExpertSlots(const KernelSpec& spec) {
  if (spec.attrs.Has("hosts")) return MakeHostPlaces(spec);
  const SlotRequest request = RequestOf(spec);
  const bool scored = spec.inputs.size() > 1;
  if (scored && ir::DTypeBytes(spec.inputs[1].dtype) < 4) {
    return Fail(Unimplemented(spec.ToString() + ": scores must be in f32 or f64"));
  }
  auto assigner = std::make_shared<SlotAssigner>(request);
  auto scores = std::make_shared<std::vector<double>>(
      static_cast<size_t>(scored ? request.tokens * request.k : 0));
  return MakeFunctionKernel([request, assigner, scores, layer = spec.attrs.Str("name")](
                                const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    const int64_t of_row = request.tokens * request.k;
    for (int64_t row = 0; row * of_row < inputs[0].elements(); ++row) {
      if (!scores->empty()) ReadScores(inputs[1], row, *scores);
      const Status assigned = assigner->Assign(inputs[0].as<int32_t>() + row * of_row,
                                               outputs[0].as<int32_t>() + row * of_row,
                                               outputs[1].as<int32_t>() + row * request.experts,
                                               outputs[2].as<int32_t>() + row * request.experts,
                                               scores->empty() ? nullptr : scores->data());
      if (assigned.ok()) continue;
      if (assigned.code() != StatusCode::kResourceExhausted || layer.empty()) {
        return assigned.WithContext("expert_slots");
      }
      return NoRoom(layer, row, assigned);
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
