// FormulaLoop: the steps of an elementwise op's formula as vector loops over a span of f32 values.
//
// A span is short, so that what one step makes is still in the first-level cache when the next one
// reads it. Thread rule: immutable; spans that do not overlap may run at once.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/formula.h"
#include "ir/graph.h"

namespace meshwright::ops::cpu {

class FormulaLoop {
 public:
  // Elements of a span when a formula has several steps.
  static constexpr int64_t kSpan = 1024;

  // REQUIRES an op that has a formula of float ops.
  FormulaLoop(ir::Op op, const ir::Attrs& attrs);

  // Spans between the steps: so many times kSpan floats of scratch.
  int64_t temporaries() const { return temporaries_; }
  bool has_one_step() const { return steps_.size() == 1; }
  // x[k]: operand k at the span's first element; of mul_scalar operand 1 is one element. `out` may
  // be an operand. REQUIRES count <= kSpan when there are temporaries.
  void Run(const float* const* x, float* out, int64_t count, float* scratch) const;

 private:
  struct Step {
    ir::Op op = ir::Op::kAdd;
    int operands[2] = {0, 0};  // operand k, or 'operands_ + temporary'
    float value = 0;
  };

  const float* At(int value, const float* const* x, float* scratch) const;

  std::vector<Step> steps_;
  int operands_ = 0;
  int temporaries_ = 0;
  bool second_is_scalar_ = false;
};

}  // namespace meshwright::ops::cpu
