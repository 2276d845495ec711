// ChainPlan: elementwise steps and column sums as one generated kernel computes them: what it
// reads, the steps, what it writes.
//
// Every value of a chain is a function of the flat index i of the chain's elements; a value with
// fewer elements than the chain repeats: its period is their number. Values with the chain's number
// are full. Steps compute in f32, or in f64 where there are integers, which f32 does not hold; a
// value is rounded where it is cast to or stored as a 16-bit type, and steps read a stored value
// unrounded, as on CPUs (compile/compile.h). A column sum adds up the rows of a full value.
//
// Numbers of values are those of the body (ir/fused.h). Thread rule: immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/dropout_mask.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops::cuda {

// Where a local element lies in the global tensor, as sums: element i, written in the mixed radix
// of the loops' sizes, is offset(microbatch) + sum of digit * stride. Equal to what GlobalRuns
// says.
class GlobalIndex {
 public:
  struct Loop {
    int64_t size = 1;
    int64_t stride = 1;
  };

  explicit GlobalIndex(const ShardBlock& block);

  const std::vector<Loop>& loops() const { return loops_; }  // major first, one at least
  int64_t offset(int32_t microbatch) const { return base_ + micro_ * microbatch; }
  // Whether elements i .. i+count-1 are neighbours for every i that `count` divides, and the first
  // one's index a multiple of four: one block of random bits is then for four elements.
  bool Aligned(int64_t count) const;

 private:
  std::vector<Loop> loops_;
  int64_t base_ = 0;
  int64_t micro_ = 0;
};

struct ChainPlan {
  static constexpr int kAccumulator = -1;
  // Elements and threads above which an index has 64 bits.
  static constexpr int64_t kWideElements = int64_t{1} << 30;

  struct Operand {
    int value = 0;
    int input = 0;  // of the node; kAccumulator: the producer's result 0
    ir::DType dtype = ir::DType::kF32;
    int64_t period = 0;
  };
  struct Step {
    ir::Op op = ir::Op::kAdd;
    std::vector<int> operands;
    int value = 0;
    ir::DType dtype = ir::DType::kF32;
    ir::Attrs attrs;
    int dropout = 0;  // of dropouts

    // Whether it has a constant of its own, as scale and shift do, and which.
    bool has_constant() const { return op == ir::Op::kScale || op == ir::Op::kShift; }
    float constant() const;
  };
  struct Result {
    int value = 0;
    int output = 0;
    ir::DType dtype = ir::DType::kF32;
  };
  struct Dropout {
    DropoutMask mask;
    GlobalIndex index;
  };

  int64_t elements = 0;
  int64_t width = 0;  // columns; 0: there are no sums
  int lanes = 1;      // neighbouring elements that a thread computes at once
  std::vector<Operand> operands;
  std::vector<Step> steps;
  std::vector<Result> results;
  std::vector<Result> sums;
  std::vector<Dropout> dropouts;

  int64_t rows() const { return width == 0 ? 1 : elements / width; }
  // Rows that a thread of a chain with sums reads before it computes: 64 bytes or more on their
  // way, and few enough registers for four blocks of a multiprocessor.
  int rows_at_once() const;
  // Rows that one thread adds up; a function of the shape alone, so that sums are.
  int64_t group_rows() const;
  int64_t groups() const { return (rows() + group_rows() - 1) / group_rows(); }
  bool in_f64() const;
  bool wide_index() const { return elements > kWideElements; }
  // Result that can hold the accumulator while the kernel runs: it is the accumulator, or has its
  // size. -1: none.
  int accumulator_result() const;
};

// Of the body's nodes but `producer` (-1: none). Nothing when a step is no elementwise op or column
// sum, or a type is none of f32, bf16, f16, i32 and bool.
// Errors: kInvalidArgument: a dropout's block does not fit its tensor.
Result<std::optional<ChainPlan>> PlanChain(const ir::Graph& body, int producer,
                                           const DeviceCoords& coords);

}  // namespace meshwright::ops::cuda
