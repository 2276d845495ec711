// The table of op cases. One row drives every conformance test of ops/: reference against cpu,
// gradients against finite differences, one thread against three, in place against out of place.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace meshwright::ops {

enum class ArgKind : uint8_t {
  kNormal,    // standard normal
  kPositive,  // 0.5 .. 1.5
  kIds,       // i32: 0 .. below-1, and now and then `ignored` when it is set
  kBool,
};

struct Arg {
  ir::Dims dims;
  ArgKind kind = ArgKind::kNormal;
  int64_t below = 0;
  int64_t ignored = INT64_MIN;
};

struct OpCase {
  std::string name;
  ir::Op op = ir::Op::kAdd;
  ir::Attrs attrs;
  std::vector<Arg> args;
  std::vector<ir::Dims> declared;  // result shapes, for ops that need them
  bool has_gradient = true;
  double f32_tolerance = 3e-6;         // relative to the largest element
  size_t compared_results = SIZE_MAX;  // the first ones; what is in later ones means nothing
  // Relative to the largest element: the roundings of the results and, for a fused row, of its
  // steps.
  double bf16_tolerance = 1e-2;
  // What differs when the row runs in bf16: attributes that replace or join `attrs`, and the
  // operands' types. No types: as few f32 ones as the op accepts, integers as they are.
  ir::Attrs half_attrs = {};
  std::vector<ir::DType> half_types = {};
  // Floating operands that no gradient goes to.
  int64_t without_gradient = 0;
};

inline std::ostream& operator<<(std::ostream& out, const OpCase& op_case) {
  return out << op_case.name;
}

const std::vector<OpCase>& AllCases();
// Those of them in formula_cases.cc.
std::vector<OpCase> FormulaCases();
// Those of them in paged_cases.cc.
std::vector<OpCase> PagedCases();
// Those of them whose bf16 form mixes bf16 and f32.
std::vector<OpCase> MixedCases();

// Whether the CPU backend runs the row of a fused node in one pass.
bool RunsInOnePass(const OpCase& fused);
// The same for the bf16 form of one of MixedCases().
bool RunsInOnePassMixed(const OpCase& fused);

}  // namespace meshwright::ops
