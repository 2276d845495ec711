#include "ops/cpu/gemm_plan.h"

#include <algorithm>
#include <utility>

#include "ops/cpu/gemm.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kSmallestTile = 64;
constexpr int64_t kWantedTiles = 4;
// About 80 us: far above the cost of handing out a tile.
constexpr double kSmallestTileFlops = 8e6;
constexpr double kSmallestHalfTileFlops = 16e6;
// Few rows read all of the weights, which is worth a thread of its own sooner.
constexpr double kSmallestAloneFlops = 1e6;
constexpr int64_t kFloatTile = 1024;
constexpr int64_t kSharedProducts = 1 << 17;  // multiply-adds; with fewer, a thread is faster alone
// Whole rows of the weights, as memory gives them out fastest.
constexpr int64_t kAloneColumns = 4096;
// bf16 products pack the second operand for every tile: whole rows of it.
constexpr int64_t kHalfTileRows = 512;
constexpr int64_t kHalfTileColumns = 4096;

int64_t HalfOf(int64_t side) {
  return (side / 2 + kSmallestTile - 1) / kSmallestTile * kSmallestTile;
}

bool Worthwhile(const GemmLoops& gemm) {
  return gemm.m.size * gemm.n.size * gemm.k.size >= kSmallestGemm ||
         (gemm.outer.empty() && gemm.depth.empty());
}

std::vector<GemmOffsets> Expand(const std::vector<EinsumLoop>& loops) {
  std::vector<GemmOffsets> offsets{{}};
  for (const EinsumLoop& loop : loops) {
    std::vector<GemmOffsets> next;
    for (const GemmOffsets& o : offsets) {
      for (int64_t i = 0; i < loop.size; ++i) {
        next.push_back({o.a + i * loop.a, o.b + i * loop.b, o.c + i * loop.c});
      }
    }
    offsets = std::move(next);
  }
  return offsets;
}

}  // namespace

GemmPlan::GemmPlan(const GemmLoops& loops, bool alone)
    : is_alone_(alone),
      m_(loops.m),
      n_(loops.n),
      k_(loops.k),
      outer_(Expand(loops.outer)),
      depth_(Expand(loops.depth)),
      alone_(Cut(kFloatTile, alone ? kAloneColumns : kFloatTile)),
      team_(CutForTeam(kFloatTile, alone ? kAloneColumns : kFloatTile,
                       alone ? kSmallestAloneFlops : kSmallestTileFlops)) {}

// Tiles of at most rows x columns.
GemmTiling GemmPlan::Cut(int64_t rows, int64_t columns) const {
  const auto count = [](int64_t size, int64_t tile) {
    return tile == 0 ? 0 : (size + tile - 1) / tile;
  };
  GemmTiling tiling{std::min(m_.size, rows), std::min(n_.size, columns), 0, 0};
  tiling.row_tiles = count(m_.size, tiling.rows);
  tiling.column_tiles = count(n_.size, tiling.columns);
  return tiling;
}

// Halves the longer side until there is work for several threads, as long as the tiles stay worth a
// call.
GemmTiling GemmPlan::CutForTeam(int64_t rows, int64_t columns, double smallest_flops) const {
  GemmTiling tiling = Cut(rows, columns);
  while (tiling.count() * static_cast<int64_t>(outer_.size()) < kWantedTiles) {
    const double flops = 2.0 * static_cast<double>(tiling.rows) *
                         static_cast<double>(tiling.columns) * static_cast<double>(k_.size);
    const int64_t longer = std::max(tiling.rows, tiling.columns);
    if (flops < 2 * smallest_flops || longer < 2 * kSmallestTile) break;
    tiling = tiling.rows >= tiling.columns ? Cut(HalfOf(tiling.rows), tiling.columns)
                                           : Cut(tiling.rows, HalfOf(tiling.columns));
  }
  return tiling;
}

// One product of few rows waits for memory; its elements share threads of their own.
bool GemmPlan::HasFewRows() const {
  return is_alone_ && outer_.size() == 1 && std::min(m_.size, n_.size) <= kFewRows;
}

GemmTile GemmPlan::TileAt(const GemmTiling& tiling, int64_t index) const {
  GemmTile tile;
  tile.row = index / tiling.column_tiles * tiling.rows;
  tile.column = index % tiling.column_tiles * tiling.columns;
  tile.rows = std::min(tiling.rows, m_.size - tile.row);
  tile.columns = std::min(tiling.columns, n_.size - tile.column);
  return tile;
}

// At the tensors' own offsets, not the tile's.
void GemmPlan::RunAloneTile(const GemmTile& tile, AloneOperand a, AloneOperand b, AloneResult c,
                            bool accumulate, const AloneTeam& team) const {
  const auto at = [](const void* data, int64_t element, bool half) {
    return static_cast<const std::byte*>(data) + element * (half ? 2 : 4);
  };
  const GemmSize size{tile.rows, tile.columns, k_.size};
  c = {const_cast<std::byte*>(at(c.data, tile.row * m_.c + tile.column * n_.c, c.half)), m_.c, n_.c,
       c.half};
  for (const GemmOffsets& from : depth_) {
    VecAloneProduct(size, {at(a.data, from.a + tile.row * m_.a, a.half), m_.a, k_.a, a.half},
                    {at(b.data, from.b + tile.column * n_.b, b.half), k_.b, n_.b, b.half}, c,
                    accumulate, team);
    accumulate = true;
  }
}

void GemmPlan::RunFewRows(const RunContext& context, AloneOperand a, AloneOperand b, AloneResult c,
                          bool accumulate) const {
  const GemmTile whole{0, m_.size, 0, n_.size};
  if (context.team == nullptr || m_.size * n_.size * k_.size < kSharedProducts) {
    return RunAloneTile(whole, a, b, c, accumulate, NoTeam());
  }
  const auto run = [&](int64_t count, FunctionRef<void(int64_t)> piece) {
    ParallelItems(context, count, piece);
  };
  RunAloneTile(whole, a, b, c, accumulate, {context.team->size(), run});
}

void GemmPlan::RunTile(const GemmTile& tile, const float* a, const float* b, float* c,
                       bool accumulate) const {
  if (is_alone_) return RunAloneTile(tile, {a}, {b}, {c}, accumulate, NoTeam());
  const GemmSize size{tile.rows, tile.columns, k_.size};
  for (const GemmOffsets& at : depth_) {
    cpu::Gemm(size, {a + at.a + tile.row * m_.a, m_.a, k_.a},
              {b + at.b + tile.column * n_.b, k_.b, n_.b},
              {c + tile.row * m_.c + tile.column * n_.c, m_.c, n_.c}, accumulate);
    accumulate = true;
  }
}

void GemmPlan::Run(const RunContext& context, const float* a, const float* b, float* c,
                   bool accumulate) const {
  if (HasFewRows()) {
    const GemmOffsets& at = outer_.front();
    return RunFewRows(context, {a + at.a}, {b + at.b}, {c + at.c}, accumulate);
  }
  const GemmTiling& tiling = context.team == nullptr ? alone_ : team_;
  const int64_t per_product = tiling.count();
  ParallelItems(context, static_cast<int64_t>(outer_.size()) * per_product, [&](int64_t item) {
    const GemmOffsets& at = outer_[static_cast<size_t>(item / per_product)];
    RunTile(TileAt(tiling, item % per_product), a + at.a, b + at.b, c + at.c, accumulate);
  });
}

size_t GemmPlan::KindOf(const GemmTile& tile, bool accumulate) const {
  return (tile.rows == half_tiling_.rows ? 0u : 1u) +
         (tile.columns == half_tiling_.columns ? 0u : 2u) + (accumulate ? 4u : 0u);
}

bool GemmPlan::PrepareHalf(ir::DType c, bool accumulate) {
  // A sum of several products would be rounded after each.
  if (c == ir::DType::kBF16 && depth_.size() > 1) return false;
  half_result_bytes_ = ir::DTypeBytes(c);
  half_accumulates_ = accumulate;
  if (is_alone_) return true;
  half_tiling_ = CutForTeam(kHalfTileRows, kHalfTileColumns, kSmallestHalfTileFlops);
  for (int64_t index = 0; index < half_tiling_.count(); ++index) {
    const GemmTile tile = TileAt(half_tiling_, index);
    for (const bool adds : {false, true}) {
      const bool wanted = adds ? accumulate || depth_.size() > 1 : !accumulate;
      std::optional<HalfGemm>& half = half_[KindOf(tile, adds)];
      if (half || !wanted) continue;
      half = HalfGemm::Make(
          {{tile.rows, tile.columns, k_.size}, {m_.a, k_.a}, {k_.b, n_.b}, {m_.c, n_.c}, c, adds});
      if (!half) return false;
    }
  }
  return true;
}

void GemmPlan::RunHalfTile(const GemmTile& tile, const uint16_t* a, const uint16_t* b,
                           std::byte* c) const {
  bool accumulate = half_accumulates_;
  if (is_alone_) {
    const bool half = half_result_bytes_ == 2;
    return RunAloneTile(tile, {a, 0, 1, true}, {b, 0, 1, true}, {c, 0, 1, half}, accumulate,
                        NoTeam());
  }
  for (const GemmOffsets& at : depth_) {
    const int64_t result = tile.row * m_.c + tile.column * n_.c;
    half_[KindOf(tile, accumulate)]->Run(a + at.a + tile.row * m_.a, b + at.b + tile.column * n_.b,
                                         c + result * half_result_bytes_);
    accumulate = true;
  }
}

void GemmPlan::RunHalf(const RunContext& context, const uint16_t* a, const uint16_t* b,
                       void* c) const {
  if (HasFewRows()) {
    const GemmOffsets& at = outer_.front();
    return RunFewRows(
        context, {a + at.a, 0, 1, true}, {b + at.b, 0, 1, true},
        {static_cast<std::byte*>(c) + at.c * half_result_bytes_, 0, 1, half_result_bytes_ == 2},
        half_accumulates_);
  }
  const GemmTiling& tiling = !is_alone_ ? half_tiling_ : context.team == nullptr ? alone_ : team_;
  const int64_t per_product = tiling.count();
  ParallelItems(context, static_cast<int64_t>(outer_.size()) * per_product, [&](int64_t item) {
    const GemmOffsets& at = outer_[static_cast<size_t>(item / per_product)];
    RunHalfTile(TileAt(tiling, item % per_product), a + at.a, b + at.b,
                static_cast<std::byte*>(c) + at.c * half_result_bytes_);
  });
}

bool GemmPlan::one_product() const {
  return outer_.size() == 1 && n_.c == 1 && (m_.size == 1 || m_.c == n_.size);
}

bool IsAlone(const ir::Attrs& attrs) { return attrs.Int("alone") != 0; }

Result<std::optional<GemmPlan>> PlanGemm(const ir::Attrs& attrs, const ir::Dims& a,
                                         const ir::Dims& b, const ir::Dims& c) {
  MW_ASSIGN_OR_RETURN(const EinsumLoops loops, ClassifyEinsum(attrs.Str("equation"), a, b, c));
  const std::optional<GemmLoops> gemm = ChooseGemm(MergeLoops(loops));
  if (!gemm || !(IsAlone(attrs) || Worthwhile(*gemm))) return std::optional<GemmPlan>();
  return std::optional<GemmPlan>(GemmPlan(*gemm, IsAlone(attrs)));
}

}  // namespace meshwright::ops::cpu
