// einsum on sgemm.
//
// The labels are grouped into matrix products (ops/einsum_plan.h). Each product is cut into tiles
// whose sizes depend on the shape only; the team takes tiles. Layouts that no BLAS call can read
// are first copied to [batch, m, k] and [batch, k, n].
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/einsum_plan.h"
#include "ops/parallel.h"
#include "ops/strided_copy.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kSmallestTile = 64;
constexpr int64_t kWantedTiles = 8;
constexpr double kSmallestTileFlops = 8e6;  // about 40 us: far above the cost of handing out a tile
constexpr int64_t kSmallestGemm = 256;      // multiply-adds; below this the plain loops are faster

struct Offsets {
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
};

std::vector<Offsets> Expand(const std::vector<EinsumLoop>& loops) {
  std::vector<Offsets> offsets{{}};
  for (const EinsumLoop& loop : loops) {
    std::vector<Offsets> next;
    for (const Offsets& o : offsets) {
      for (int64_t i = 0; i < loop.size; ++i) {
        next.push_back({o.a + i * loop.a, o.b + i * loop.b, o.c + i * loop.c});
      }
    }
    offsets = std::move(next);
  }
  return offsets;
}

// All products of one einsum, as tiles.
class GemmPlan {
 public:
  explicit GemmPlan(const GemmLoops& loops)
      : m_(loops.m),
        n_(loops.n),
        k_(loops.k),
        outer_(Expand(loops.outer)),
        depth_(Expand(loops.depth)) {
    ChooseTiles();
  }

  void Run(const RunContext& context, const float* a, const float* b, float* c) const {
    const int64_t per_product = row_tiles_ * column_tiles_;
    ParallelItems(context, static_cast<int64_t>(outer_.size()) * per_product, [&](int64_t item) {
      const Offsets& at = outer_[static_cast<size_t>(item / per_product)];
      const int64_t tile = item % per_product;
      RunTile(tile / column_tiles_ * tile_rows_, tile % column_tiles_ * tile_columns_, a + at.a,
              b + at.b, c + at.c);
    });
  }

 private:
  // Halves the longer side until there is work for several threads, as long as the tiles stay worth
  // a call.
  void ChooseTiles() {
    tile_rows_ = std::min<int64_t>(m_.size, 512);
    tile_columns_ = std::min<int64_t>(n_.size, 512);
    const auto count = [](int64_t size, int64_t tile) {
      return tile == 0 ? 0 : (size + tile - 1) / tile;
    };
    while (true) {
      row_tiles_ = count(m_.size, tile_rows_);
      column_tiles_ = count(n_.size, tile_columns_);
      const int64_t tiles = row_tiles_ * column_tiles_ * static_cast<int64_t>(outer_.size());
      const double flops = 2.0 * static_cast<double>(tile_rows_) *
                           static_cast<double>(tile_columns_) * static_cast<double>(k_.size);
      int64_t& longer = tile_rows_ >= tile_columns_ ? tile_rows_ : tile_columns_;
      if (tiles >= kWantedTiles || flops < 2 * kSmallestTileFlops || longer < 2 * kSmallestTile) {
        return;
      }
      longer = (longer / 2 + 15) / 16 * 16;
    }
  }

  void RunTile(int64_t row, int64_t column, const float* a, const float* b, float* c) const {
    const GemmSize size{std::min(tile_rows_, m_.size - row),
                        std::min(tile_columns_, n_.size - column), k_.size};
    bool accumulate = false;
    for (const Offsets& at : depth_) {
      cpu::Gemm(size, {a + at.a + row * m_.a, m_.a, k_.a}, {b + at.b + column * n_.b, k_.b, n_.b},
                {c + row * m_.c + column * n_.c, m_.c, n_.c}, accumulate);
      accumulate = true;
    }
  }

  EinsumLoop m_;
  EinsumLoop n_;
  EinsumLoop k_;
  std::vector<Offsets> outer_;
  std::vector<Offsets> depth_;
  int64_t tile_rows_ = 0;
  int64_t tile_columns_ = 0;
  int64_t row_tiles_ = 0;
  int64_t column_tiles_ = 0;
};

// A tensor copied to the order of labels that a BLAS can read.
struct Packing {
  StridedCopy copy;
  std::vector<float> data;
};

ir::Dims SizesOf(const std::vector<EinsumLoop>& labels) {
  ir::Dims sizes;
  for (const EinsumLoop& label : labels) sizes.push_back(label.size);
  return sizes;
}

std::vector<EinsumLoop> Join(const std::vector<EinsumLoop>& x, const std::vector<EinsumLoop>& y,
                             const std::vector<EinsumLoop>& z) {
  std::vector<EinsumLoop> all = x;
  all.insert(all.end(), y.begin(), y.end());
  all.insert(all.end(), z.begin(), z.end());
  return all;
}

// `into`: the copy runs from the tensor (strides `stride`) into packed memory; otherwise back from
// it.
Packing MakePacking(const std::vector<EinsumLoop>& labels, int64_t EinsumLoop::*stride, bool into) {
  const ir::Dims sizes = SizesOf(labels);
  ir::Dims strides;
  for (const EinsumLoop& label : labels) strides.push_back(label.*stride);
  const ir::Dims packed = RowMajorStrides(sizes);
  const int64_t bytes = static_cast<int64_t>(sizeof(float));
  return {into ? StridedCopy(sizes, strides, packed, bytes)
               : StridedCopy(sizes, packed, strides, bytes),
          std::vector<float>(static_cast<size_t>(Product(sizes)))};
}

int64_t Volume(const std::vector<EinsumLoop>& loops) { return Product(SizesOf(loops)); }

// The loops of the packed operands: one batch, m, n and k label each.
EinsumLoops PackedLoops(const EinsumLoops& loops) {
  const int64_t m = Volume(loops.m);
  const int64_t n = Volume(loops.n);
  const int64_t k = Volume(loops.k);
  return {{{'b', Volume(loops.batch), m * k, k * n, m * n}},
          {{'m', m, k, 0, n}},
          {{'n', n, 0, 1, 1}},
          {{'k', k, 1, n, 0}}};
}

KernelResult MakePacked(const EinsumLoops& loops) {
  const std::optional<GemmLoops> gemm = ChooseGemm(PackedLoops(loops));
  return MakeFunctionKernel(
      [plan = GemmPlan(*gemm),
       a = MakePacking(Join(loops.batch, loops.m, loops.k), &EinsumLoop::a, true),
       b = MakePacking(Join(loops.batch, loops.k, loops.n), &EinsumLoop::b, true),
       c = MakePacking(Join(loops.batch, loops.m, loops.n), &EinsumLoop::c, false)](
          const RunContext& context, Inputs inputs, Outputs outputs) mutable -> Status {
        a.copy.Run(context, inputs[0].data, a.data.data());
        b.copy.Run(context, inputs[1].data, b.data.data());
        plan.Run(context, a.data.data(), b.data.data(), c.data.data());
        c.copy.Run(context, c.data.data(), outputs[0].data);
        return {};
      });
}

bool Worthwhile(const GemmLoops& gemm) {
  return gemm.m.size * gemm.n.size * gemm.k.size >= kSmallestGemm ||
         (gemm.outer.empty() && gemm.depth.empty());
}

}  // namespace

KernelResult MakeEinsum(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const EinsumLoops loops,
                      ClassifyEinsum(spec.attrs.Str("equation"), spec.inputs[0].dims,
                                     spec.inputs[1].dims, spec.outputs[0].dims));
  const EinsumLoops merged = MergeLoops(loops);
  const std::optional<GemmLoops> gemm = ChooseGemm(merged);
  if (gemm && Worthwhile(*gemm)) {
    return MakeFunctionKernel([plan = GemmPlan(*gemm)](const RunContext& context, Inputs inputs,
                                                       Outputs outputs) -> Status {
      plan.Run(context, inputs[0].as<float>(), inputs[1].as<float>(), outputs[0].as<float>());
      return {};
    });
  }
  const int64_t product = Volume(loops.m) * Volume(loops.n) * Volume(loops.k);
  if (product >= kSmallestGemm) return MakePacked(loops);
  return std::unique_ptr<Kernel>();  // the reference loops
}

}  // namespace meshwright::ops::cpu
