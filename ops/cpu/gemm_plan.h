// GemmPlan: all matrix products of one einsum, cut into tiles that the team takes.
//
// The sizes of the tiles depend on the shape, and in f32 on whether there is a team. Thread rule:
// immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/cpu/half_gemm.h"
#include "ops/cpu/vec_alone.h"
#include "ops/einsum_plan.h"
#include "ops/kernel.h"

namespace meshwright::ops::cpu {

inline constexpr int64_t kSmallestGemm = 256;  // multiply-adds; below, plain loops are faster

// Where the operands of one product begin, in elements.
struct GemmOffsets {
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
};

struct GemmTile {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
};

// How a product is cut: the largest tile, and how many there are.
struct GemmTiling {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_tiles = 0;
  int64_t column_tiles = 0;

  int64_t count() const { return row_tiles * column_tiles; }
};

class GemmPlan {
 public:
  // alone: by VecAloneProduct, whatever the element types.
  explicit GemmPlan(const GemmLoops& loops, bool alone = false);

  // c = the product, plus c's old content when `accumulate`.
  void Run(const RunContext& context, const float* a, const float* b, float* c,
           bool accumulate = false) const;

  // For operands in bf16 and a result in `c`, to which it is added when `accumulate`; false when
  // this processor has no such product. Products of elements that are alone need none.
  bool PrepareHalf(ir::DType c, bool accumulate = false);
  // REQUIRES a successful PrepareHalf().
  void RunHalf(const RunContext& context, const uint16_t* a, const uint16_t* b, void* c) const;

  // Whether c is one row-major matrix [rows, columns].
  bool one_product() const;
  int64_t rows() const { return m_.size; }
  int64_t columns() const { return n_.size; }

 private:
  GemmTiling Cut(int64_t rows, int64_t columns) const;
  GemmTiling CutForTeam(int64_t rows, int64_t columns, double smallest_flops) const;
  bool HasFewRows() const;
  GemmTile TileAt(const GemmTiling& tiling, int64_t index) const;
  void RunTile(const GemmTile& tile, const float* a, const float* b, float* c,
               bool accumulate) const;
  void RunAloneTile(const GemmTile& tile, AloneOperand a, AloneOperand b, AloneResult c,
                    bool accumulate, const AloneTeam& team) const;
  void RunFewRows(const RunContext& context, AloneOperand a, AloneOperand b, AloneResult c,
                  bool accumulate) const;
  void RunHalfTile(const GemmTile& tile, const uint16_t* a, const uint16_t* b, std::byte* c) const;
  // Of half_; tiles of the last row or column of tiles have sizes of their own.
  size_t KindOf(const GemmTile& tile, bool accumulate) const;

  bool is_alone_ = false;
  EinsumLoop m_;
  EinsumLoop n_;
  EinsumLoop k_;
  std::vector<GemmOffsets> outer_;
  std::vector<GemmOffsets> depth_;
  GemmTiling alone_;                             // f32, one thread
  GemmTiling team_;                              // f32
  GemmTiling half_tiling_;                       // bf16, but for products whose elements are alone
  std::array<std::optional<HalfGemm>, 8> half_;  // by KindOf
  int64_t half_result_bytes_ = 0;
  bool half_accumulates_ = false;
};

// The product that computes the einsum, without copies of its operands; nothing when no BLAS call
// can read them or when plain loops are faster, which have no say where elements are alone.
// attrs: of the einsum. Errors: kInvalidArgument: an equation that does not fit its operands.
Result<std::optional<GemmPlan>> PlanGemm(const ir::Attrs& attrs, const ir::Dims& a,
                                         const ir::Dims& b, const ir::Dims& c);
bool IsAlone(const ir::Attrs& attrs);

}  // namespace meshwright::ops::cpu
