// dispatch, combine and its gradient for weights, grouped_matmul and its gradient, in f32.
//
// Products are cut into tiles of one expert each: rows of a run, or columns of its weights. Tiles
// depend on what the experts got, and not on the threads that share them.
#include <algorithm>
#include <memory>
#include <vector>

#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/expert_runs.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kTileRows = 128;
constexpr int64_t kTileColumns = 256;

void Scaled(const float* x, float weight, float* out, int64_t count) {
  for (int64_t j = 0; j < count; ++j) out[j] = weight * x[j];
}
void AddScaled(const float* x, float weight, float* out, int64_t count) {
  for (int64_t j = 0; j < count; ++j) out[j] += weight * x[j];
}
float Dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t kLanes = 16;
  float lanes[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += a[j + l] * b[j + l];
  }
  float sum = 0;
  for (; j < count; ++j) sum += a[j] * b[j];
  for (const float lane : lanes) sum += lane;
  return sum;
}

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
    const float* weights = inputs.size() > 2 ? inputs[2].as<float>() : nullptr;
    ParallelRange(context, block.slots(), RowGrain(block.width), [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) {
        float* out = outputs[0].as<float>() + slot * block.width;
        const int64_t choice = (*choice_of)[static_cast<size_t>(slot)];
        const float* x = inputs[0].as<float>() + choice / block.k * block.width;
        if (choice < 0) {
          std::fill_n(out, block.width, 0.0f);
        } else if (weights == nullptr) {
          std::copy_n(x, block.width, out);
        } else {
          Scaled(x, weights[choice], out, block.width);
        }
      }
    });
    return {};
  });
}

KernelResult MakeCombineOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.inputs[0], spec.inputs[1]));
  return MakeFunctionKernel(
      [block](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const int32_t* slots = inputs[1].as<int32_t>();
        const float* weights = inputs.size() > 2 ? inputs[2].as<float>() : nullptr;
        const int64_t tokens = block.rows * block.tokens;
        ParallelRange(context, tokens, RowGrain(block.width), [&](int64_t begin, int64_t end) {
          for (int64_t token = begin; token < end; ++token) {
            float* out = outputs[0].as<float>() + token * block.width;
            std::fill_n(out, block.width, 0.0f);
            for (int64_t choice = token * block.k; choice < (token + 1) * block.k; ++choice) {
              const int64_t place = block.PlaceOf(token / block.tokens, slots[choice]);
              if (place < 0) continue;
              AddScaled(inputs[0].as<float>() + place * block.width,
                        weights == nullptr ? 1.0f : weights[choice], out, block.width);
            }
          }
        });
        return {};
      });
}

KernelResult MakeCombineGradWeightsOf(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const SlotBlock block, SlotBlock::Of(spec, spec.inputs[1], spec.inputs[2]));
  return MakeFunctionKernel(
      [block](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const int32_t* slots = inputs[2].as<int32_t>();
        const int64_t of_row = block.tokens * block.k;
        ParallelRange(context, block.rows * of_row, RowGrain(block.width),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t choice = begin; choice < end; ++choice) {
                          const int64_t place = block.PlaceOf(choice / of_row, slots[choice]);
                          const float* dy = inputs[0].as<float>() + choice / block.k * block.width;
                          const float* y = inputs[1].as<float>() + place * block.width;
                          outputs[0].as<float>()[choice] = place < 0 ? 0 : Dot(dy, y, block.width);
                        }
                      });
        return {};
      });
}

struct Products {
  int64_t rows, groups, capacity, experts, d, f;
  int64_t slots() const { return rows * groups * capacity; }
};

// Rows [first, first + count) of the slots, of one expert, or zeros.
struct Tile {
  int64_t expert;  // -1: zeros
  int64_t first, count;
};

// All slots. `runs` are by expert; rows behind the last run of a group are zeros.
void CutTiles(const Products& of, const std::vector<ExpertRun>& runs, std::vector<Tile>& tiles) {
  tiles.clear();
  for (const ExpertRun& run : runs) {
    for (int64_t begin = 0; begin < run.count; begin += kTileRows) {
      tiles.push_back({run.expert, run.first + begin, std::min(kTileRows, run.count - begin)});
    }
  }
  const int64_t of_group = of.experts / of.groups;
  for (int64_t row = 0; row < of.rows; ++row) {
    for (int64_t group = 0; group < of.groups; ++group) {
      const int64_t last = ((group + 1) * of_group - 1) * of.rows + row;
      const ExpertRun& run = runs[static_cast<size_t>(last)];
      const int64_t begin = run.first + run.count;
      const int64_t end = (row * of.groups + group + 1) * of.capacity;
      if (begin < end) tiles.push_back({-1, begin, end - begin});
    }
  }
}

// What a kernel keeps between its runs: memory for all runs and tiles that there may be.
struct Room {
  explicit Room(const Products& of) {
    runs.reserve(static_cast<size_t>(of.rows * of.experts));
    tiles.reserve(static_cast<size_t>(of.slots() / kTileRows + of.rows * (of.experts + of.groups)));
  }
  std::vector<ExpertRun> runs;
  std::vector<Tile> tiles;
};

KernelResult MakeGroupedMatmulOf(const KernelSpec& spec) {
  const ir::Dims& x = spec.inputs[0].dims;
  const Products of{x[0], x[1], x[2], spec.inputs[1].dims[1], x[3], spec.outputs[0].dims[3]};
  const bool transposed = spec.attrs.Int("transposed") != 0;
  auto room = std::make_shared<Room>(of);
  ForceOneOpenMpThread();
  return MakeFunctionKernel([of, transposed, room](const RunContext& context, Inputs inputs,
                                                   Outputs outputs) -> Status {
    MW_TRY(FindExpertRuns(inputs[1].as<int32_t>(), of.rows, of.experts, of.groups, of.capacity,
                          room->runs));
    CutTiles(of, room->runs, room->tiles);
    ParallelItems(context, static_cast<int64_t>(room->tiles.size()), [&](int64_t i) {
      const Tile& tile = room->tiles[static_cast<size_t>(i)];
      float* out = outputs[0].as<float>() + tile.first * of.f;
      if (tile.expert < 0) {
        std::fill_n(out, tile.count * of.f, 0.0f);
        return;
      }
      const float* w = inputs[2].as<float>() + tile.expert * of.d * of.f;
      const ConstMatrix weights = transposed ? ConstMatrix{w, 1, of.d} : ConstMatrix{w, of.f, 1};
      Gemm({tile.count, of.f, of.d}, {inputs[0].as<float>() + tile.first * of.d, of.d, 1}, weights,
           {out, of.f, 1}, /*accumulate=*/false);
    });
    return {};
  });
}

KernelResult MakeGroupedMatmulGradOf(const KernelSpec& spec) {
  const ir::Dims& x = spec.inputs[0].dims;
  const Products of{x[0], x[1], x[2], spec.inputs[1].dims[1], x[3], spec.inputs[2].dims[3]};
  auto room = std::make_shared<Room>(of);
  const int64_t column_tiles = (of.f + kTileColumns - 1) / kTileColumns;
  ForceOneOpenMpThread();
  return MakeFunctionKernel([of, column_tiles, room](const RunContext& context, Inputs inputs,
                                                     Outputs outputs) -> Status {
    MW_TRY(FindExpertRuns(inputs[1].as<int32_t>(), of.rows, of.experts, of.groups, of.capacity,
                          room->runs));
    const bool accumulates = inputs.size() > 3;
    const bool copies = accumulates && inputs[3].data != outputs[0].data;
    ParallelItems(context, of.experts * column_tiles, [&](int64_t item) {
      const int64_t expert = item / column_tiles;
      const int64_t begin = item % column_tiles * kTileColumns;
      const int64_t columns = std::min(kTileColumns, of.f - begin);
      float* dw = outputs[0].as<float>() + expert * of.d * of.f + begin;
      for (int64_t i = 0; copies && i < of.d; ++i) {
        std::copy_n(inputs[3].as<float>() + (expert * of.d + i) * of.f + begin, columns,
                    dw + i * of.f);
      }
      bool adds = accumulates;
      for (int64_t row = 0; row < of.rows; ++row) {
        const ExpertRun& run = room->runs[static_cast<size_t>(expert * of.rows + row)];
        if (run.count == 0) continue;
        Gemm({of.d, columns, run.count}, {inputs[0].as<float>() + run.first * of.d, 1, of.d},
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

KernelResult MakeDispatch(const KernelSpec& spec) {
  switch (spec.op) {
    case ir::Op::kDispatch:
      return MakeDispatchOf(spec);
    case ir::Op::kCombine:
      return MakeCombineOf(spec);
    default:
      return MakeCombineGradWeightsOf(spec);
  }
}

KernelResult MakeGroupedMatmul(const KernelSpec& spec) {
  return spec.op == ir::Op::kGroupedMatmul ? MakeGroupedMatmulOf(spec)
                                           : MakeGroupedMatmulGradOf(spec);
}

}  // namespace meshwright::ops::cpu
