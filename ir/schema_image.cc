// Convolution and pooling of images [b, h, w, c]: b and channels are split, height and width are
// whole.
#include <fmt/format.h>

#include <algorithm>

#include "ir/images.h"
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

constexpr int64_t kMostStep = 1 << 16;

// The attribute is absent, or `count` integers of at least `least`.
Status CheckInts(const OpCall& call, const char* name, size_t count, int64_t least) {
  if (!call.attrs.Has(name)) return OkStatus();
  const std::vector<int64_t> values = call.attrs.Ints(name);
  const bool fit = values.size() == count &&
                   std::all_of(values.begin(), values.end(),
                               [&](int64_t value) { return value >= least && value <= kMostStep; });
  if (fit) return OkStatus();
  return call.Error(
      fmt::format("'{}' must be {} integers from {} to {}", name, count, least, kMostStep));
}

// Every window must see a part of the image: a window of padding alone has no largest element.
Status CheckWindows(const OpCall& call, const Windows& windows) {
  for (size_t d = 0; d < 2; ++d) {
    if (windows.before[d] >= windows.size[d] || windows.after[d] >= windows.size[d]) {
      return call.Error("the padding of a side must be smaller than the window");
    }
  }
  return OkStatus();
}

Status CheckSteps(const OpCall& call) {
  MW_TRY(CheckInts(call, "strides", 2, 1));
  return CheckInts(call, "padding", 4, 0);
}

// Of images of `x` with `channels`.
Result<Dims> ResultDims(const OpCall& call, const Windows& windows, const Dims& x,
                        int64_t channels) {
  MW_TRY(CheckWindows(call, windows));
  const Dims dims = {x[0], windows.CountIn(0, x[1]), windows.CountIn(1, x[2]), channels};
  if (dims[1] > 0 && dims[2] > 0) return dims;
  return Fail(call.Error("the window is larger than the padded image"));
}

// The shape of conv2d's result for images x and kernels k.
Result<Dims> ConvDims(const OpCall& call, const Dims& x, const Dims& k) {
  if (x[3] != k[2]) {
    return Fail(
        call.Error(fmt::format("images have {} channels, the kernel takes {}", x[3], k[2])));
  }
  return ResultDims(call, Windows::Of(call.attrs, {k[0], k[1]}), x, k[3]);
}

TypesOr InferConv(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  MW_TRY(call.RequireFloat(0));
  for (size_t i = 0; i < 2; ++i) MW_TRY(call.RequireRank(i, 4));
  if (call.operands[0].dtype != call.operands[1].dtype) {
    return Fail(call.Error("operands must have one dtype"));
  }
  MW_TRY(CheckSteps(call));
  const Dims& a = call.operands[0].dims;
  const Dims& b = call.operands[1].dims;
  const DType dtype = call.operands[0].dtype;
  if (call.op == Op::kConv2d) {
    MW_ASSIGN_OR_RETURN(Dims dims, ConvDims(call, a, b));
    return std::vector<TensorType>{{dtype, std::move(dims)}};
  }
  MW_TRY(call.RequireDeclared(1));
  const TensorType& result = call.declared[0];
  if (result.dtype != dtype || result.rank() != 4) {
    return Fail(call.Error(fmt::format("the result cannot be {}", result.ToString())));
  }
  const bool of_input = call.op == Op::kConv2dGradInput;
  MW_ASSIGN_OR_RETURN(const Dims dims,
                      of_input ? ConvDims(call, result.dims, a) : ConvDims(call, a, result.dims));
  if (dims != b) return Fail(call.Error("dy must have the shape of the convolution's result"));
  return std::vector<TensorType>{result};
}

TypesOr InferPool(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireRank(0, 4));
  if (!call.attrs.Has("window")) return Fail(call.Error("needs the attribute 'window'"));
  MW_TRY(CheckInts(call, "window", 2, 1));
  MW_TRY(CheckSteps(call));
  const Windows windows = Windows::Of(call.attrs);
  const TensorType& x = call.operands[0];
  if (call.op == Op::kAvgPoolGrad) {
    MW_TRY(call.RequireDeclared(1));
    const TensorType& result = call.declared[0];
    if (result.dtype != x.dtype || result.rank() != 4) {
      return Fail(call.Error(fmt::format("the result cannot be {}", result.ToString())));
    }
    MW_ASSIGN_OR_RETURN(const Dims dims, ResultDims(call, windows, result.dims, result.dims[3]));
    if (dims != x.dims) return Fail(call.Error("dy must have the shape of the pooling's result"));
    return std::vector<TensorType>{result};
  }
  MW_ASSIGN_OR_RETURN(Dims dims, ResultDims(call, windows, x.dims, x.dims[3]));
  if (call.op == Op::kAvgPool) return std::vector<TensorType>{{x.dtype, std::move(dims)}};
  if (x.dims[1] * x.dims[2] > INT32_MAX) return Fail(call.Error("places must fit i32"));
  return std::vector<TensorType>{{DType::kI32, std::move(dims)}};
}

// conv2d: x, k -> y. The gradients have the same three tensors in other places.
FactorRule ConvRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const bool of_input = node.op == Op::kConv2dGradInput;
  const bool of_kernel = node.op == Op::kConv2dGradKernel;
  const TensorType& x = of_input ? node.results[0] : node.operands[0];
  const TensorType& k = of_input    ? node.operands[0]
                        : of_kernel ? node.results[0]
                                    : node.operands[1];
  const TensorType& y = node.op == Op::kConv2d ? node.results[0] : node.operands[1];
  const FactorIndex b = rule.Add(x.dims[0]);
  const FactorIndex i = rule.Add(x.dims[3]);
  const FactorIndex o = rule.Add(y.dims[3]);
  const auto image = [&](const TensorType& type, FactorIndex channels) {
    return std::vector<FactorIndex>{b, rule.AddWhole(type.dims[1]), rule.AddWhole(type.dims[2]),
                                    channels};
  };
  const std::vector<FactorIndex> of_x = image(x, i);
  const std::vector<FactorIndex> of_y = image(y, o);
  const std::vector<FactorIndex> of_k = {rule.AddWhole(k.dims[0]), rule.AddWhole(k.dims[1]), i, o};
  rule.Operand(0, of_input ? of_k : of_x);
  rule.Operand(1, node.op == Op::kConv2d ? of_k : of_y);
  rule.Result(0, of_input ? of_x : of_kernel ? of_k : of_y);
  return rule.Finish();
}

FactorRule PoolRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const FactorIndex b = rule.Add(node.operands[0].dims[0]);
  const FactorIndex c = rule.Add(node.operands[0].dims[3]);
  const auto image = [&](const TensorType& type) {
    return std::vector<FactorIndex>{b, rule.AddWhole(type.dims[1]), rule.AddWhole(type.dims[2]), c};
  };
  rule.Operand(0, image(node.operands[0]));
  rule.Result(0, image(node.results[0]));
  if (node.op != Op::kWindowArgmax) rule.AllLinear();
  return rule.Finish();
}

double ConvFlops(const NodeTypes& node) {
  const TensorType& y = node.op == Op::kConv2d ? node.results[0] : node.operands[1];
  const TensorType& k = node.op == Op::kConv2d            ? node.operands[1]
                        : node.op == Op::kConv2dGradInput ? node.operands[0]
                                                          : node.results[0];
  return 2.0 * static_cast<double>(y.elements()) * static_cast<double>(k.elements()) /
         static_cast<double>(k.dims[3]);
}

double PoolFlops(const NodeTypes& node) {
  const Windows windows = Windows::Of(node.attrs);
  const TensorType& y = node.op == Op::kAvgPoolGrad ? node.operands[0] : node.results[0];
  return static_cast<double>(y.elements()) * static_cast<double>(windows.size[0]) *
         static_cast<double>(windows.size[1]);
}

GradsOr ConvGrad(GradCall& call) {
  const TensorType x = call.in_type(0);
  const TensorType k = call.in_type(1);
  std::vector<ValueId> grads(2);
  if (call.Wants(0)) {
    grads[0] = call.builder.AddOne(Op::kConv2dGradInput, {call.in(1), call.grads[0]},
                                   call.node.attrs, {x});
  }
  if (call.Wants(1)) {
    grads[1] = call.builder.AddOne(Op::kConv2dGradKernel, {call.in(0), call.grads[0]},
                                   call.node.attrs, {k});
  }
  return grads;
}

GradsOr AvgPoolGradient(GradCall& call) {
  const TensorType x = call.in_type(0);
  return std::vector<ValueId>{
      call.builder.AddOne(Op::kAvgPoolGrad, {call.grads[0]}, call.node.attrs, {x})};
}

GradsOr AvgPoolGradGradient(GradCall& call) {
  return std::vector<ValueId>{call.builder.AddOne(Op::kAvgPool, {call.grads[0]}, call.node.attrs)};
}

}  // namespace

void AddImageSchemas(SchemaTable& table) {
  Row(table, Op::kConv2d) = {InferConv, ConvRule, ConvFlops, nullptr, ConvGrad};
  Row(table, Op::kConv2dGradInput) = {InferConv, ConvRule, ConvFlops};
  Row(table, Op::kConv2dGradKernel) = {InferConv, ConvRule, ConvFlops};
  Row(table, Op::kWindowArgmax) = {InferPool, PoolRule, PoolFlops};
  Row(table, Op::kAvgPool) = {InferPool, PoolRule, PoolFlops, nullptr, AvgPoolGradient};
  Row(table, Op::kAvgPoolGrad) = {InferPool, PoolRule, PoolFlops, nullptr, AvgPoolGradGradient};
}

}  // namespace meshwright::ir
