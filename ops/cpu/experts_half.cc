// grouped_matmul and its gradient of bf16 operands, on products that are made for fixed sizes.
//
// How many rows a run has is known only when it runs: it is taken in pieces of 128, 64, 32 and 16
// rows, and what is left is filled up with zeros to 16.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "ops/cpu/expert_tiles.h"
#include "ops/cpu/half_gemm.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr std::array<int64_t, 4> kPieces = {128, 64, 32, 16};
constexpr int64_t kLeast = kPieces.back();

// A product for each size of pieces.
using PieceGemms = std::array<std::optional<HalfGemm>, kPieces.size()>;

// Of a sum over pieces: the first product, and those that are added to it.
struct SumGemms {
  PieceGemms first;
  PieceGemms others;
};

template <typename ShapeOf>
bool MakePieceGemms(const ShapeOf& shape_of, PieceGemms& gemms) {
  for (size_t i = 0; i < kPieces.size(); ++i) {
    gemms[i] = HalfGemm::Make(shape_of(kPieces[i]));
    if (!gemms[i]) return false;
  }
  return true;
}

// body(piece, begin, rows) for each piece; the last may have fewer rows than the least one.
template <typename Body>
void ForPieces(int64_t count, const Body& body) {
  int64_t begin = 0;
  for (size_t piece = 0; piece < kPieces.size(); ++piece) {
    for (; count - begin >= kPieces[piece]; begin += kPieces[piece]) {
      body(piece, begin, kPieces[piece]);
    }
  }
  if (begin < count) body(kPieces.size() - 1, begin, count - begin);
}

// Rows that are filled up with zeros; of the thread, as HalfGemm takes the scratch that others use.
std::vector<uint16_t>& PaddedRows(size_t which, int64_t count) {
  thread_local std::array<std::vector<uint16_t>, 2> rows;
  if (rows[which].size() < static_cast<size_t>(count)) {
    rows[which].resize(static_cast<size_t>(count));
  }
  return rows[which];
}

// `columns` of `count` rows at x, which are `width` apart, as kLeast rows as far apart.
const uint16_t* Padded(size_t which, const uint16_t* x, int64_t width, int64_t count,
                       int64_t columns) {
  uint16_t* to = PaddedRows(which, kLeast * width).data();
  for (int64_t row = 0; row < kLeast; ++row) {
    if (row < count) {
      std::copy_n(x + row * width, columns, to + row * width);
    } else {
      std::fill_n(to + row * width, columns, uint16_t{0});
    }
  }
  return to;
}

class HalfGroupedMatmul final : public Kernel {
 public:
  static KernelResult Make(const KernelSpec& spec) {
    auto kernel = std::make_unique<HalfGroupedMatmul>(ExpertProducts::Of(spec));
    const ExpertProducts& of = kernel->room_.of;
    const bool transposed = spec.attrs.Int("transposed") != 0;
    const auto shape = [&](int64_t rows) {
      const Strides weights = transposed ? Strides{1, of.d} : Strides{of.f, 1};
      return HalfGemmShape{{rows, of.f, of.d}, {of.d, 1}, weights, {of.f, 1}, ir::DType::kBF16};
    };
    if (!MakePieceGemms(shape, kernel->gemms_)) return std::unique_ptr<Kernel>();
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  explicit HalfGroupedMatmul(const ExpertProducts& products) : room_(products) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    MW_TRY(room_.Find(inputs[1].as<int32_t>()));
    room_.CutTiles();
    const auto* x = inputs[0].as<uint16_t>();
    const auto* w = inputs[2].as<uint16_t>();
    auto* out = outputs[0].as<uint16_t>();
    ParallelItems(context, static_cast<int64_t>(room_.tiles.size()),
                  [&](int64_t i) { RunTile(room_.tiles[static_cast<size_t>(i)], x, w, out); });
    return {};
  }

 private:
  void RunTile(const ExpertTile& tile, const uint16_t* x, const uint16_t* w, uint16_t* out) const {
    const ExpertProducts& of = room_.of;
    x += tile.first * of.d;
    out += tile.first * of.f;
    if (tile.expert < 0) {
      std::fill_n(out, tile.count * of.f, uint16_t{0});
      return;
    }
    w += tile.expert * of.d * of.f;
    ForPieces(tile.count, [&](size_t piece, int64_t begin, int64_t count) {
      const HalfGemm& gemm = *gemms_[piece];
      if (count == kPieces[piece]) {
        gemm.Run(x + begin * of.d, w, out + begin * of.f);
        return;
      }
      const uint16_t* rows = Padded(0, x + begin * of.d, of.d, count, of.d);
      uint16_t* products = PaddedRows(1, kLeast * of.f).data();
      gemm.Run(rows, w, products);
      std::copy_n(products, count * of.f, out + begin * of.f);
    });
  }

  ExpertRoom room_;
  PieceGemms gemms_;
};

class HalfGroupedMatmulGrad final : public Kernel {
 public:
  static KernelResult Make(const KernelSpec& spec) {
    if (spec.outputs[0].dtype != ir::DType::kF32) return std::unique_ptr<Kernel>();
    auto kernel = std::make_unique<HalfGroupedMatmulGrad>(ExpertProducts::Of(spec));
    const ExpertProducts& of = kernel->room_.of;
    for (const int64_t columns : {kExpertTileColumns, of.f % kExpertTileColumns}) {
      if (columns == 0 || columns > of.f) continue;
      SumGemms& gemms = columns == kExpertTileColumns ? kernel->whole_ : kernel->last_;
      for (const bool adds : {false, true}) {
        const auto shape = [&](int64_t rows) {
          return HalfGemmShape{{of.d, columns, rows}, {1, of.d}, {of.f, 1}, {of.f, 1},
                               ir::DType::kF32,       adds};
        };
        if (!MakePieceGemms(shape, adds ? gemms.others : gemms.first)) {
          return std::unique_ptr<Kernel>();
        }
      }
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  explicit HalfGroupedMatmulGrad(const ExpertProducts& products) : room_(products) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    MW_TRY(room_.Find(inputs[1].as<int32_t>()));
    const int64_t column_tiles = (room_.of.f + kExpertTileColumns - 1) / kExpertTileColumns;
    const float* old = inputs.size() > 3 ? inputs[3].as<float>() : nullptr;
    float* dw = outputs[0].as<float>();
    ParallelItems(context, room_.of.experts * column_tiles, [&](int64_t item) {
      const int64_t begin = item % column_tiles * kExpertTileColumns;
      RunColumns(item / column_tiles, begin, inputs[0].as<uint16_t>(), inputs[2].as<uint16_t>(),
                 old, dw);
    });
    return {};
  }

 private:
  // Columns of an expert's matrix from `begin` on: `old`, if any, and the products of its runs.
  void RunColumns(int64_t expert, int64_t begin, const uint16_t* x, const uint16_t* dy,
                  const float* old, float* dw) const {
    const ExpertProducts& of = room_.of;
    const int64_t columns = std::min(kExpertTileColumns, of.f - begin);
    const SumGemms& gemms = columns == kExpertTileColumns ? whole_ : last_;
    const int64_t place = expert * of.d * of.f + begin;
    for (int64_t i = 0; i < of.d && old != nullptr && old != dw; ++i) {
      std::copy_n(old + place + i * of.f, columns, dw + place + i * of.f);
    }
    bool adds = old != nullptr;
    for (int64_t row = 0; row < of.rows; ++row) {
      const ExpertRun& run = room_.runs[static_cast<size_t>(expert * of.rows + row)];
      const uint16_t* from = x + run.first * of.d;
      const uint16_t* by = dy + run.first * of.f + begin;
      ForPieces(run.count, [&](size_t piece, int64_t at, int64_t count) {
        const HalfGemm& gemm = *(adds ? gemms.others : gemms.first)[piece];
        adds = true;
        if (count == kPieces[piece]) {
          gemm.Run(from + at * of.d, by + at * of.f, dw + place);
        } else {
          const uint16_t* a = Padded(0, from + at * of.d, of.d, count, of.d);
          const uint16_t* b = Padded(1, by + at * of.f, of.f, count, columns);
          gemm.Run(a, b, dw + place);
        }
      });
    }
    // An expert that nobody has chosen.
    for (int64_t i = 0; !adds && i < of.d; ++i) std::fill_n(dw + place + i * of.f, columns, 0.0f);
  }

  ExpertRoom room_;
  SumGemms whole_;  // of kExpertTileColumns columns
  SumGemms last_;   // of those that are left
};

}  // namespace

KernelResult MakeHalfGroupedMatmul(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> on_tiles, MakeAmxGroupedMatmul(spec));
  if (on_tiles) return on_tiles;
  return spec.op == ir::Op::kGroupedMatmul ? HalfGroupedMatmul::Make(spec)
                                           : HalfGroupedMatmulGrad::Make(spec);
}

}  // namespace meshwright::ops::cpu
