// Rows whose bf16 form mixes bf16 and f32, as mixed precision makes them: results of another type
// than the operands, and fused bodies with casts. In f64 and f32 they have no types to mix.
#include "ir/fused.h"
#include "tests/conformance/ops/ops_cases.h"

namespace meshwright::ops {
namespace {

using ir::Attrs;
using ir::DType;
using ir::FusedStep;
using ir::Op;

constexpr DType kHalf = DType::kBF16;
constexpr DType kFull = DType::kF32;

// One rounding to bf16 with its 8 bits, relative to the value.
constexpr double kOneRounding = 4e-3;
// Nothing was rounded to bf16 on the way.
constexpr double kNotRounded = 1e-5;

OpCase Row(std::string name, Op op, Attrs attrs, std::vector<Arg> args) {
  OpCase row;
  row.name = std::move(name);
  row.op = op;
  row.attrs = std::move(attrs);
  row.args = std::move(args);
  row.has_gradient = false;
  row.f32_tolerance = 5e-6;
  return row;
}

// bf16 operands, an f32 result.
OpCase Widening(OpCase row) {
  row.name += "_to_f32";
  row.half_attrs = {{"dtype", "f32"}};
  row.bf16_tolerance = kNotRounded;
  return row;
}

// f32 operands, a bf16 result.
OpCase Narrowing(OpCase row) {
  row.name += "_to_bf16";
  row.half_attrs = {{"dtype", "bf16"}};
  row.half_types.assign(row.args.size(), kFull);
  row.bf16_tolerance = kOneRounding;
  return row;
}

void AddMixedEinsum(std::vector<OpCase>& cases) {
  struct Shape {
    const char* equation;
    ir::Dims a, b, c;
  };
  const std::vector<Shape> shapes = {
      {"bsk,kn->bsn", {2, 5, 7}, {7, 11}, {2, 5, 11}},
      {"mk,kn->mn", {1, 96}, {96, 50}, {1, 50}},
      {"mk,kn->mn", {50, 96}, {96, 1}, {50, 1}},
      {"mk,nk->mn", {1, 96}, {50, 96}, {1, 50}},
      {"mk,kn->mn", {40, 1}, {1, 50}, {40, 50}},
      {"bsd,d->bs", {2, 5, 70}, {70}, {2, 5}},
      {"bsk,bsn->kn", {2, 25, 17}, {2, 25, 31}, {17, 31}},
      {"mk,nk->nm", {17, 9}, {13, 9}, {13, 17}},
      {"bqhe,bkhe->bhqk", {2, 9, 3, 8}, {2, 10, 3, 8}, {2, 3, 9, 10}},
      {"kamb,bkn->nabm", {12, 3, 5, 7}, {7, 12, 14}, {14, 3, 7, 5}},
      {"a,b->ab", {6}, {7}, {6, 7}},
      {"a,a->", {300}, {300}, {}},
      {"bsk,kn->bsn", {2, 100, 130}, {130, 200}, {2, 100, 200}},
      {"bsk,bsn->kn", {2, 65, 130}, {2, 65, 200}, {130, 200}},
  };
  int index = 0;
  for (const Shape& shape : shapes) {
    const std::string at = std::to_string(index++);
    const Attrs attrs = {{"equation", shape.equation}};
    const OpCase row = Row("einsum_mixed_" + at, Op::kEinsum, attrs, {{shape.a}, {shape.b}});
    cases.push_back(Widening(row));
    cases.push_back(Narrowing(row));
    const OpCase accumulates = Row("einsum_mixed_accumulator_" + at, Op::kEinsum, attrs,
                                   {{shape.a}, {shape.b}, {shape.c}});
    cases.push_back(Widening(accumulates));
    cases.back().half_types = {kHalf, kHalf, kFull};
    cases.push_back(Narrowing(accumulates));
    cases.back().half_types = {kFull, kFull, kHalf};
  }
}

void AddMixedSums(std::vector<OpCase>& cases) {
  const std::vector<std::vector<int64_t>> reductions = {{0},    {1},    {2},      {0, 1},
                                                        {1, 2}, {0, 2}, {0, 1, 2}};
  for (const auto& dims : reductions) {
    std::string at;
    for (int64_t dim : dims) at += std::to_string(dim);
    for (const ir::Dims& shape : {ir::Dims{4, 5, 7}, ir::Dims{17, 19, 131}}) {
      const OpCase row = Row("reduce_sum_mixed_" + at + "_of_" + std::to_string(shape[0]),
                             Op::kReduceSum, {{"dims", dims}}, {{shape}});
      cases.push_back(Widening(row));
      cases.push_back(Narrowing(row));
    }
  }
}

void AddMixedNorms(std::vector<OpCase>& cases) {
  for (const ir::Dims& dims : {ir::Dims{1, 5}, ir::Dims{2, 3, 16}, ir::Dims{2, 50, 129}}) {
    const std::string at = std::to_string(dims.back());
    const ir::Dims d = {dims.back()};
    const Attrs eps = {{"eps", 1e-5}};
    const OpCase layer = Row("layer_norm_mixed_" + at, Op::kLayerNorm, eps, {{dims}, {d}, {d}});
    const OpCase rms = Row("rms_norm_mixed_" + at, Op::kRmsNorm, eps, {{dims}, {d}});
    for (const OpCase& row : {layer, rms}) {
      cases.push_back(Widening(row));
      cases.push_back(Narrowing(row));
    }
  }
}

struct MixedFused {
  // Has _by_steps in it where no one-pass kernel takes the bf16 form, and _by_steps_in_bf16 where
  // one takes the f32 form.
  std::string name;
  std::vector<Arg> args;
  std::vector<DType> types;
  std::vector<FusedStep> steps;
  std::vector<int> results;
  double tolerance = 1e-2;
};

// Steps over values of one type: an identity for each cast, and no wishes for types.
std::vector<FusedStep> WithoutTypes(const std::vector<FusedStep>& steps) {
  std::vector<FusedStep> plain;
  for (const FusedStep& step : steps) {
    FusedStep one{step.op, step.operands, {}};
    for (const auto& [name, value] : step.attrs.values()) {
      if (name != "dtype") one.attrs.Set(name, value);
    }
    if (step.op == Op::kCast) one = {Op::kScale, step.operands, {{"factor", 1.0}}};
    plain.push_back(std::move(one));
  }
  return plain;
}

const Attrs kToHalf = {{"dtype", "bf16"}};
const Attrs kToFull = {{"dtype", "f32"}};
const Attrs kRowSums = {{"dims", std::vector<int64_t>{0, 1}}};
const Attrs kRowSumsFull = {{"dims", std::vector<int64_t>{0, 1}}, {"dtype", "f32"}};
const Attrs kProduct = {{"equation", "bsd,df->bsf"}};
const Attrs kProductFull = {{"equation", "bsd,df->bsf"}, {"dtype", "f32"}};
const Attrs kProductHalf = {{"equation", "bsd,df->bsf"}, {"dtype", "bf16"}};
const ir::Dims kX = {3, 43, 20}, kW = {20, 37}, kY = {3, 43, 37}, kBias = {37}, kRow = {3, 43};

std::vector<MixedFused> MixedProducts() {
  const Attrs dropout = {{"rate", 0.3}, {"name", "mask"}};
  return {
      {"product_bias_residual",
       {{kX}, {kW}, {kBias}, {kY}},
       {kHalf, kHalf, kHalf, kFull},
       {{Op::kEinsum, {0, 1}, kProduct},
        {Op::kAdd, {4, 2}, {}},
        {Op::kCast, {5}, kToFull},
        {Op::kAdd, {3, 6}, {}}},
       {7}},
      {"product_bias_dropout_residual",
       {{kX}, {kW}, {kBias}, {kY}},
       {kHalf, kHalf, kHalf, kFull},
       {{Op::kEinsum, {0, 1}, kProduct},
        {Op::kAdd, {4, 2}, {}},
        {Op::kDropout, {5}, dropout},
        {Op::kCast, {6}, kToFull},
        {Op::kAdd, {3, 7}, {}}},
       {8}},
      {"product_in_f32_residual",
       {{kX}, {kW}, {kY}},
       {kHalf, kHalf, kFull},
       {{Op::kEinsum, {0, 1}, kProductFull}, {Op::kAdd, {2, 3}, {}}},
       {4},
       kNotRounded},
      {"product_bias_gelu",
       {{kX}, {kW}, {kBias}},
       {kHalf, kHalf, kHalf},
       {{Op::kEinsum, {0, 1}, kProduct}, {Op::kAdd, {3, 2}, {}}, {Op::kGelu, {4}, {}}},
       {5}},
      {"product_bias_gelu_kept",
       {{kX}, {kW}, {kBias}},
       {kHalf, kHalf, kHalf},
       {{Op::kEinsum, {0, 1}, kProduct}, {Op::kAdd, {3, 2}, {}}, {Op::kGelu, {4}, {}}},
       {4, 5}},
      {"product_gate_sums",
       {{kX}, {kW}, {kY}},
       {kHalf, kHalf, kHalf},
       {{Op::kEinsum, {0, 1}, kProduct},
        {Op::kGeluGrad, {2, 3}, {}},
        {Op::kReduceSum, {4}, kRowSumsFull}},
       {4, 5}},
      {"product_kept_sums",
       {{kX}, {kW}},
       {kHalf, kHalf},
       {{Op::kEinsum, {0, 1}, kProduct}, {Op::kReduceSum, {2}, kRowSumsFull}},
       {2, 3}},
      {"product_in_f32_sum_in_both_types",
       {{kX}, {kW}, {kY}},
       {kHalf, kHalf, kFull},
       {{Op::kEinsum, {0, 1}, kProductFull}, {Op::kSum, {3, 2}, {}}, {Op::kCast, {4}, kToHalf}},
       {4, 5}},
      {"product_of_f32_narrowed_by_steps_in_bf16",
       {{kX}, {kW}},
       {kFull, kFull},
       {{Op::kEinsum, {0, 1}, kProduct}, {Op::kGelu, {2}, {}}, {Op::kCast, {3}, kToHalf}},
       {4}},
      {"product_of_f32_in_bf16_by_steps_in_bf16",
       {{kX}, {kW}},
       {kFull, kFull},
       {{Op::kEinsum, {0, 1}, kProductHalf}, {Op::kGelu, {2}, {}}},
       {2, 3}},
      {"product_of_a_cast_operand_by_steps",
       {{kX}, {kW}, {kY}},
       {kFull, kHalf, kFull},
       {{Op::kCast, {0}, kToHalf}, {Op::kEinsum, {3, 1}, kProductFull}, {Op::kAdd, {2, 4}, {}}},
       {5}},
  };
}

std::vector<MixedFused> MixedNormGrads() {
  const Arg scale{kRow, ArgKind::kPositive};
  const std::vector<DType> layer_types(6, kFull), rms_types(5, kFull);
  const FusedStep layer{Op::kLayerNormGrad, {0, 1, 2, 3, 4}, {{"eps", 1e-5}}};
  const FusedStep rms{Op::kRmsNormGrad, {0, 1, 2, 3}, {{"eps", 1e-5}}};
  return {
      {"layer_norm_grad_residual_in_both_types",
       {{kY}, {kBias}, {kRow}, scale, {kY}, {kY}},
       layer_types,
       {layer, {Op::kSum, {6, 5}, {}}, {Op::kCast, {9}, kToHalf}},
       {7, 8, 9, 10}},
      {"layer_norm_grad_cast_sums",
       {{kY}, {kBias}, {kRow}, scale, {kY}, {kY}},
       layer_types,
       {layer,
        {Op::kSum, {6, 5}, {}},
        {Op::kCast, {9}, kToHalf},
        {Op::kReduceSum, {10}, kRowSumsFull}},
       {7, 8, 9, 10, 11}},
      {"layer_norm_grad_only_cast",
       {{kY}, {kBias}, {kRow}, scale, {kY}, {kY}},
       layer_types,
       {layer, {Op::kSum, {6, 5}, {}}, {Op::kCast, {9}, kToHalf}, {Op::kReduceSum, {10}, kRowSums}},
       {7, 8, 10, 11}},
      {"rms_norm_grad_cast_sums",
       {{kY}, {kBias}, scale, {kY}, {kY}},
       rms_types,
       {rms,
        {Op::kSum, {5, 4}, {}},
        {Op::kCast, {7}, kToHalf},
        {Op::kReduceSum, {8}, kRowSumsFull}},
       {6, 7, 8, 9}},
      {"layer_norm_grad_in_bf16_by_steps_in_bf16",
       {{kY}, {kBias}, {kRow}, scale, {kY}, {kY}},
       {kHalf, kHalf, kFull, kFull, kHalf, kHalf},
       {layer, {Op::kSum, {6, 5}, {}}},
       {7, 8, 9}},
      {"layer_norm_grad_of_a_bf16_gradient",
       {{kY}, {kBias}, {kRow}, scale, {kY}, {kY}},
       {kFull, kFull, kFull, kFull, kFull, kHalf},
       {layer, {Op::kCast, {5}, kToFull}, {Op::kSum, {6, 9}, {}}},
       {7, 8, 10},
       kNotRounded},
  };
}

std::vector<MixedFused> MixedChains() {
  const ir::Dims long_x = {2, 3, 1500}, long_bias = {1500}, vector = {2600};
  const Attrs sums = {{"dims", std::vector<int64_t>{0, 1}}, {"dtype", "f32"}};
  return {
      {"gelu_narrowed",
       {{long_x}, {long_bias}},
       {kFull, kFull},
       {{Op::kAdd, {0, 1}, {}}, {Op::kGelu, {2}, {}}, {Op::kCast, {3}, kToHalf}},
       {4},
       kOneRounding},
      {"cast_in_the_middle",
       {{vector}, {vector}, {vector}},
       {kFull, kFull, kFull},
       {{Op::kMul, {0, 1}, {}},
        {Op::kCast, {3}, kToHalf},
        {Op::kCast, {4}, kToFull},
        {Op::kAdd, {5, 2}, {}},
        {Op::kSilu, {6}, {}}},
       {6, 7}},
      {"cast_in_the_middle_kept",
       {{vector}, {vector}},
       {kFull, kFull},
       {{Op::kMul, {0, 1}, {}},
        {Op::kCast, {2}, kToHalf},
        {Op::kGelu, {3}, {}},
        {Op::kCast, {4}, kToFull},
        {Op::kSub, {5, 1}, {}}},
       {3, 6}},
      {"narrow_operand_read_twice",
       {{long_x}, {long_bias}},
       {kHalf, kHalf},
       {{Op::kAdd, {0, 1}, {}}, {Op::kMul, {2, 1}, {}}},
       {3}},
      {"narrow_operand_read_twice_and_sums",
       {{{3, 43, 37}}, {{37}}},
       {kHalf, kHalf},
       {{Op::kMul, {0, 1}, {}}, {Op::kAdd, {2, 1}, {}}, {Op::kReduceSum, {3}, sums}},
       {2, 3, 4}},
      {"scalar_in_f32",
       {{vector}, {{}}},
       {kHalf, kFull},
       {{Op::kMulScalar, {0, 1}, {}},
        {Op::kCast, {2}, kToFull},
        {Op::kScale, {3}, {{"factor", -0.5}}}},
       {2, 4}},
      {"narrow_cast_inside_by_steps",
       {{long_x}, {long_bias}},
       {kHalf, kFull},
       {{Op::kCast, {1}, kToHalf}, {Op::kAdd, {0, 2}, {}}, {Op::kGelu, {3}, {}}},
       {4}},
  };
}

void AddMixedFused(std::vector<OpCase>& cases) {
  for (const auto& forms : {MixedProducts(), MixedNormGrads(), MixedChains()}) {
    for (const MixedFused& fused : forms) {
      OpCase row = Row("fused_mixed_" + fused.name, Op::kFused, {}, fused.args);
      row.f32_tolerance = 1e-5;
      row.bf16_tolerance = fused.tolerance;
      row.half_types = fused.types;
      ir::SetFusedBody({WithoutTypes(fused.steps), fused.results}, row.attrs);
      ir::SetFusedBody({fused.steps, fused.results}, row.half_attrs);
      cases.push_back(row);
    }
  }
}

}  // namespace

std::vector<OpCase> MixedCases() {
  std::vector<OpCase> cases;
  AddMixedEinsum(cases);
  AddMixedSums(cases);
  AddMixedNorms(cases);
  AddMixedFused(cases);
  return cases;
}

}  // namespace meshwright::ops
