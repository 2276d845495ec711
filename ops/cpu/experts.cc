// dispatch, combine and its gradient for weights in f32 and bf16, grouped_matmul and its gradient
// in f32; those of bf16 are in experts_half.cc.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/half.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/expert_tiles.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/gemm_plan.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_alone.h"
#include "ops/cpu/vec_few.h"
#include "ops/cpu/vec_outer.h"
#include "ops/parallel.h"
#include "ops/widen.h"

namespace meshwright::ops::cpu {
namespace {

// Numbers of f32 or bf16.
float Wide(float x) { return x; }
float Wide(uint16_t x) { return Bf16ToFloat(x); }
void NarrowTo(float x, float* out) { *out = x; }
void NarrowTo(float x, uint16_t* out) { *out = FloatToBf16(x); }

// How much of each choice a token takes; null: all of it.
struct ChoiceWeights {
  static ChoiceWeights Of(Inputs inputs) {
    if (inputs.size() < 3) return {};
    return {inputs[2].data, inputs[2].type->dtype == ir::DType::kBF16};
  }
  float operator[](int64_t choice) const {
    if (data == nullptr) return 1;
    return half ? Wide(static_cast<const uint16_t*>(data)[choice])
                : static_cast<const float*>(data)[choice];
  }
  const void* data = nullptr;
  bool half = false;
};

template <typename T>
void Scaled(const T* x, float weight, T* out, int64_t count) {
  for (int64_t j = 0; j < count; ++j) NarrowTo(weight * Wide(x[j]), out + j);
}
template <typename T>
void AddScaled(const T* x, float weight, float* out, int64_t count) {
  for (int64_t j = 0; j < count; ++j) out[j] += weight * Wide(x[j]);
}
template <typename T>
float Dot(const T* a, const T* b, int64_t count) {
  constexpr int64_t kLanes = 16;
  float lanes[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += Wide(a[j + l]) * Wide(b[j + l]);
  }
  float sum = 0;
  for (; j < count; ++j) sum += Wide(a[j]) * Wide(b[j]);
  for (const float lane : lanes) sum += lane;
  return sum;
}

template <typename T>
KernelResult MakeDispatchOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.outputs[0], spec.inputs[1]));
  // By slot: the choice that it is of.
  auto choice_of = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(block.slots()));
  return MakeFunctionKernel([block, choice_of](const RunContext& context, Inputs inputs,
                                               Outputs outputs) -> Status {
    std::fill(choice_of->begin(), choice_of->end(), -1);
    const int32_t* slots = inputs[1].as<int32_t>();
    const int64_t of_row = block.tokens * block.k;
    for (int64_t i = 0; i < block.rows * of_row; ++i) {
      const int64_t place = block.PlaceOf(i / of_row, slots[i]);
      if (place >= 0) (*choice_of)[static_cast<size_t>(place)] = static_cast<int32_t>(i);
    }
    const ChoiceWeights weights = ChoiceWeights::Of(inputs);
    ParallelRange(context, block.slots(), RowGrain(block.width), [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) {
        T* out = outputs[0].as<T>() + slot * block.width;
        const int64_t choice = (*choice_of)[static_cast<size_t>(slot)];
        const T* x = inputs[0].as<T>() + choice / block.k * block.width;
        if (choice < 0) {
          std::fill_n(out, block.width, T{0});
        } else if (weights.data == nullptr) {
          std::copy_n(x, block.width, out);
        } else {
          Scaled(x, weights[choice], out, block.width);
        }
      }
    });
    return {};
  });
}

// Sums are of f32, and are rounded once.
template <typename T>
void CombineToken(const SlotBlock& block, int64_t token, const T* y, const int32_t* slots,
                  const ChoiceWeights& weights, T* out) {
  float* sums = nullptr;
  if constexpr (std::is_same_v<T, float>) {
    sums = out;
  } else {
    sums = ThreadScratch(block.width);
  }
  std::fill_n(sums, block.width, 0.0f);
  for (int64_t choice = token * block.k; choice < (token + 1) * block.k; ++choice) {
    const int64_t place = block.PlaceOf(token / block.tokens, slots[choice]);
    if (place < 0) continue;
    AddScaled(y + place * block.width, weights[choice], sums, block.width);
  }
  if constexpr (!std::is_same_v<T, float>) {
    for (int64_t j = 0; j < block.width; ++j) NarrowTo(sums[j], out + j);
  }
}

template <typename T>
KernelResult MakeCombineOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.inputs[0], spec.inputs[1]));
  return MakeFunctionKernel(
      [block](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const ChoiceWeights weights = ChoiceWeights::Of(inputs);
        const int64_t tokens = block.rows * block.tokens;
        ParallelRange(context, tokens, RowGrain(block.width), [&](int64_t begin, int64_t end) {
          for (int64_t token = begin; token < end; ++token) {
            CombineToken(block, token, inputs[0].as<T>(), inputs[1].as<int32_t>(), weights,
                         outputs[0].as<T>() + token * block.width);
          }
        });
        return {};
      });
}

template <typename T>
KernelResult MakeCombineGradWeightsOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.inputs[1], spec.inputs[2]));
  const bool half_result = spec.outputs[0].dtype == ir::DType::kBF16;
  return MakeFunctionKernel(
      [block, half_result](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const int32_t* slots = inputs[2].as<int32_t>();
        const int64_t of_row = block.tokens * block.k;
        const auto gradient = [&](int64_t choice) {
          const int64_t place = block.PlaceOf(choice / of_row, slots[choice]);
          if (place < 0) return 0.0f;
          return Dot(inputs[0].as<T>() + choice / block.k * block.width,
                     inputs[1].as<T>() + place * block.width, block.width);
        };
        ParallelRange(context, block.rows * of_row, RowGrain(block.width),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t choice = begin; choice < end; ++choice) {
                          if (half_result) {
                            NarrowTo(gradient(choice), outputs[0].as<uint16_t>() + choice);
                          } else {
                            NarrowTo(gradient(choice), outputs[0].as<float>() + choice);
                          }
                        }
                      });
        return {};
      });
}

KernelResult MakeGroupedMatmulOf(const KernelSpec& spec) {
  static_assert(kExpertTileRows <= kMostFewRows);
  const bool transposed = spec.attrs.Int("transposed") != 0;
  auto room = std::make_shared<ExpertRoom>(ExpertProducts::Of(spec));
  ForceOneOpenMpThread();
  return MakeFunctionKernel([transposed, room](const RunContext& context, Inputs inputs,
                                               Outputs outputs) -> Status {
    const ExpertProducts& of = room->of;
    MW_TRY(room->Find(inputs[1].as<int32_t>()));
    room->CutTiles();
    ParallelItems(context, static_cast<int64_t>(room->tiles.size()), [&](int64_t i) {
      const ExpertTile& tile = room->tiles[static_cast<size_t>(i)];
      float* out = outputs[0].as<float>() + tile.first * of.f;
      if (tile.expert < 0) {
        std::fill_n(out, tile.count * of.f, 0.0f);
        return;
      }
      const float* w = inputs[2].as<float>() + tile.expert * of.d * of.f;
      const ConstMatrix weights = transposed ? ConstMatrix{w, 1, of.d} : ConstMatrix{w, of.f, 1};
      VecFewRows({tile.count, of.f, of.d}, {inputs[0].as<float>() + tile.first * of.d, of.d, 1},
                 weights, {out, of.f, 1});
    });
    return {};
  });
}

// Elements are alone (ops/cpu/vec_alone.h), of any float types: neither how many tokens an expert
// has nor how its columns are cut shows in them.
KernelResult MakeAloneGroupedMatmul(const KernelSpec& spec) {
  const bool transposed = spec.attrs.Int("transposed") != 0;
  auto room = std::make_shared<ExpertRoom>(ExpertProducts::Of(spec));
  const int64_t pieces = (room->of.f + kExpertTileColumns - 1) / kExpertTileColumns;
  const auto at = [](const Tensor& tensor, int64_t element) {
    return static_cast<const std::byte*>(tensor.data) +
           element * ir::DTypeBytes(tensor.type->dtype);
  };
  const auto is_half = [](const Tensor& tensor) { return tensor.type->dtype == ir::DType::kBF16; };
  return MakeFunctionKernel([room, transposed, pieces, at, is_half](const RunContext& context,
                                                                    Inputs inputs,
                                                                    Outputs outputs) -> Status {
    const ExpertProducts& of = room->of;
    MW_TRY(room->Find(inputs[1].as<int32_t>()));
    room->CutTiles();
    const auto tiles = static_cast<int64_t>(room->tiles.size());
    ParallelItems(context, tiles * pieces, [&](int64_t i) {
      const ExpertTile& tile = room->tiles[static_cast<size_t>(i / pieces)];
      const int64_t column = i % pieces * kExpertTileColumns;
      const int64_t columns = std::min(kExpertTileColumns, of.f - column);
      auto* out = const_cast<std::byte*>(at(outputs[0], tile.first * of.f + column));
      if (tile.expert < 0) {
        const int64_t bytes = ir::DTypeBytes(outputs[0].type->dtype);
        for (int64_t row = 0; row < tile.count; ++row) {
          std::fill_n(out + row * of.f * bytes, columns * bytes, std::byte{0});
        }
        return;
      }
      const int64_t weights = tile.expert * of.d * of.f + column * (transposed ? of.d : 1);
      VecAloneProduct({tile.count, columns, of.d},
                      {at(inputs[0], tile.first * of.d), of.d, 1, is_half(inputs[0])},
                      {at(inputs[2], weights), transposed ? 1 : of.f, transposed ? of.d : 1,
                       is_half(inputs[2])},
                      {out, of.f, 1, is_half(outputs[0])}, false);
    });
    return {};
  });
}

// dw [d, columns] = x^T dy of one run, x [run, d], plus dw's old content when it adds.
void AddRun(const GemmSize& size, const float* x, const ConstMatrix& dy, const Matrix& dw,
            bool adds) {
  if (size.k <= kLongestOuterSum) {
    VecOuterProduct(size, {x, size.m, 1}, dy, dw, adds);
  } else {
    Gemm(size, {x, 1, size.m}, dy, dw, adds);
  }
}

KernelResult MakeGroupedMatmulGradOf(const KernelSpec& spec) {
  auto room = std::make_shared<ExpertRoom>(ExpertProducts::Of(spec));
  const int64_t column_tiles = (room->of.f + kExpertTileColumns - 1) / kExpertTileColumns;
  ForceOneOpenMpThread();
  return MakeFunctionKernel([column_tiles, room](const RunContext& context, Inputs inputs,
                                                 Outputs outputs) -> Status {
    const ExpertProducts& of = room->of;
    MW_TRY(room->Find(inputs[1].as<int32_t>()));
    const bool accumulates = inputs.size() > 3;
    const bool copies = accumulates && inputs[3].data != outputs[0].data;
    ParallelItems(context, of.experts * column_tiles, [&](int64_t item) {
      const int64_t expert = item / column_tiles;
      const int64_t begin = item % column_tiles * kExpertTileColumns;
      const int64_t columns = std::min(kExpertTileColumns, of.f - begin);
      float* dw = outputs[0].as<float>() + expert * of.d * of.f + begin;
      for (int64_t i = 0; copies && i < of.d; ++i) {
        std::copy_n(inputs[3].as<float>() + (expert * of.d + i) * of.f + begin, columns,
                    dw + i * of.f);
      }
      bool adds = accumulates;
      for (int64_t row = 0; row < of.rows; ++row) {
        const ExpertRun& run = room->runs[static_cast<size_t>(expert * of.rows + row)];
        if (run.count == 0) continue;
        AddRun({of.d, columns, run.count}, inputs[0].as<float>() + run.first * of.d,
               {inputs[2].as<float>() + run.first * of.f + begin, of.f, 1}, {dw, of.f, 1}, adds);
        adds = true;
      }
      // An expert that nobody has chosen.
      for (int64_t i = 0; !adds && i < of.d; ++i) std::fill_n(dw + i * of.f, columns, 0.0f);
    });
    return {};
  });
}

}  // namespace

// All are of bf16, or all but the weights of choices and their gradients are.
KernelResult MakeDispatch(const KernelSpec& spec) {
  const bool half = spec.inputs[0].dtype == ir::DType::kBF16;
  switch (spec.op) {
    case ir::Op::kDispatch:
      return half ? MakeDispatchOf<uint16_t>(spec) : MakeDispatchOf<float>(spec);
    case ir::Op::kCombine:
      return half ? MakeCombineOf<uint16_t>(spec) : MakeCombineOf<float>(spec);
    default:
      // Of two types: widened.
      if (spec.inputs[0].dtype != spec.inputs[1].dtype) return std::unique_ptr<Kernel>();
      return half ? MakeCombineGradWeightsOf<uint16_t>(spec)
                  : MakeCombineGradWeightsOf<float>(spec);
  }
}

KernelResult MakeGroupedMatmul(const KernelSpec& spec) {
  const bool product = spec.op == ir::Op::kGroupedMatmul;
  if (product && IsAlone(spec.attrs)) return MakeAloneGroupedMatmul(spec);
  const ir::DType other = spec.inputs[product ? 0 : 2].dtype;
  const bool half = spec.inputs[0].dtype == ir::DType::kBF16 && other == ir::DType::kBF16;
  if (half) return MakeHalfGroupedMatmul(spec);
  if (HasHalves(spec)) return std::unique_ptr<Kernel>();
  return product ? MakeGroupedMatmulOf(spec) : MakeGroupedMatmulGradOf(spec);
}

}  // namespace meshwright::ops::cpu
