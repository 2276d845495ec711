// Structure: slice, pad, concat, reshape, transpose, broadcast and the plain reductions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 40;

TypesOr InferSlice(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireMinRank(0, 1));
  TensorType type = call.operands[0];
  MW_ASSIGN_OR_RETURN(const int64_t dim, call.IntIn("dim", 0, type.rank() - 1));
  int64_t& extent = type.dims[static_cast<size_t>(dim)];
  MW_ASSIGN_OR_RETURN(const int64_t start, call.IntIn("start", 0, extent - 1));
  MW_ASSIGN_OR_RETURN(extent, call.IntIn("size", 1, extent - start));
  return std::vector<TensorType>{type};
}

TypesOr InferPad(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireMinRank(0, 1));
  TensorType type = call.operands[0];
  MW_ASSIGN_OR_RETURN(const int64_t dim, call.IntIn("dim", 0, type.rank() - 1));
  MW_ASSIGN_OR_RETURN(const int64_t before, call.IntIn("before", 0, kMaxExtent));
  MW_ASSIGN_OR_RETURN(const int64_t after, call.IntIn("after", 0, kMaxExtent));
  int64_t& extent = type.dims[static_cast<size_t>(dim)];
  if (__builtin_add_overflow(extent, before + after, &extent)) {
    return Fail(call.Error("the padded dim overflows"));
  }
  return std::vector<TensorType>{type};
}

TypesOr InferConcat(const OpCall& call) {
  if (call.operands.empty()) return Fail(call.Error("needs at least one operand"));
  TensorType type = call.operands[0];
  MW_TRY(call.RequireMinRank(0, 1));
  MW_ASSIGN_OR_RETURN(const int64_t dim, call.IntIn("dim", 0, type.rank() - 1));
  for (size_t i = 1; i < call.operands.size(); ++i) {
    TensorType like = type;
    const TensorType& x = call.operands[i];
    if (x.rank() == type.rank()) {
      like.dims[static_cast<size_t>(dim)] = x.dims[static_cast<size_t>(dim)];
    }
    if (x != like) {
      return Fail(call.Error(fmt::format("operands must be alike but for dim {}", dim)));
    }
    type.dims[static_cast<size_t>(dim)] += x.dims[static_cast<size_t>(dim)];
  }
  return std::vector<TensorType>{type};
}

// kInvalidArgument unless 'dims' increases and lies within the rank.
Status CheckDims(const OpCall& call, int rank) {
  const std::vector<int64_t> dims = call.attrs.Ints("dims");
  int64_t previous = -1;
  for (int64_t dim : dims) {
    if (dim <= previous || dim >= rank) {
      return call.Error(
          fmt::format("dims=[{}] must increase and be below {}", fmt::join(dims, ","), rank));
    }
    previous = dim;
  }
  return OkStatus();
}

TypesOr InferReshape(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireDeclared(1));
  const TensorType& type = call.declared[0];
  if (type.dtype != call.operands[0].dtype || type.elements() != call.operands[0].elements()) {
    return Fail(call.Error(
        fmt::format("cannot become {}: dtype and element count must be equal", type.ToString())));
  }
  return std::vector<TensorType>{type};
}

TypesOr InferTranspose(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  const TensorType& x = call.operands[0];
  const std::vector<int64_t> perm = call.attrs.Ints("perm");
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> identity(x.dims.size());
  std::iota(identity.begin(), identity.end(), 0);
  if (sorted != identity) {
    return Fail(call.Error(fmt::format("perm=[{}] is not a permutation of the {} dims",
                                       fmt::join(perm, ","), x.rank())));
  }
  TensorType type{x.dtype, {}};
  for (int64_t dim : perm) type.dims.push_back(x.dims[static_cast<size_t>(dim)]);
  return std::vector<TensorType>{type};
}

// Which dims a reduction keeps. REQUIRES dims that CheckDims has accepted.
std::vector<bool> KeptDims(const Attrs& attrs, size_t rank) {
  std::vector<bool> kept(rank, true);
  for (int64_t dim : attrs.Ints("dims"))
    MW_CHECK(dim >= 0 && static_cast<size_t>(dim) < rank) << "dim " << dim << " of " << rank;
  for (int64_t dim : attrs.Ints("dims")) kept[static_cast<size_t>(dim)] = false;
  return kept;
}

Dims Without(const Dims& dims, const std::vector<bool>& kept) {
  MW_CHECK(kept.size() == dims.size()) << kept.size() << " marks for " << dims.size() << " dims";
  Dims result;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (kept[i]) result.push_back(dims[i]);
  }
  return result;
}

TypesOr InferReduce(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireFloat(0));
  const TensorType& x = call.operands[0];
  MW_TRY(CheckDims(call, x.rank()));
  DType dtype = x.dtype;
  if (call.op == Op::kReduceSum) {
    MW_ASSIGN_OR_RETURN(dtype, call.ResultDType(x.dtype));
  }
  return std::vector<TensorType>{{dtype, Without(x.dims, KeptDims(call.attrs, x.dims.size()))}};
}

TypesOr InferBroadcast(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireDeclared(1));
  const TensorType& type = call.declared[0];
  MW_TRY(CheckDims(call, type.rank()));
  const TensorType x{type.dtype, Without(type.dims, KeptDims(call.attrs, type.dims.size()))};
  if (call.operands[0] != x) {
    return Fail(call.Error(fmt::format("cannot become {} along dims [{}]", type.ToString(),
                                       fmt::join(call.attrs.Ints("dims"), ","))));
  }
  return std::vector<TensorType>{type};
}

TypesOr InferSumSquares(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireFloat(0));
  return std::vector<TensorType>{{StatisticDType(call.operands[0].dtype), {}}};
}

// slice and pad move positions along one dim, so both of its sides must be whole.
FactorRule OneDimWholeRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const auto dim = static_cast<size_t>(node.attrs.Int("dim"));
  std::vector<FactorIndex> from;
  std::vector<FactorIndex> to;
  for (size_t i = 0; i < node.operands[0].dims.size(); ++i) {
    const int64_t extent = node.operands[0].dims[i];
    from.push_back(i == dim ? rule.AddWhole(extent) : rule.Add(extent));
    to.push_back(i == dim ? rule.AddWhole(node.results[0].dims[i]) : from.back());
  }
  rule.Operand(0, from);
  rule.Result(0, to);
  rule.AllLinear();
  return rule.Finish();
}

FactorRule ConcatRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const auto dim = static_cast<size_t>(node.attrs.Int("dim"));
  std::vector<FactorIndex> factors;
  for (size_t i = 0; i < node.results[0].dims.size(); ++i) {
    factors.push_back(i == dim ? -1 : rule.Add(node.results[0].dims[i]));
  }
  for (size_t i = 0; i < node.operands.size(); ++i) {
    factors[dim] = rule.AddWhole(node.operands[i].dims[dim]);
    rule.Operand(i, factors);
  }
  factors[dim] = rule.AddWhole(node.results[0].dims[dim]);
  rule.Result(0, factors);
  return rule.Finish();
}

// Factors of a reshape, found group by group: a group is the shortest run of dims on both sides
// with equal products.
class ReshapeMatcher {
 public:
  ReshapeMatcher(const NodeTypes& node, RuleBuilder& rule)
      : in_(node.operands[0].dims), out_(node.results[0].dims), rule_(rule) {}

  void Run() {
    in_factors_.resize(in_.size());
    out_factors_.resize(out_.size());
    size_t i = 0;
    size_t j = 0;
    while (i < in_.size() || j < out_.size()) {
      const size_t in_begin = i;
      const size_t out_begin = j;
      int64_t in_product = i < in_.size() ? in_[i++] : 1;
      int64_t out_product = j < out_.size() ? out_[j++] : 1;
      while (in_product != out_product) {
        if (in_product < out_product) {
          in_product *= in_[i++];
        } else {
          out_product *= out_[j++];
        }
      }
      MW_CHECK(i <= in_.size() && j <= out_.size()) << "a reshape changes the count of elements";
      MatchGroup(in_begin, i, out_begin, j);
    }
  }

  TensorFactors in_factors_;
  TensorFactors out_factors_;

 private:
  // Common refinement, major first. Dims that do not refine each other are whole, and so are dims
  // of size 1, which have no partner on the other side.
  void MatchGroup(size_t in_begin, size_t in_end, size_t out_begin, size_t out_end) {
    std::vector<size_t> in_wide = Wide(in_, in_begin, in_end, in_factors_);
    std::vector<size_t> out_wide = Wide(out_, out_begin, out_end, out_factors_);
    struct Match {
      size_t in;
      size_t out;
      int64_t size;
    };
    std::vector<Match> matches;
    size_t i = 0;
    size_t j = 0;
    int64_t in_left = 1;
    int64_t out_left = 1;
    while (i < in_wide.size() && j < out_wide.size()) {
      if (in_left == 1) in_left = in_[in_wide[i]];
      if (out_left == 1) out_left = out_[out_wide[j]];
      const int64_t size = std::min(in_left, out_left);
      if (in_left % size != 0 || out_left % size != 0) {
        for (size_t dim : in_wide) in_factors_[dim] = {rule_.AddWhole(in_[dim])};
        for (size_t dim : out_wide) out_factors_[dim] = {rule_.AddWhole(out_[dim])};
        return;
      }
      matches.push_back({in_wide[i], out_wide[j], size});
      in_left /= size;
      out_left /= size;
      if (in_left == 1) ++i;
      if (out_left == 1) ++j;
    }
    MW_CHECK(in_left == 1 && out_left == 1)
        << "a group of dims is left with " << in_left << " and " << out_left;
    for (const Match& match : matches) {
      const FactorIndex factor = rule_.Add(match.size);
      in_factors_[match.in].push_back(factor);
      out_factors_[match.out].push_back(factor);
    }
  }

  // The dims of [begin, end) larger than 1; the others become whole.
  std::vector<size_t> Wide(const Dims& dims, size_t begin, size_t end, TensorFactors& factors) {
    std::vector<size_t> wide;
    for (size_t dim = begin; dim < end; ++dim) {
      if (dims[dim] > 1) {
        wide.push_back(dim);
      } else {
        factors[dim] = {rule_.AddWhole(1)};
      }
    }
    return wide;
  }

  const Dims& in_;
  const Dims& out_;
  RuleBuilder& rule_;
};

FactorRule ReshapeRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  ReshapeMatcher matcher(node, rule);
  matcher.Run();
  rule.OperandDims(0, matcher.in_factors_);
  rule.ResultDims(0, matcher.out_factors_);
  rule.AllLinear();
  return rule.Finish();
}

FactorRule TransposeRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const std::vector<FactorIndex> from = rule.AddDims(node.operands[0].dims);
  std::vector<FactorIndex> to;
  for (int64_t dim : node.attrs.Ints("perm")) to.push_back(from[static_cast<size_t>(dim)]);
  rule.Operand(0, from);
  rule.Result(0, to);
  rule.AllLinear();
  return rule.Finish();
}

// Of reduce_sum, and of broadcast with the sides exchanged.
FactorRule ReduceRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const bool spreads = node.op == Op::kBroadcast;
  const std::vector<FactorIndex> wide =
      rule.AddDims(spreads ? node.results[0].dims : node.operands[0].dims);
  const std::vector<bool> kept = KeptDims(node.attrs, wide.size());
  std::vector<FactorIndex> narrow;
  for (size_t i = 0; i < wide.size(); ++i) {
    if (kept[i]) narrow.push_back(wide[i]);
  }
  rule.Operand(0, spreads ? narrow : wide);
  rule.Result(0, spreads ? wide : narrow);
  if (node.op == Op::kReduceMax) {
    rule.Partial(0, PartialKind::kMax);
  } else {
    rule.AllLinear();
  }
  return rule.Finish();
}

FactorRule SumSquaresRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  rule.Operand(0, rule.AddDims(node.operands[0].dims));
  return rule.Finish();
}

double OperandFlops(const NodeTypes& node) {
  return static_cast<double>(node.operands[0].elements());
}
double SumSquaresFlops(const NodeTypes& node) { return 2 * OperandFlops(node); }

GradsOr SliceGrad(GradCall& call) {
  const int64_t dim = call.node.attrs.Int("dim");
  const int64_t start = call.node.attrs.Int("start");
  const int64_t extent = call.in_type(0).dims[static_cast<size_t>(dim)];
  const int64_t after = extent - start - call.node.attrs.Int("size");
  return std::vector<ValueId>{call.builder.AddOne(
      Op::kPad, {call.grads[0]}, {{"dim", dim}, {"before", start}, {"after", after}})};
}

GradsOr PadGrad(GradCall& call) {
  const int64_t dim = call.node.attrs.Int("dim");
  const int64_t size = call.in_type(0).dims[static_cast<size_t>(dim)];
  return std::vector<ValueId>{call.builder.AddOne(
      Op::kSlice, {call.grads[0]},
      {{"dim", dim}, {"start", call.node.attrs.Int("before")}, {"size", size}})};
}

GradsOr ReshapeGrad(GradCall& call) {
  const TensorType x = call.in_type(0);
  return std::vector<ValueId>{call.builder.AddOne(Op::kReshape, {call.grads[0]}, {}, {x})};
}

ValueId InverseTranspose(Builder& builder, ValueId value, const std::vector<int64_t>& perm) {
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) {
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  }
  return builder.AddOne(Op::kTranspose, {value}, {{"perm", inverse}});
}

GradsOr TransposeGrad(GradCall& call) {
  return std::vector<ValueId>{
      InverseTranspose(call.builder, call.grads[0], call.node.attrs.Ints("perm"))};
}

GradsOr ConcatGrad(GradCall& call) {
  const int64_t dim = call.node.attrs.Int("dim");
  std::vector<ValueId> grads;
  int64_t start = 0;
  for (size_t i = 0; i < call.node.inputs.size(); ++i) {
    const int64_t size = call.in_type(i).dims[static_cast<size_t>(dim)];
    grads.push_back(call.builder.AddOne(Op::kSlice, {call.grads[0]},
                                        {{"dim", dim}, {"start", start}, {"size", size}}));
    start += size;
  }
  return grads;
}

GradsOr ReduceSumGrad(GradCall& call) {
  const TensorType x = call.in_type(0);
  const ValueId dy = call.InDType(call.grads[0], x.dtype);
  return std::vector<ValueId>{Broadcast(call.builder, dy, call.node.attrs.Ints("dims"), x)};
}

GradsOr BroadcastGrad(GradCall& call) {
  return std::vector<ValueId>{call.builder.AddOne(Op::kReduceSum, {call.grads[0]},
                                                  {{"dims", call.node.attrs.Ints("dims")}})};
}

// Those that equal the largest one share its gradient.
GradsOr ReduceMaxGrad(GradCall& call) {
  Builder& b = call.builder;
  const TensorType x = call.in_type(0);
  const std::vector<int64_t> dims = call.node.attrs.Ints("dims");
  const ValueId largest = Broadcast(b, call.node.outputs[0], dims, x);
  const ValueId equal = InDType(b, b.AddOne(Op::kEqual, {call.in(0), largest}), x.dtype);
  const ValueId count = b.AddOne(Op::kReduceSum, {equal}, {{"dims", dims}});
  const ValueId share = b.AddOne(Op::kDivide, {call.grads[0], count});
  return std::vector<ValueId>{b.AddOne(Op::kMul, {equal, Broadcast(b, share, dims, x)})};
}

// d(sum x^2) = 2 x dy.
GradsOr SumSquaresGrad(GradCall& call) {
  Builder& b = call.builder;
  const ValueId scaled = b.AddOne(Op::kMulScalar, {call.in(0), call.grads[0]});
  return std::vector<ValueId>{b.AddOne(Op::kScale, {scaled}, {{"factor", 2.0}})};
}

}  // namespace

void AddStructureSchemas(SchemaTable& table) {
  Row(table, Op::kSlice) = {InferSlice, OneDimWholeRule, NoFlops, nullptr, SliceGrad};
  Row(table, Op::kPad) = {InferPad, OneDimWholeRule, NoFlops, nullptr, PadGrad};
  Row(table, Op::kReshape) = {InferReshape, ReshapeRule, NoFlops,        nullptr,
                              ReshapeGrad,  1,           InPlace::kFirst};
  Row(table, Op::kTranspose) = {InferTranspose, TransposeRule, NoFlops, nullptr, TransposeGrad};
  Row(table, Op::kConcat) = {InferConcat, ConcatRule, NoFlops, nullptr, ConcatGrad};
  Row(table, Op::kBroadcast) = {InferBroadcast, ReduceRule, NoFlops, nullptr, BroadcastGrad};
  Row(table, Op::kReduceSum) = {InferReduce, ReduceRule, OperandFlops, nullptr, ReduceSumGrad};
  Row(table, Op::kReduceMax) = {InferReduce, ReduceRule, OperandFlops, nullptr, ReduceMaxGrad};
  Row(table, Op::kSumSquares) = {InferSumSquares, SumSquaresRule, SumSquaresFlops, nullptr,
                                 SumSquaresGrad};
}

}  // namespace meshwright::ir
