// The rewrite that pads what a tensor axis does not divide: what graphs compute stays what it is,
// and gradients of padding are zeros.
#include "planner/padding.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "ir/autodiff.h"
#include "ir/builder.h"
#include "ops/kernel.h"

namespace meshwright::planner {
namespace {

using ir::Builder;
using ir::Dims;
using ir::DType;
using ir::Graph;
using ir::Op;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kMask = 0x1p100;

// The place of an element in a tensor of other dims; nothing: it is not in there.
std::optional<int64_t> PlaceIn(int64_t at, const Dims& dims, const Dims& other) {
  int64_t place = 0;
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    const int64_t index = at % dims[d];
    at /= dims[d];
    if (index >= other[d]) return std::nullopt;
    place += index * stride;
    stride *= other[d];
  }
  return place;
}

ops::HostTensor Values(const ir::Node& node, const ir::TensorType& type) {
  ops::HostTensor tensor{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
  const ir::ShardedDims logical = ir::ShardedDims::FromAttrs(node.attrs);
  const Dims& dims = logical.whole() ? type.dims : logical.global_dims;
  for (int64_t i = 0; i < type.elements(); ++i) {
    const std::optional<int64_t> place = PlaceIn(i, type.dims, dims);
    const uint32_t bits = PhiloxBits(5, StreamOf(node.attrs.Str("name")), 0,
                                     static_cast<uint64_t>(place.value_or(0)));
    const double value = place ? static_cast<double>(bits) / 4294967296.0 - 0.5 : 0;
    const auto id = static_cast<int32_t>(bits % 9);
    if (type.dtype == DType::kF64) std::memcpy(&tensor.data[static_cast<size_t>(i) * 8], &value, 8);
    if (type.dtype == DType::kI32) std::memcpy(&tensor.data[static_cast<size_t>(i) * 4], &id, 4);
  }
  return tensor;
}

std::map<std::string, ops::HostTensor> Evaluated(const Graph& graph) {
  ops::RunContext context;
  context.seed = 3;
  const auto results = ops::Evaluate(
      ops::Backend::kReference, graph,
      [&](const ir::Node& node) -> Result<ops::HostTensor> {
        return Values(node, graph.type(node.outputs[0]));
      },
      context);
  EXPECT_TRUE(results.has_value()) << results.error();
  std::map<std::string, ops::HostTensor> named;
  for (size_t i = 0; results.has_value() && i < graph.outputs.size(); ++i) {
    named[graph.outputs[i].name] = (*results)[i];
  }
  return named;
}

double At(const ops::HostTensor& tensor, int64_t i) {
  double value = 0;
  std::memcpy(&value, &tensor.data[static_cast<size_t>(i) * 8], 8);
  return value;
}

// Of all that either graph gives out; gradients of padding are zeros.
void ExpectSame(const Graph& plain, const Graph& padded) {
  const auto expected = Evaluated(plain);
  const auto actual = Evaluated(padded);
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, tensor] : expected) {
    const ops::HostTensor& other = actual.at(name);
    if (tensor.type.dtype != DType::kF64) continue;
    for (int64_t i = 0; i < other.type.elements(); ++i) {
      const auto place = PlaceIn(i, other.type.dims, tensor.type.dims);
      const double wanted = place ? At(tensor, *place) : 0;
      ASSERT_NEAR(At(other, i), wanted, 1e-12 * std::max(1.0, std::abs(wanted)))
          << name << " at " << i << (place ? "" : ", which is padding");
    }
  }
}

struct Model {
  Builder b{"model"};
  ValueId Param(const std::string& name, Dims dims) {
    return b.AddOne(Op::kParam, {}, {{"name", name}, {"init", std::string("normal")}},
                    {{DType::kF64, std::move(dims)}});
  }
  ValueId Input(const std::string& name, DType dtype, Dims dims) {
    return b.AddOne(Op::kInput, {}, {{"name", name}}, {{dtype, std::move(dims)}});
  }
  ValueId Product(const std::string& equation, ValueId x, ValueId w) {
    return b.AddOne(Op::kEinsum, {x, w}, {{"equation", equation}});
  }
  ValueId Sum(ValueId x) {
    std::vector<int64_t> dims(b.type(x).dims.size());
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
    return b.AddOne(Op::kReduceSum, {x}, {{"dims", dims}});
  }
  Graph Differentiated(ValueId loss) {
    b.SetOutput("loss_sum", loss);
    b.SetOutput("count", b.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {{DType::kF64, {}}}));
    return b.Finish().value();
  }
};

void ExpectSameWithGradients(const Graph& graph, const PaddedParams& params) {
  const auto padded = PadGraph(graph, params, kMask);
  ASSERT_TRUE(padded.has_value()) << padded.error();
  ExpectSame(ir::Differentiate(graph).value(), ir::Differentiate(*padded).value());
}

// Each function between two products, along the padded width.
TEST(PaddingRewrite, WhateverStandsBetweenTwoProducts) {
  for (const Op op : {Op::kSigmoid, Op::kGelu, Op::kExp, Op::kSoftplus, Op::kSquare, Op::kTanh,
                      Op::kSoftmax, Op::kLogSoftmax, Op::kRelu, Op::kAbs}) {
    Model m;
    const ValueId x = m.Input("x", DType::kF64, {5, 7});
    ValueId h = m.Product("bd,df->bf", x, m.Param("up", {7, 6}));
    h = m.b.AddOne(Op::kAdd, {h, m.Param("bias", {6})});
    h = m.b.AddOne(op, {h});
    const ValueId y = m.Product("bf,fd->bd", h, m.Param("down", {6, 3}));
    const ValueId squares = m.b.AddOne(Op::kSumSquares, {h});
    m.b.SetOutput("h", h);
    const Graph graph = m.Differentiated(m.b.AddOne(Op::kAdd, {m.Sum(y), squares}));
    ExpectSameWithGradients(graph, {{"up", {7, 8}}, {"bias", {8}}, {"down", {8, 3}}});
    // A bias that nobody padded gets its zeros where it is used.
    ExpectSameWithGradients(graph, {{"up", {7, 8}}, {"down", {8, 3}}});
  }
}

TEST(PaddingRewrite, DivisionsByWhatHasPaddingSeeNone) {
  Model m;
  const ValueId x = m.Input("x", DType::kF64, {5, 7});
  const ValueId h = m.Product("bd,df->bf", x, m.Param("up", {7, 6}));
  const ValueId ratio = m.b.AddOne(Op::kDivide, {h, m.b.AddOne(Op::kExp, {h})});
  ExpectSameWithGradients(m.Differentiated(m.Sum(ratio)), {{"up", {7, 8}}});
}

TEST(PaddingRewrite, WordsThatAreNoneHaveNoProbability) {
  Model m;
  const ValueId table = m.Param("table", {9, 7});
  const ValueId ids = m.Input("ids", DType::kI32, {5});
  const ValueId x = m.b.AddOne(Op::kEmbedding, {table, ids});
  const ValueId logits = m.Product("bd,vd->bv", x, table);
  const std::vector<ValueId> loss = m.b.Add(Op::kCrossEntropy, {logits, ids});
  const ValueId lse = m.b.AddOne(Op::kLogSumExp, {logits});
  m.b.SetOutput("logits", logits);
  m.b.SetOutput("probabilities", m.b.AddOne(Op::kSoftmax, {logits}));
  const ValueId smooth = m.b.AddOne(Op::kScale, {m.Sum(logits)}, {{"factor", 0.1}});
  const ValueId sum = m.b.AddOne(Op::kAdd, {loss[0], m.b.AddOne(Op::kSumSquares, {lse})});
  ExpectSameWithGradients(m.Differentiated(m.b.AddOne(Op::kAdd, {sum, smooth})),
                          {{"table", {12, 7}}});
}

TEST(PaddingRewrite, HeadsInAProductOfDims) {
  Model m;
  const ValueId x = m.Input("x", DType::kF64, {2, 4, 6});
  const ValueId flat = m.Product("bsd,de->bse", x, m.Param("q", {6, 6}));
  const ValueId heads = m.b.AddOne(Op::kReshape, {flat}, {}, {{DType::kF64, {2, 4, 3, 2}}});
  const std::vector<ValueId> o = m.b.Add(Op::kAttention, {heads, heads, heads});
  const ValueId merged = m.b.AddOne(Op::kReshape, {o[0]}, {}, {{DType::kF64, {2, 4, 6}}});
  const ValueId y = m.Product("bse,ed->bsd", merged, m.Param("o", {6, 6}));
  const Graph graph = m.Differentiated(m.b.AddOne(Op::kSumSquares, {y}));
  std::vector<std::string> notes;
  const PaddedParams params = FindPadding(graph, 4, true, notes);
  EXPECT_EQ(params, (PaddedParams{{"q", {6, 8}}, {"o", {8, 6}}}));
  ExpectSameWithGradients(graph, params);
  EXPECT_THAT(FindPadding(graph, 3, true, notes), IsEmpty());
}

TEST(PaddingRewrite, KeyHeadsAreRepeatedWithTheirGradients) {
  Model m;
  const ValueId x = m.Input("x", DType::kF64, {2, 4, 6});
  const ValueId q = m.Product("bsd,dhe->bshe", x, m.Param("q", {6, 8, 2}));
  const ValueId k = m.Product("bsd,dge->bsge", x, m.Param("k", {6, 2, 2}));
  const ValueId v = m.Product("bsd,dge->bsge", x, m.Param("v", {6, 2, 2}));
  const std::vector<ValueId> o = m.b.Add(Op::kAttention, {q, k, v});
  const Graph graph = m.Differentiated(m.b.AddOne(Op::kSumSquares, {o[0]}));
  const Graph repeated = RepeatKeyHeads(graph, 4).value();
  ExpectSame(ir::Differentiate(graph).value(), ir::Differentiate(repeated).value());
  EXPECT_EQ(repeated.NodesOf(Op::kBroadcast).size(), 2U);
  EXPECT_EQ(RepeatKeyHeads(graph, 3).value(), graph) << "2 heads are no part of 3 devices";
}

// A quarter more rows are worth it, a third is not.
TEST(PaddingRewrite, SmallTablesStayWhole) {
  Model m;
  const ValueId ids = m.Input("ids", DType::kI32, {5});
  ValueId x = m.b.AddOne(Op::kEmbedding, {m.Param("large", {9, 7}), ids});
  x = m.b.AddOne(Op::kAdd, {x, m.b.AddOne(Op::kEmbedding, {m.Param("small", {3, 7}), ids})});
  const Graph graph = m.Differentiated(m.b.AddOne(Op::kSumSquares, {x}));
  std::vector<std::string> notes;
  EXPECT_EQ(FindPadding(graph, 2, true, notes), (PaddedParams{{"large", {10, 7}}}));
  EXPECT_THAT(notes.front(), HasSubstr("large: 9 units are padded to 10 for tensor=2"));
  EXPECT_THAT(FindPadding(graph, 2, false, notes), IsEmpty());
}

}  // namespace
}  // namespace meshwright::planner
