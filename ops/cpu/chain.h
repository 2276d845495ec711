// Chain: the elementwise steps of a fused node, run over small spans so that what one step makes is
// still in the first-level cache when the next one reads it.
//
// All full values of a chain are [rows, width] in memory; a narrow value [width] repeats for every
// row; a column sum is a narrow result. The value that a producer (a matrix product, a norm's
// gradient) hands over is the accumulator. Steps compute in f32: bf16 values are widened as a span
// is read and rounded as it is written or cast; between other steps they are not rounded.
//
// Thread rule: immutable; spans that do not overlap may run at once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ops/cpu/formula.h"
#include "ops/dropout_mask.h"
#include "ops/global_runs.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops::cpu {

class Chain {
 public:
  // Elements of a span.
  static constexpr int64_t kSpan = 1024;
  // Rows whose column sums are added up in f32, before the sums of all such groups are in f64.
  static constexpr int64_t kSumRows = 64;

  // The node of the body that makes the accumulator (its result 0), and the width of its rows.
  struct Producer {
    int node = -1;  // none
    int64_t width = 0;
  };
  // The steps of `body` but the producer's. Nothing when a step has no vector loop here or values
  // do not fit the width.
  static Result<std::optional<Chain>> Make(const ir::Graph& body, const Producer& producer,
                                           const DeviceCoords& coords);

  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }
  bool has_column_sums() const { return !sums_.empty(); }
  // Floats of scratch that RunSpan uses.
  int64_t scratch_floats() const { return (temporaries_ + formula_temporaries_) * kSpan; }
  // Column sums of all groups of rows: floats of memory that RunSpan adds to and AddUp reads.
  int64_t sums_floats() const;
  // The result that is the accumulator, or one whose memory may hold it, since it is as large and
  // written after the accumulator's last use; -1: none.
  int accumulator_result() const { return accumulator_result_; }
  // Whether the accumulator is in memory as bf16, as that result is.
  bool half_accumulator() const { return half_accumulator_; }
  int64_t accumulator_bytes() const { return half_accumulator_ ? 2 : 4; }  // of an element

  struct Span {
    int64_t row = 0;
    int64_t column = 0;
    int64_t count = 0;  // <= kSpan, within the row
  };
  struct Memory {
    Inputs inputs;
    Outputs outputs;
    const void* accumulator = nullptr;  // at the span's first element
    float* scratch = nullptr;
    float* sums = nullptr;  // sums_floats()
  };
  void RunSpan(const RunContext& context, const Span& span, const Memory& memory) const;
  // Spans over [row, row + rows) x [column, column + columns); `accumulator` of the region's first
  // element, its rows `accumulator_stride` apart. Zeroes the sums of groups that start in it.
  void RunRegion(const RunContext& context, int64_t row, int64_t rows, int64_t column,
                 int64_t columns, Memory memory, int64_t accumulator_stride) const;
  // The column sums into their results.
  void AddUp(const float* sums, Outputs outputs) const;

 private:
  enum class Kind : uint8_t { kFull, kNarrow, kScalar, kResult, kTemporary, kAccumulator };
  struct Place {
    Kind kind = Kind::kTemporary;
    size_t index = 0;   // operand, result or temporary
    bool half = false;  // bf16 in memory: only casts read and write it
  };
  struct Dropout {
    DropoutMask mask;
    GlobalRuns runs;
  };
  struct Step {
    ir::Op op = ir::Op::kAdd;
    std::vector<Place> operands;
    Place result;
    size_t extra = 0;  // of formulas_, dropouts_ or sums_
  };

  class Maker;

  template <typename T>
  const T* At(const Place& place, const Span& span, const Memory& memory) const;
  const float* Read(const Place& place, const Span& span, const Memory& memory) const;
  void RunCast(const Step& step, const Span& span, const Memory& memory) const;
  void RunStep(const Step& step, const RunContext& context, const Span& span,
               const Memory& memory) const;
  void RunFormula(const Step& step, const Span& span, const Memory& memory) const;
  void RunDropout(const Dropout& dropout, const RunContext& context, int64_t flat, const float* x,
                  float* out, int64_t count) const;

  int64_t rows_ = 0;
  int64_t width_ = 0;
  int64_t temporaries_ = 0;
  int64_t formula_temporaries_ = 0;  // of the longest formula, behind the others
  int accumulator_result_ = -1;
  bool half_accumulator_ = false;
  size_t accumulator_copy_ = 0;  // temporary with the widened accumulator
  std::vector<Step> steps_;
  std::vector<FormulaLoop> formulas_;
  std::vector<Dropout> dropouts_;
  std::vector<size_t> sums_;  // results that are column sums
};

}  // namespace meshwright::ops::cpu
