// Rows of the op table: the elementwise ops of ir/elementwise.h but those of models, choice,
// softmax, reductions, images.
#include <algorithm>

#include "tests/conformance/ops/ops_cases.h"

namespace meshwright::ops {
namespace {

using ir::Attrs;
using ir::Op;

// Few texts for GPUs: each costs a call of a compiler.
const ir::Dims kShape = {2, 3, 100};
// Of several spans, the last one odd, for formulas of several steps.
const ir::Dims kLong = {3, 701};

Arg Positive(ir::Dims dims) { return {std::move(dims), ArgKind::kPositive}; }
Arg Bools(ir::Dims dims) { return {std::move(dims), ArgKind::kBool}; }
Arg Ids(ir::Dims dims, int64_t below) { return {std::move(dims), ArgKind::kIds, below}; }

std::string NameOf(Op op, const ir::Dims& dims) {
  std::string name(ir::OpName(op));
  for (const int64_t dim : dims) name += "_" + std::to_string(dim);
  return name;
}

void AddUnary(std::vector<OpCase>& cases) {
  for (const Op op : {Op::kRelu, Op::kExp, Op::kTanh, Op::kSigmoid, Op::kErf, Op::kAbs, Op::kSquare,
                      Op::kSoftplus, Op::kGeluErf}) {
    cases.push_back({NameOf(op, kShape), op, {}, {{kShape}}, {}});
  }
  for (const Op op : {Op::kLog, Op::kLog1p, Op::kSqrt, Op::kRsqrt}) {
    cases.push_back({NameOf(op, kShape), op, {}, {Positive(kShape)}, {}});
  }
  for (const Op op : {Op::kSign, Op::kStopGradient}) {
    cases.push_back({NameOf(op, kShape), op, {}, {{kShape}}, {}, false});
  }
  cases.push_back({NameOf(Op::kShift, kShape), Op::kShift, {{"value", -0.75}}, {{kShape}}, {}});
  for (const Op op : {Op::kSoftplus, Op::kGeluErf}) {
    cases.push_back({NameOf(op, kLong), op, {}, {{kLong}}, {}});
  }
  cases.push_back({"abs_i32", Op::kAbs, {}, {Ids({3, 5}, 9)}, {}, false});
}

void AddBinary(std::vector<OpCase>& cases) {
  for (const Op op : {Op::kMaximum, Op::kMinimum}) {
    cases.push_back({NameOf(op, kShape), op, {}, {{kShape}, {kShape}}, {}});
  }
  OpCase gate{NameOf(Op::kGate, kShape), Op::kGate, {}, {{kShape}, {kShape}}, {}};
  gate.without_gradient = 1;
  cases.push_back(gate);
  cases.push_back({NameOf(Op::kDivide, kShape), Op::kDivide, {}, {{kShape}, Positive(kShape)}, {}});
  OpCase pow{NameOf(Op::kPow, kShape), Op::kPow, {}, {Positive(kShape), {kShape}}, {}};
  pow.bf16_tolerance = 2e-2;
  cases.push_back(pow);
  for (const ir::Dims& narrow : {ir::Dims{}, ir::Dims{7}, ir::Dims{3, 7}, ir::Dims{130}}) {
    const ir::Dims wide = narrow == ir::Dims{130} ? ir::Dims{5, 130} : ir::Dims{4, 3, 7};
    const std::string at = "_suffix" + NameOf(Op::kSub, narrow);
    cases.push_back({"divide" + at, Op::kDivide, {}, {{wide}, Positive(narrow)}, {}});
    cases.push_back({"sub" + at, Op::kSub, {}, {{wide}, {narrow}}, {}});
    cases.push_back({"maximum" + at, Op::kMaximum, {}, {{wide}, {narrow}}, {}});
  }
  for (const Op op : {Op::kAdd, Op::kMul, Op::kSub, Op::kMaximum, Op::kMinimum}) {
    cases.push_back({NameOf(op, {}) + "_i32", op, {}, {Ids({3, 5}, 9), Ids({5}, 7)}, {}, false});
  }
}

void AddCompares(std::vector<OpCase>& cases) {
  for (const Op op :
       {Op::kEqual, Op::kNotEqual, Op::kLess, Op::kLessEqual, Op::kGreater, Op::kGreaterEqual}) {
    const std::string name = NameOf(op, {});
    cases.push_back({name, op, {}, {{{3, 5}}, {{5}}}, {}, false});
    cases.push_back({name + "_i32", op, {}, {Ids({40, 5}, 4), Ids({40, 5}, 4)}, {}, false});
  }
  for (const Op op : {Op::kLogicalAnd, Op::kLogicalOr}) {
    cases.push_back({NameOf(op, {}), op, {}, {Bools({3, 40}), Bools({40})}, {}, false});
  }
  cases.push_back({"logical_not", Op::kLogicalNot, {}, {Bools({3, 40})}, {}, false});
  cases.push_back(
      {NameOf(Op::kSelect, kShape), Op::kSelect, {}, {Bools(kShape), {kShape}, {kShape}}, {}});
  cases.push_back(
      {"select_suffix", Op::kSelect, {}, {Bools({4, 3, 7}), {{4, 3, 7}}, {{3, 7}}}, {}});
  cases.push_back({"select_scalar", Op::kSelect, {}, {Bools({4, 3, 7}), {{4, 3, 7}}, {{}}}, {}});
  cases.push_back(
      {"select_i32", Op::kSelect, {}, {Bools({3, 5}), Ids({3, 5}, 9), Ids({5}, 9)}, {}, false});
  cases.push_back(
      {"select_bool", Op::kSelect, {}, {Bools({3, 5}), Bools({3, 5}), Bools({3, 5})}, {}, false});
  const auto cast = [&](const char* to, Arg from, const char* name) {
    cases.push_back({name, Op::kCast, {{"dtype", std::string(to)}}, {std::move(from)}, {}, false});
  };
  cast("i32", {{3, 40}}, "cast_float_i32");
  cast("i64", {{3, 40}}, "cast_float_i64");
  cast("bool", {{3, 40}}, "cast_float_bool");
  cast("f32", Ids({3, 40}, 1000), "cast_i32_f32");
  cast("f16", Ids({3, 40}, 1000), "cast_i32_f16");
  cast("i64", Ids({3, 40}, 1000), "cast_i32_i64");
  cast("bool", Ids({3, 40}, 2), "cast_i32_bool");
  cast("f32", Bools({3, 40}), "cast_bool_f32");
  cast("bf16", Bools({3, 40}), "cast_bool_bf16");
  cast("i32", Bools({3, 40}), "cast_bool_i32");
}

void AddReductions(std::vector<OpCase>& cases) {
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{0}, {2}, {0, 2}, {0, 1, 2}}) {
    std::string at;
    for (const int64_t dim : dims) at += "_" + std::to_string(dim);
    cases.push_back({"reduce_max" + at, Op::kReduceMax, {{"dims", dims}}, {{{4, 5, 7}}}, {}});
    cases.push_back(
        {"reduce_max_wide" + at, Op::kReduceMax, {{"dims", dims}}, {{{3, 19, 131}}}, {}});
    ir::Dims kept;
    const ir::Dims wide = {4, 5, 7};
    for (size_t i = 0; i < wide.size(); ++i) {
      if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) == dims.end()) {
        kept.push_back(wide[i]);
      }
    }
    cases.push_back({"broadcast" + at, Op::kBroadcast, {{"dims", dims}}, {{kept}}, {wide}});
  }
  for (const int64_t dim : {0, 1, 2}) {
    const std::string at = "_" + std::to_string(dim);
    ir::Dims longer = {4, 3, 6};
    longer[static_cast<size_t>(dim)] += 2;
    cases.push_back(
        {"concat" + at, Op::kConcat, {{"dim", dim}}, {{{4, 3, 6}}, {longer}, {{4, 3, 6}}}, {}});
  }
  for (const ir::Dims& dims : {ir::Dims{5}, ir::Dims{3, 4, 7}, ir::Dims{2, 300}}) {
    for (const Op op : {Op::kSoftmax, Op::kLogSoftmax}) {
      cases.push_back({NameOf(op, dims), op, {}, {{dims}}, {}});
    }
  }
}

void AddChoice(std::vector<OpCase>& cases) {
  struct Row {
    int64_t dim;
    ir::Dims x, ids;
  };
  for (const Row& r : std::vector<Row>{{0, {7}, {12}},
                                       {0, {6, 5}, {3, 5}},
                                       {1, {3, 6, 5}, {3, 9, 5}},
                                       {1, {40, 300}, {40, 1}}}) {
    const std::string at = NameOf(Op::kGather, r.x);
    const int64_t size = r.x[static_cast<size_t>(r.dim)];
    cases.push_back({at, Op::kGather, {{"dim", r.dim}}, {{r.x}, Ids(r.ids, size)}, {}});
    cases.push_back({"of_" + at,
                     Op::kScatterAdd,
                     {{"dim", r.dim}, {"size", size}},
                     {Ids(r.ids, size), {r.ids}},
                     {}});
  }
  cases.push_back(
      {"gather_i32", Op::kGather, {{"dim", 1}}, {Ids({3, 6}, 50), Ids({3, 4}, 6)}, {}, false});
  cases.push_back(
      {"gather_bool", Op::kGather, {{"dim", 1}}, {Bools({3, 6}), Ids({3, 4}, 6)}, {}, false});
  cases.push_back({"one_hot", Op::kOneHot, {{"size", 5}}, {Ids({3, 4}, 7)}, {}, false});
  cases.push_back({"one_hot_ignored",
                   Op::kOneHot,
                   {{"size", 5}, {"ignore_index", 2}},
                   {Ids({30}, 5)},
                   {},
                   false});
  for (const int64_t k : {1, 4, 40}) {
    cases.push_back({"top_k_" + std::to_string(k), Op::kTopK, {{"k", k}}, {{{2, 3, 40}}}, {}});
  }
  for (const char* kind : {"uniform", "normal"}) {
    cases.push_back({std::string("noise_") + kind,
                     Op::kNoise,
                     {{"name", "noise"}, {"kind", std::string(kind)}},
                     {{{3, 700}}},
                     {},
                     false});
  }
}

void AddImages(std::vector<OpCase>& cases) {
  struct Row {
    const char* name;
    ir::Dims x, k;
    std::vector<int64_t> strides, padding;
    ir::Dims y;
  };
  const std::vector<Row> rows = {
      {"plain", {2, 5, 6, 3}, {3, 3, 3, 4}, {1, 1}, {0, 0, 0, 0}, {2, 3, 4, 4}},
      {"padded", {2, 5, 6, 3}, {3, 3, 3, 4}, {1, 1}, {1, 1, 1, 1}, {2, 5, 6, 4}},
      {"strided", {3, 7, 9, 2}, {3, 2, 2, 5}, {2, 3}, {1, 0, 0, 1}, {3, 3, 3, 5}},
      {"left_over", {1, 8, 8, 2}, {3, 3, 2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 3, 3, 2}},
      {"one_pixel", {11, 4, 4, 16}, {1, 1, 16, 8}, {1, 1}, {0, 0, 0, 0}, {11, 4, 4, 8}}};
  for (const Row& r : rows) {
    const std::string at = std::string("_") + r.name;
    const Attrs attrs = {{"strides", r.strides}, {"padding", r.padding}};
    cases.push_back({"conv2d" + at, Op::kConv2d, attrs, {{r.x}, {r.k}}, {}});
    cases.push_back(
        {"conv2d_grad_input" + at, Op::kConv2dGradInput, attrs, {{r.k}, {r.y}}, {r.x}, false});
    cases.push_back(
        {"conv2d_grad_kernel" + at, Op::kConv2dGradKernel, attrs, {{r.x}, {r.y}}, {r.k}, false});
    Attrs pooled = attrs;
    pooled.Set("window", std::vector<int64_t>{r.k[0], r.k[1]});
    ir::Dims y = r.y;
    y[3] = r.x[3];
    cases.push_back({"window_argmax" + at, Op::kWindowArgmax, pooled, {{r.x}}, {}, false});
    cases.push_back({"avg_pool" + at, Op::kAvgPool, pooled, {{r.x}}, {}});
    cases.push_back({"avg_pool_grad" + at, Op::kAvgPoolGrad, pooled, {{y}}, {r.x}});
  }
}

}  // namespace

std::vector<OpCase> FormulaCases() {
  std::vector<OpCase> cases;
  AddUnary(cases);
  AddBinary(cases);
  AddCompares(cases);
  AddReductions(cases);
  AddChoice(cases);
  AddImages(cases);
  return cases;
}

}  // namespace meshwright::ops
