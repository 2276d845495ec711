// The formulas of client::Builder: shapes are fitted here, ops of ir/ know suffixes only.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "client/layers.h"
#include "ir/autodiff.h"

namespace meshwright::client {

using ir::Op;
using ir::TensorType;

namespace {

// The shape that both repeat to, or nothing.
std::optional<Dims> CommonDims(const Dims& x, const Dims& y) {
  Dims common(std::max(x.size(), y.size()), 1);
  for (size_t i = 0; i < common.size(); ++i) {
    const int64_t of_x = i < x.size() ? x[x.size() - 1 - i] : 1;
    const int64_t of_y = i < y.size() ? y[y.size() - 1 - i] : 1;
    if (of_x != of_y && of_x != 1 && of_y != 1) return std::nullopt;
    common[common.size() - 1 - i] = std::max(of_x, of_y);
  }
  return common;
}

bool IsSuffix(const Dims& x, const Dims& y) {
  return y.size() <= x.size() && std::equal(y.rbegin(), y.rend(), x.rbegin());
}

}  // namespace

// Leading dims come by themselves; dims of 1 inside are dropped, and the op says where they were.
ValueId Builder::BroadcastTo(ValueId x, Dims wanted) {
  if (!Usable(x)) return ValueId();
  const Dims own = dims(x);
  const auto common = CommonDims(own, wanted);
  if (!common || *common != wanted) {
    Fail(InvalidArgument(
        fmt::format("[{}] does not repeat to [{}]", fmt::join(own, ","), fmt::join(wanted, ","))));
    return ValueId();
  }
  if (own == wanted) return x;
  const size_t leading = wanted.size() - own.size();
  MW_CHECK(own.size() <= wanted.size())
      << "a value of rank " << own.size() << " for " << wanted.size();
  Dims kept;
  std::vector<int64_t> repeated;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i >= leading && own[i - leading] == wanted[i]) {
      kept.push_back(wanted[i]);
    } else {
      repeated.push_back(static_cast<int64_t>(i));
    }
  }
  const ValueId narrow = kept == own ? x : Reshape(x, kept);
  if (!Usable(narrow)) return ValueId();
  const ir::DType dtype = type(narrow).dtype;
  return AddOne(Op::kBroadcast, {narrow}, {{"dims", std::move(repeated)}},
                {TensorType{dtype, std::move(wanted)}});
}

ValueId Builder::Binary(Op op, ValueId x, ValueId y) {
  if (!Usable(x) || !Usable(y)) return ValueId();
  const Dims of_x = dims(x);
  const Dims of_y = dims(y);
  if (IsSuffix(of_x, of_y)) return AddOne(op, {x, y});
  const bool commutes = op == Op::kAdd || op == Op::kMul;
  if (commutes && IsSuffix(of_y, of_x)) return AddOne(op, {y, x});
  Dims without_ones = of_y;
  while (!without_ones.empty() && without_ones[0] == 1) without_ones.erase(without_ones.begin());
  if (IsSuffix(of_x, without_ones)) return AddOne(op, {x, Reshape(y, without_ones)});
  const auto common = CommonDims(of_x, of_y);
  if (!common) {
    Fail(InvalidArgument(fmt::format("{} of [{}] and [{}]: dims must be equal, or one of them 1",
                                     ir::OpName(op), fmt::join(of_x, ","), fmt::join(of_y, ","))));
    return ValueId();
  }
  const ValueId wide = BroadcastTo(x, *common);
  return AddOne(op, {wide, IsSuffix(*common, of_y) ? y : BroadcastTo(y, *common)});
}

ValueId Builder::AddTo(ValueId x, ValueId y) { return Binary(Op::kAdd, x, y); }
ValueId Builder::MulBy(ValueId x, ValueId y) { return Binary(Op::kMul, x, y); }
ValueId Builder::Sub(ValueId x, ValueId y) { return Binary(Op::kSub, x, y); }
ValueId Builder::Div(ValueId x, ValueId y) { return Binary(Op::kDivide, x, y); }
ValueId Builder::Pow(ValueId x, ValueId y) { return Binary(Op::kPow, x, y); }
ValueId Builder::Maximum(ValueId x, ValueId y) { return Binary(Op::kMaximum, x, y); }
ValueId Builder::Minimum(ValueId x, ValueId y) { return Binary(Op::kMinimum, x, y); }
ValueId Builder::Equal(ValueId x, ValueId y) { return Binary(Op::kEqual, x, y); }
ValueId Builder::NotEqual(ValueId x, ValueId y) { return Binary(Op::kNotEqual, x, y); }
ValueId Builder::Less(ValueId x, ValueId y) { return Binary(Op::kLess, x, y); }
ValueId Builder::LessEqual(ValueId x, ValueId y) { return Binary(Op::kLessEqual, x, y); }
ValueId Builder::Greater(ValueId x, ValueId y) { return Binary(Op::kGreater, x, y); }
ValueId Builder::GreaterEqual(ValueId x, ValueId y) { return Binary(Op::kGreaterEqual, x, y); }
ValueId Builder::And(ValueId x, ValueId y) { return Binary(Op::kLogicalAnd, x, y); }
ValueId Builder::Or(ValueId x, ValueId y) { return Binary(Op::kLogicalOr, x, y); }
ValueId Builder::Not(ValueId x) { return AddOne(Op::kLogicalNot, {x}); }

ValueId Builder::Where(ValueId condition, ValueId x, ValueId y) {
  if (!Usable(condition) || !Usable(x) || !Usable(y)) return ValueId();
  const auto of_two = CommonDims(dims(x), dims(y));
  const auto common = of_two ? CommonDims(*of_two, dims(condition)) : std::nullopt;
  if (!common) {
    Fail(InvalidArgument(fmt::format("select of [{}], [{}] and [{}]: dims must be equal, or 1",
                                     fmt::join(dims(condition), ","), fmt::join(dims(x), ","),
                                     fmt::join(dims(y), ","))));
    return ValueId();
  }
  const ValueId other = IsSuffix(*common, dims(y)) ? y : BroadcastTo(y, *common);
  return AddOne(Op::kSelect, {BroadcastTo(condition, *common), BroadcastTo(x, *common), other});
}

ValueId Builder::Scale(ValueId x, double factor) {
  return AddOne(Op::kScale, {x}, {{"factor", factor}});
}
ValueId Builder::Shift(ValueId x, double value) {
  return AddOne(Op::kShift, {x}, {{"value", value}});
}
ValueId Builder::Neg(ValueId x) { return Scale(x, -1); }
ValueId Builder::Abs(ValueId x) { return AddOne(Op::kAbs, {x}); }
ValueId Builder::Sign(ValueId x) { return AddOne(Op::kSign, {x}); }
ValueId Builder::Exp(ValueId x) { return AddOne(Op::kExp, {x}); }
ValueId Builder::Log(ValueId x) { return AddOne(Op::kLog, {x}); }
ValueId Builder::Sqrt(ValueId x) { return AddOne(Op::kSqrt, {x}); }
ValueId Builder::Rsqrt(ValueId x) { return AddOne(Op::kRsqrt, {x}); }
ValueId Builder::Square(ValueId x) { return AddOne(Op::kSquare, {x}); }
ValueId Builder::Erf(ValueId x) { return AddOne(Op::kErf, {x}); }
ValueId Builder::Relu(ValueId x) { return AddOne(Op::kRelu, {x}); }
ValueId Builder::Tanh(ValueId x) { return AddOne(Op::kTanh, {x}); }
ValueId Builder::Sigmoid(ValueId x) { return AddOne(Op::kSigmoid, {x}); }
ValueId Builder::Softplus(ValueId x) { return AddOne(Op::kSoftplus, {x}); }
ValueId Builder::Gelu(ValueId x) { return AddOne(Op::kGelu, {x}); }
ValueId Builder::GeluErf(ValueId x) { return AddOne(Op::kGeluErf, {x}); }
ValueId Builder::Silu(ValueId x) { return AddOne(Op::kSilu, {x}); }
ValueId Builder::StopGradient(ValueId x) { return AddOne(Op::kStopGradient, {x}); }

ValueId Builder::Cast(ValueId x, ir::DType to) {
  if (!Usable(x) || type(x).dtype == to) return x;
  return AddOne(Op::kCast, {x}, {{"dtype", std::string(ir::DTypeName(to))}});
}

ValueId Builder::Fill(Dims dims, double value) {
  return AddOne(Op::kConstant, {}, {{"value", value}}, {TensorType{dtype_, std::move(dims)}});
}

std::vector<int64_t> Builder::DimsFrom(ValueId x, std::vector<int64_t> dims) const {
  const int64_t rank = Usable(x) ? type(x).rank() : 0;
  for (int64_t& dim : dims) dim = dim < 0 ? dim + rank : dim;
  std::sort(dims.begin(), dims.end());
  return dims;
}

ValueId Builder::Einsum(const std::string& equation, ValueId a, ValueId b) {
  ir::Attrs attrs = {{"equation", equation}};
  if (pages_) attrs.Set("alone", int64_t{1});
  return AddOne(Op::kEinsum, {a, b}, std::move(attrs));
}

ValueId Builder::Slice(ValueId x, int dim, int64_t start, int64_t size) {
  return AddOne(Op::kSlice, {x},
                {{"dim", DimsFrom(x, {dim})[0]}, {"start", start}, {"size", size}});
}

ValueId Builder::Pad(ValueId x, int dim, int64_t before, int64_t after) {
  return AddOne(Op::kPad, {x},
                {{"dim", DimsFrom(x, {dim})[0]}, {"before", before}, {"after", after}});
}

ValueId Builder::Concat(std::vector<ValueId> parts, int dim) {
  const ValueId first = parts.empty() ? ValueId() : parts[0];
  const int64_t from_front = DimsFrom(first, {dim})[0];
  return AddOne(Op::kConcat, std::move(parts), {{"dim", from_front}});
}

ValueId Builder::Reshape(ValueId x, Dims dims) {
  const ir::DType dtype = Usable(x) ? type(x).dtype : dtype_;
  return AddOne(Op::kReshape, {x}, {}, {TensorType{dtype, std::move(dims)}});
}

ValueId Builder::Transpose(ValueId x, std::vector<int64_t> perm) {
  return AddOne(Op::kTranspose, {x}, {{"perm", std::move(perm)}});
}

ValueId Builder::Reduce(Op op, ValueId x, std::vector<int64_t> reduced, bool keep_dims) {
  Dims kept = dims(x);
  const std::vector<int64_t> from_front = DimsFrom(x, std::move(reduced));
  const ValueId result = AddOne(op, {x}, {{"dims", from_front}});
  if (!keep_dims || !Usable(result)) return result;
  for (const int64_t dim : from_front) kept[static_cast<size_t>(dim)] = 1;
  return Reshape(result, std::move(kept));
}

ValueId Builder::ReduceSum(ValueId x, std::vector<int64_t> dims, bool keep_dims) {
  return Reduce(Op::kReduceSum, x, std::move(dims), keep_dims);
}

ValueId Builder::ReduceMean(ValueId x, std::vector<int64_t> dims, bool keep_dims) {
  const ValueId sum = ReduceSum(x, std::move(dims), keep_dims);
  if (!Usable(sum)) return ValueId();
  const double share =
      static_cast<double>(type(sum).elements()) / static_cast<double>(type(x).elements());
  return Scale(sum, share);
}

ValueId Builder::ReduceMax(ValueId x, std::vector<int64_t> dims, bool keep_dims) {
  return Reduce(Op::kReduceMax, x, std::move(dims), keep_dims);
}

ValueId Builder::ReduceMin(ValueId x, std::vector<int64_t> dims, bool keep_dims) {
  return Neg(ReduceMax(Neg(x), std::move(dims), keep_dims));
}

ValueId Builder::Softmax(ValueId x) { return AddOne(Op::kSoftmax, {x}); }
ValueId Builder::LogSoftmax(ValueId x) { return AddOne(Op::kLogSoftmax, {x}); }
ValueId Builder::LogSumExp(ValueId x) { return AddOne(Op::kLogSumExp, {x}); }

TopValues Builder::TopK(ValueId x, int64_t k) {
  const std::vector<ValueId> results = Add(Op::kTopK, {x}, {{"k", k}});
  MW_CHECK(results.size() == 2) << "top_k gives values and ids, not " << results.size()
                                << " results";
  return {results[0], results[1]};
}

ValueId Builder::ArgMax(ValueId x, int dim) {
  if (!Usable(x)) return ValueId();
  const int64_t from_front = DimsFrom(x, {dim})[0];
  const int64_t rank = type(x).rank();
  Dims kept = dims(x);
  if (from_front < 0 || from_front >= rank) {
    Fail(InvalidArgument(fmt::format("argmax: {} has no dim {}", type(x).ToString(), dim)));
    return ValueId();
  }
  if (from_front != rank - 1) {
    std::vector<int64_t> perm;
    for (int64_t i = 0; i < rank; ++i) {
      if (i != from_front) perm.push_back(i);
    }
    perm.push_back(from_front);
    x = Transpose(x, std::move(perm));
  }
  kept.erase(kept.begin() + from_front);
  return Reshape(TopK(x, 1).ids, std::move(kept));
}

// Of equal elements top_k gives the places in their order.
ValueId Builder::Iota(int64_t count) { return TopK(Fill({count}, 0), count).ids; }

ValueId Builder::Gather(ValueId x, ValueId ids, int dim) {
  return AddOne(Op::kGather, {x, ids}, {{"dim", DimsFrom(x, {dim})[0]}});
}

ValueId Builder::OneHot(ValueId ids, int64_t size) {
  return AddOne(Op::kOneHot, {ids},
                {{"size", size}, {"dtype", std::string(ir::DTypeName(dtype_))}});
}

ValueId Builder::Noise(ValueId x, const std::string& name, const char* kind) {
  ClaimName(name);
  return AddOne(Op::kNoise, {x}, {{"name", name}, {"kind", std::string(kind)}});
}

ValueId Builder::Uniform(ValueId x, const std::string& name) { return Noise(x, name, "uniform"); }
ValueId Builder::Normal(ValueId x, const std::string& name) { return Noise(x, name, "normal"); }

ValueId Builder::Bernoulli(ValueId probability, const std::string& name) {
  return Less(Uniform(probability, name), probability);
}

// The largest of logits + Gumbel numbers: -log(-log(u)) of uniform ones.
ValueId Builder::Categorical(ValueId logits, const std::string& name) {
  const ValueId exponential = Neg(Log(Uniform(logits, name)));
  return ArgMax(Sub(logits, Log(exponential)), -1);
}

ValueId Builder::Conv2d(ValueId x, const std::string& name, std::vector<int64_t> window,
                        int64_t out, const WindowOptions& options, const LinearOptions& weights) {
  const Dims in = dims(x);
  if (in.size() != 4 || window.size() != 2) {
    Fail(InvalidArgument(fmt::format(
        "conv2d '{}': needs images [b, height, width, channels] and a window [height, width]",
        name)));
    return ValueId();
  }
  const ValueId weight =
      Param(name + ".weight", {window[0], window[1], in[3], out}, {.std_dev = weights.std_dev});
  const ValueId y = AddOne(Op::kConv2d, {x, weight},
                           {{"strides", options.strides}, {"padding", options.padding}});
  return weights.bias ? AddTo(y, Param(name + ".bias", {out}, {.init = "zeros"})) : y;
}

// The places of the largest, and what lies there: the gradient goes where it came from.
ValueId Builder::MaxPool(ValueId x, std::vector<int64_t> window, const WindowOptions& options) {
  const ValueId places = AddOne(
      Op::kWindowArgmax, {x},
      {{"window", std::move(window)}, {"strides", options.strides}, {"padding", options.padding}});
  if (!Usable(places)) return ValueId();
  const Dims image = dims(x);
  const Dims pooled = dims(places);
  const ValueId flat = Reshape(x, {image[0], image[1] * image[2], image[3]});
  const ValueId ids = Reshape(places, {pooled[0], pooled[1] * pooled[2], pooled[3]});
  return Reshape(Gather(flat, ids, 1), pooled);
}

ValueId Builder::AvgPool(ValueId x, std::vector<int64_t> window, const WindowOptions& options) {
  return AddOne(
      Op::kAvgPool, {x},
      {{"window", std::move(window)}, {"strides", options.strides}, {"padding", options.padding}});
}

std::vector<ValueId> Builder::Grad(ValueId loss, const std::vector<ValueId>& wrt) {
  auto grads = ir::AppendGradients(*this, loss, wrt);
  if (grads.has_value()) return *std::move(grads);
  Fail(grads.error());
  return std::vector<ValueId>(wrt.size());
}

}  // namespace meshwright::client
