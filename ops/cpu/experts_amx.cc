// grouped_matmul and its gradient of bf16 operands on matrix tiles (ops/cpu/amx_tile.h).
//
// An item of work is an expert and some columns of its matrix: its weights are packed for the rows
// of all of its runs, or its gradient is summed up over all of them. Tiles are so fast that
// an expert of 64 rows takes as long as its weights take to come.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "ops/cpu/amx_tile.h"
#include "ops/cpu/expert_tiles.h"
#include "ops/cpu/scratch.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kColumns = 256;  // of an item
constexpr int64_t kDepth = 512;    // packed at a time: 256 KiB with kColumns
constexpr int64_t kBlocks = 16;    // of kAmxSide rows that share what is packed
constexpr int64_t kSquare = kAmxSide * kAmxSide;

int64_t Pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }
int64_t Padded(int64_t depth) { return Pieces(depth, kAmxSide) * kAmxSide; }

// An expert and columns [begin, begin + count) of its matrix.
struct AmxItem {
  AmxItem(const ExpertProducts& of, int64_t item)
      : expert(item / Pieces(of.f, kColumns)),
        begin(item % Pieces(of.f, kColumns) * kColumns),
        count(std::min(kColumns, of.f - begin)) {}
  int64_t panels() const { return Pieces(count, kAmxSide); }
  int64_t width(int64_t panel) const { return std::min(kAmxSide, count - panel * kAmxSide); }

  int64_t expert;
  int64_t begin;
  int64_t count;
};

// Up to kAmxSide rows of one run.
struct RowBlock {
  int64_t first = 0;
  int64_t count = 0;
};

class AmxGroupedMatmul final : public Kernel {
 public:
  explicit AmxGroupedMatmul(const KernelSpec& spec)
      : room_(ExpertProducts::Of(spec)), transposed_(spec.attrs.Int("transposed") != 0) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    const ExpertProducts& of = room_.of;
    MW_TRY(room_.Find(inputs[1].as<int32_t>()));
    room_.CutTiles();
    auto* out = outputs[0].as<uint16_t>();
    ParallelItems(context, static_cast<int64_t>(room_.tiles.size()), [&](int64_t i) {
      const ExpertTile& tile = room_.tiles[static_cast<size_t>(i)];
      if (tile.expert < 0) std::fill_n(out + tile.first * of.f, tile.count * of.f, uint16_t{0});
    });
    const Operands operands{inputs[0].as<uint16_t>(), inputs[2].as<uint16_t>(), out};
    ParallelItems(context, of.experts * Pieces(of.f, kColumns),
                  [&](int64_t i) { RunItem(AmxItem(of, i), operands); });
    return {};
  }

 private:
  struct Operands {
    const uint16_t* x;
    const uint16_t* w;
    uint16_t* out;
  };
  // Of a thread: what stands on the right, sums, and rows that are copied to be filled up.
  struct Scratch {
    explicit Scratch(int64_t depth) {
      const int64_t sums_count = depth > kDepth ? kBlocks * kColumns * kAmxSide : kSquare;
      constexpr int64_t kRight = kDepth * kColumns / 2;
      float* memory = ThreadScratch(kRight + sums_count + kBlocks * kAmxSide * kDepth / 2);
      right = reinterpret_cast<uint32_t*>(memory);
      sums = memory + kRight;
      rows = reinterpret_cast<uint16_t*>(sums + sums_count);
    }
    uint32_t* right;
    float* sums;
    uint16_t* rows;
  };

  // Of the thread, until its next call: steps do not allocate.
  const std::vector<RowBlock>& BlocksOf(int64_t expert) const {
    thread_local std::vector<RowBlock> blocks;
    blocks.clear();
    for (int64_t row = 0; row < room_.of.rows; ++row) {
      const ExpertRun& run = room_.runs[static_cast<size_t>(expert * room_.of.rows + row)];
      for (int64_t at = 0; at < run.count; at += kAmxSide) {
        blocks.push_back({run.first + at, std::min(kAmxSide, run.count - at)});
      }
    }
    return blocks;
  }

  void PackWeights(const AmxItem& item, int64_t depth, const uint16_t* w, uint32_t* out) const {
    const ExpertProducts& of = room_.of;
    const int64_t rows = std::min(kDepth, of.d - depth);
    w += item.expert * of.d * of.f;
    const uint16_t* list[kDepth] = {};
    const int64_t listed = transposed_ ? item.count : rows;
    for (int64_t i = 0; i < listed; ++i) {
      list[i] = transposed_ ? w + (item.begin + i) * of.d + depth : w + (depth + i) * of.f;
    }
    if (transposed_) {
      PackAmxRightTransposed({list, static_cast<size_t>(listed)}, rows, out);
    } else {
      PackAmxRight({list, static_cast<size_t>(Padded(rows))}, item.begin, item.count, out);
    }
  }

  // Tiles read 32 rows of whole blocks. Rows of others are harmless, as they show in their own sums
  // only; but not what lies behind the tensor, nor, where the depth ends within a block, what lies
  // behind a row.
  AmxLeft LeftOf(const RowBlock& block, int64_t depth, const uint16_t* x, uint16_t* copy) const {
    const ExpertProducts& of = room_.of;
    const int64_t columns = std::min(kDepth, of.d - depth);
    const uint16_t* from = x + block.first * of.d + depth;
    if (of.d % kAmxSide == 0 && block.first + kAmxSide <= of.slots()) {
      return AmxLeft::OfRows(from, of.d);
    }
    const int64_t stride = Padded(columns);
    std::fill_n(copy, kAmxSide * stride, uint16_t{0});
    for (int64_t i = 0; i < block.count; ++i) {
      std::copy_n(from + i * of.d, columns, copy + i * stride);
    }
    return AmxLeft::OfRows(copy, stride);
  }

  void RunItem(const AmxItem& item, const Operands& operands) const {
    const AmxTiles tiles;
    const Scratch scratch(room_.of.d);
    const std::vector<RowBlock>& all = BlocksOf(item.expert);
    for (size_t at = 0; at < all.size(); at += kBlocks) {
      const std::span<const RowBlock> blocks =
          std::span(all).subspan(at, std::min<size_t>(kBlocks, all.size() - at));
      for (int64_t depth = 0; depth < room_.of.d; depth += kDepth) {
        // Where one packing holds the whole depth it serves all rows.
        if (at == 0 || room_.of.d > kDepth) PackWeights(item, depth, operands.w, scratch.right);
        RunSquares(item, blocks, depth, operands, scratch);
      }
    }
  }

  // The products of some blocks with what is packed, and the result behind the last of the depth.
  void RunSquares(const AmxItem& item, std::span<const RowBlock> blocks, int64_t depth,
                  const Operands& operands, const Scratch& scratch) const {
    const ExpertProducts& of = room_.of;
    const int64_t depth_blocks = Pieces(std::min(kDepth, of.d - depth), kAmxSide);
    const bool last = depth + kDepth >= of.d;
    const bool keeps = of.d > kDepth;  // sums of all squares
    const auto count = static_cast<int64_t>(blocks.size());
    for (int64_t b = 0; b < count; ++b) {
      const RowBlock& block = blocks[static_cast<size_t>(b)];
      const AmxLeft left = LeftOf(block, depth, operands.x, scratch.rows + b * kAmxSide * kDepth);
      for (int64_t panel = 0; panel < item.panels(); ++panel) {
        float* sums = scratch.sums + (keeps ? (b * kColumns / kAmxSide + panel) * kSquare : 0);
        AmxSquare(left, scratch.right + panel * depth_blocks * kAmxBlockWords, depth_blocks,
                  {depth == 0 ? nullptr : sums, sums});
        if (!last) continue;
        const int64_t column = item.begin + panel * kAmxSide;
        AmxNarrow(sums, block.count, item.width(panel), operands.out + block.first * of.f + column,
                  of.f);
      }
    }
  }

  ExpertRoom room_;
  const bool transposed_;
};

class AmxGroupedMatmulGrad final : public Kernel {
 public:
  explicit AmxGroupedMatmulGrad(const KernelSpec& spec) : room_(ExpertProducts::Of(spec)) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    MW_TRY(room_.Find(inputs[1].as<int32_t>()));
    const Operands operands{inputs[0].as<uint16_t>(), inputs[2].as<uint16_t>(),
                            inputs.size() > 3 ? inputs[3].as<float>() : nullptr,
                            outputs[0].as<float>()};
    ParallelItems(context, room_.of.experts * Pieces(room_.of.f, kColumns),
                  [&](int64_t i) { RunItem(AmxItem(room_.of, i), operands); });
    return {};
  }

 private:
  struct Operands {
    const uint16_t* x;
    const uint16_t* dy;
    const float* old;  // null: none
    float* dw;
  };
  struct Scratch {
    Scratch() {
      constexpr int64_t kRight = kDepth * kColumns / 2;
      constexpr int64_t kLeft = kDepth * kAmxSide / 2;
      float* memory = ThreadScratch(kRight + kLeft + kSquare);
      right = reinterpret_cast<uint32_t*>(memory);
      left = reinterpret_cast<uint32_t*>(memory + kRight);
      sums = memory + kRight + kLeft;
    }
    uint32_t* right;
    uint32_t* left;
    float* sums;
  };

  // Rows of one expert: all that its runs have of x (0) or dy (1), filled up with rows of zeros. Of
  // the thread, until its next call for the same.
  const std::vector<const uint16_t*>& RowsOf(int64_t expert, size_t which, const uint16_t* data,
                                             int64_t width) const {
    thread_local std::array<std::vector<const uint16_t*>, 2> kept;
    std::vector<const uint16_t*>& rows = kept[which];
    rows.clear();
    for (int64_t row = 0; row < room_.of.rows; ++row) {
      const ExpertRun& run = room_.runs[static_cast<size_t>(expert * room_.of.rows + row)];
      for (int64_t i = 0; i < run.count; ++i) rows.push_back(data + (run.first + i) * width);
    }
    rows.resize(static_cast<size_t>(Padded(static_cast<int64_t>(rows.size()))), nullptr);
    return rows;
  }

  void RunItem(const AmxItem& item, const Operands& operands) const {
    const ExpertProducts& of = room_.of;
    const int64_t place = item.expert * of.d * of.f + item.begin;
    const float* from = operands.old == nullptr ? nullptr : operands.old + place;
    float* dw = operands.dw + place;
    const AmxTiles tiles;
    const std::vector<const uint16_t*>& x = RowsOf(item.expert, 0, operands.x, of.d);
    const std::vector<const uint16_t*>& dy = RowsOf(item.expert, 1, operands.dy, of.f);
    const Scratch scratch;
    for (size_t at = 0; at < x.size(); at += kDepth) {
      const size_t depth = std::min<size_t>(kDepth, x.size() - at);
      PackAmxRight({dy.data() + at, depth}, item.begin, item.count, scratch.right);
      RunSquares(item, {x.data() + at, depth}, from, dw, scratch);
      from = dw;
    }
    // An expert that nobody has chosen.
    for (int64_t i = 0; x.empty() && i < of.d && from != dw; ++i) {
      if (from == nullptr) {
        std::fill_n(dw + i * of.f, item.count, 0.0f);
      } else {
        std::copy_n(from + i * of.f, item.count, dw + i * of.f);
      }
    }
  }

  // dw = from + x^T times what is packed.
  void RunSquares(const AmxItem& item, HalfRowList x, const float* from, float* dw,
                  const Scratch& scratch) const {
    const ExpertProducts& of = room_.of;
    const int64_t depth_blocks = static_cast<int64_t>(x.size()) / kAmxSide;
    for (int64_t i = 0; i < of.d; i += kAmxSide) {
      const int64_t rows = std::min(kAmxSide, of.d - i);
      PackAmxLeft(x, i, rows, scratch.left);
      for (int64_t panel = 0; panel < item.panels(); ++panel) {
        const int64_t at = i * of.f + panel * kAmxSide;
        const uint32_t* right = scratch.right + panel * depth_blocks * kAmxBlockWords;
        const AmxLeft left = AmxLeft::OfPacked(scratch.left);
        const float* old = from == nullptr ? nullptr : from + at;
        if (rows == kAmxSide && item.width(panel) == kAmxSide) {
          AmxSquare(left, right, depth_blocks, {old, dw + at, of.f});
        } else {
          AmxSquare(left, right, depth_blocks, {nullptr, scratch.sums});
          PutPart(scratch.sums, rows, item.width(panel), old, dw + at);
        }
      }
    }
  }

  // The part of a square that the matrix has.
  void PutPart(const float* sums, int64_t rows, int64_t columns, const float* old,
               float* dw) const {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const float before = old == nullptr ? 0.0f : old[i * room_.of.f + j];
        dw[i * room_.of.f + j] = before + sums[i * kAmxSide + j];
      }
    }
  }

  ExpertRoom room_;
};

}  // namespace

KernelResult MakeAmxGroupedMatmul(const KernelSpec& spec) {
  if (!HasAmxTiles()) return std::unique_ptr<Kernel>();
  if (spec.op == ir::Op::kGroupedMatmul) return std::make_unique<AmxGroupedMatmul>(spec);
  if (spec.outputs[0].dtype != ir::DType::kF32) return std::unique_ptr<Kernel>();
  return std::make_unique<AmxGroupedMatmulGrad>(spec);
}

}  // namespace meshwright::ops::cpu
