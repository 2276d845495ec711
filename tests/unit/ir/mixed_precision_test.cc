// Which type each op of a mixed-precision graph computes in, and which casts become attributes.
#include "ir/mixed_precision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "ir/autodiff.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Dims kTokens = {2, 4, 8};  // [b, s, d]

// Small graphs over an activation x f32[2,4,8].
class MixedGraph : public Builder {
 public:
  MixedGraph() : Builder("loss") { x = Value("x", kTokens); }

  ValueId Value(const std::string& name, Dims dims, DType dtype = DType::kF32) {
    return AddOne(Op::kInput, {}, {{"name", name}}, {{dtype, std::move(dims)}});
  }
  ValueId Weight(const std::string& name, Dims dims = {8, 8}) {
    return AddOne(Op::kParam, {}, {{"name", name}}, {{DType::kF32, std::move(dims)}});
  }
  ValueId Product(ValueId a, ValueId w) {
    return AddOne(Op::kEinsum, {a, w}, {{"equation", "bsk,kn->bsn"}});
  }
  ValueId CastTo(ValueId a, const std::string& dtype) {
    return AddOne(Op::kCast, {a}, {{"dtype", dtype}});
  }
  ValueId SumOf(ValueId a) {
    return AddOne(Op::kReduceSum, {a}, {{"dims", std::vector<int64_t>{0, 1, 2}}});
  }
  // The graph with `result` as its output "y".
  Graph Plain(ValueId result) {
    SetOutput("y", result);
    auto graph = Finish();
    EXPECT_TRUE(graph.has_value()) << graph.error();
    return graph.value_or(Graph{});
  }
  Graph Mixed(ValueId result) {
    const auto graph = ToMixedPrecision(Plain(result), DType::kBF16);
    EXPECT_TRUE(graph.has_value()) << graph.error();
    if (!graph) return {};
    EXPECT_TRUE(VerifyGraph(*graph).ok()) << VerifyGraph(*graph);
    return *graph;
  }
  // A loss of one value: what Differentiate asks for.
  Graph Loss(ValueId result) {
    SetOutput("loss_sum", SumOf(result));
    SetOutput("count", AddOne(Op::kConstant, {}, {{"value", 8.0}}, {{DType::kF32, {}}}));
    auto graph = Finish();
    EXPECT_TRUE(graph.has_value()) << graph.error();
    return graph.value_or(Graph{});
  }

  ValueId x;
};

// "bf16,bf16->f32": the types of a node's operands and of its result 0.
std::string SignatureOf(const Graph& graph, const Node& node) {
  std::vector<std::string_view> operands;
  for (ValueId id : node.inputs) operands.push_back(DTypeName(graph.type(id).dtype));
  return fmt::format("{}->{}", fmt::join(operands, ","),
                     DTypeName(graph.type(node.outputs[0]).dtype));
}

std::vector<std::string> SignaturesOf(const Graph& graph, Op op) {
  std::vector<std::string> signatures;
  for (NodeId id : graph.NodesOf(op)) signatures.push_back(SignatureOf(graph, graph.node(id)));
  return signatures;
}

// The ops whose results are cast.
std::vector<std::string> CastOps(const Graph& graph) {
  std::vector<std::string> ops;
  for (NodeId id : graph.NodesOf(Op::kCast)) {
    ops.emplace_back(OpName(graph.producer(graph.node(id).inputs[0]).op));
  }
  return ops;
}

Graph Folded(const Graph& graph) {
  const auto folded = FoldCasts(graph);
  EXPECT_TRUE(folded.has_value()) << folded.error();
  return folded.value_or(Graph{});
}

TEST(ToMixedPrecision, ResidualAddStaysInF32) {
  for (const bool residual_first : {true, false}) {
    MixedGraph b;
    const ValueId product = b.Product(b.x, b.Weight("w"));
    const Graph graph = b.Mixed(residual_first ? b.AddOne(Op::kAdd, {b.x, product})
                                               : b.AddOne(Op::kAdd, {product, b.x}));
    EXPECT_THAT(SignaturesOf(graph, Op::kAdd), ElementsAre("f32,f32->f32"));
    EXPECT_THAT(SignaturesOf(graph, Op::kEinsum), ElementsAre("bf16,bf16->f32"));
  }
}

TEST(ToMixedPrecision, BiasAndGateFollowTheirProduct) {
  MixedGraph b;
  const ValueId up = b.AddOne(Op::kAdd, {b.Product(b.x, b.Weight("w")), b.Weight("b", {8})});
  const ValueId gate = b.AddOne(Op::kMul, {b.AddOne(Op::kGelu, {up}), up});
  const Graph graph = b.Mixed(b.Product(gate, b.Weight("v")));
  EXPECT_THAT(SignaturesOf(graph, Op::kAdd), ElementsAre("bf16,bf16->bf16"));
  EXPECT_THAT(SignaturesOf(graph, Op::kGelu), ElementsAre("bf16->bf16"));
  EXPECT_THAT(SignaturesOf(graph, Op::kMul), ElementsAre("bf16,bf16->bf16"));
  EXPECT_THAT(CastOps(graph), ElementsAre("input", "param", "param", "param"));
}

TEST(ToMixedPrecision, ValuesThatNoProductMadeStayInF32) {
  MixedGraph b;
  const ValueId y = b.AddOne(Op::kGelu, {b.AddOne(Op::kAdd, {b.x, b.Weight("b", {8})})});
  const Graph graph = b.Mixed(b.AddOne(Op::kScale, {y}, {{"factor", 0.5}}));
  EXPECT_THAT(SignaturesOf(graph, Op::kAdd), ElementsAre("f32,f32->f32"));
  EXPECT_THAT(SignaturesOf(graph, Op::kGelu), ElementsAre("f32->f32"));
  EXPECT_THAT(CastOps(graph), IsEmpty());
}

TEST(ToMixedPrecision, NormsRoundWhatTheyHandToProducts) {
  MixedGraph b;
  const ValueId g = b.Weight("g", {8});
  const ValueId layer = b.Add(Op::kLayerNorm, {b.x, g, b.Weight("b", {8})}, {{"eps", 1e-5}})[0];
  const ValueId rms = b.Add(Op::kRmsNorm, {b.x, g}, {{"eps", 1e-5}})[0];
  const ValueId w = b.Weight("w");
  const Graph graph = b.Mixed(b.AddOne(Op::kAdd, {b.Product(layer, w), b.Product(rms, w)}));
  EXPECT_THAT(SignaturesOf(graph, Op::kLayerNorm), ElementsAre("f32,f32,f32->bf16"));
  EXPECT_THAT(SignaturesOf(graph, Op::kRmsNorm), ElementsAre("f32,f32->bf16"));
  const Node& norm = graph.node(graph.NodesOf(Op::kLayerNorm)[0]);
  EXPECT_EQ(norm.attrs.Str("dtype"), "bf16");
  EXPECT_EQ(graph.type(norm.outputs[1]).dtype, DType::kF32);
}

// The reader in bf16 wants the rounded product, which a product in f32 would not give.
TEST(ToMixedPrecision, ProductOfReadersInTwoTypesKeepsItsCast) {
  MixedGraph b;
  const ValueId product = b.Product(b.x, b.Weight("w"));
  const ValueId residual = b.AddOne(Op::kAdd, {b.x, product});
  const ValueId gate = b.Product(b.AddOne(Op::kGelu, {product}), b.Weight("v"));
  const Graph graph = b.Mixed(b.AddOne(Op::kAdd, {residual, gate}));
  EXPECT_THAT(SignaturesOf(graph, Op::kEinsum), ElementsAre("bf16,bf16->bf16", "bf16,bf16->f32"));
  EXPECT_FALSE(graph.node(graph.NodesOf(Op::kEinsum)[0]).attrs.Has("dtype"));
  EXPECT_THAT(CastOps(graph), ElementsAre("input", "param", "einsum", "param"));
}

TEST(ToMixedPrecision, OutputsKeepTheirTypes) {
  MixedGraph b;
  const ValueId product = b.Product(b.x, b.Weight("w"));
  b.SetOutput("product", product);
  b.SetOutput("gelu", b.AddOne(Op::kGelu, {product}));
  b.SetOutput("ids", b.Value("ids", {3}, DType::kI32));
  b.SetOutput("wide", b.Value("wide", {3}, DType::kF64));
  b.SetOutput("weight", b.Weight("v"));
  const Graph plain = b.Plain(b.SumOf(product));
  const auto graph = ToMixedPrecision(plain, DType::kBF16);
  ASSERT_TRUE(graph.has_value()) << graph.error();
  ASSERT_EQ(graph->outputs.size(), plain.outputs.size());
  for (const NamedValue& output : plain.outputs) {
    const ValueId mixed = graph->Output(output.name);
    ASSERT_TRUE(mixed.valid()) << output.name;
    EXPECT_EQ(graph->type(mixed), plain.type(output.value)) << output.name;
  }
  EXPECT_THAT(SignaturesOf(*graph, Op::kGelu), ElementsAre("bf16->bf16"));
  EXPECT_THAT(SignaturesOf(*graph, Op::kReduceSum), ElementsAre("f32->f32"));
}

TEST(ToMixedPrecision, ScalarMultiplierStaysInF32) {
  MixedGraph b;
  const ValueId product = b.Product(b.x, b.Weight("w"));
  const Graph graph = b.Mixed(b.AddOne(Op::kMulScalar, {product, b.Weight("s", {})}));
  EXPECT_THAT(SignaturesOf(graph, Op::kMulScalar), ElementsAre("bf16,f32->bf16"));
}

TEST(ToMixedPrecision, MovedParamsStayInF32UntilAProductReadsThem) {
  MixedGraph b;
  const std::vector<int64_t> swap = {1, 0};
  const ValueId turned = b.AddOne(Op::kTranspose, {b.Weight("w")}, {{"perm", swap}});
  const ValueId shaped = b.AddOne(Op::kReshape, {b.Weight("v", {64})}, {}, {{DType::kF32, {8, 8}}});
  const Graph graph = b.Mixed(b.Product(b.Product(b.x, turned), shaped));
  EXPECT_THAT(SignaturesOf(graph, Op::kTranspose), ElementsAre("f32->f32"));
  EXPECT_THAT(SignaturesOf(graph, Op::kReshape), ElementsAre("f32->f32"));
  EXPECT_THAT(CastOps(graph), ElementsAre("input", "transpose", "reshape"));
}

TEST(ToMixedPrecision, MovedProductsStayInBf16) {
  MixedGraph b;
  const Attrs swap = {{"perm", std::vector<int64_t>{0, 2, 1, 3}}};
  const ValueId product = b.Product(b.x, b.Weight("w"));
  const ValueId heads = b.AddOne(Op::kReshape, {product}, {}, {{DType::kF32, {2, 4, 2, 4}}});
  ValueId y = b.AddOne(Op::kTranspose, {b.AddOne(Op::kTranspose, {heads}, swap)}, swap);
  y = b.AddOne(Op::kSlice, {y}, {{"dim", 3}, {"start", 0}, {"size", 2}});
  y = b.AddOne(Op::kPad, {y}, {{"dim", 3}, {"before", 0}, {"after", 2}});
  y = b.AddOne(Op::kRotary, {y}, {{"base", 1e4}, {"inverse", int64_t{0}}});
  const Graph graph = b.Mixed(b.Add(Op::kAttention, {y, y, heads}, {{"causal", 1}})[0]);
  for (const Op op : {Op::kReshape, Op::kTranspose, Op::kSlice, Op::kPad, Op::kRotary}) {
    EXPECT_THAT(SignaturesOf(graph, op), Each("bf16->bf16")) << OpName(op);
    EXPECT_THAT(SignaturesOf(graph, op), Not(IsEmpty())) << OpName(op);
  }
  EXPECT_THAT(SignaturesOf(graph, Op::kAttention), ElementsAre("bf16,bf16,bf16->bf16"));
  EXPECT_THAT(CastOps(graph), ElementsAre("input", "param", "attention"));
}

// Tokens go to experts, through them and back in bf16; what a token takes of each is a statistic.
ValueId LayerOfExperts(MixedGraph& b) {
  const ValueId slot = b.Value("slot", {2, 4, 2}, DType::kI32);
  const ValueId used = b.Value("used", {2, 3}, DType::kI32);
  const ValueId weights = b.Weight("weights", {2, 4, 2});
  const ValueId slots =
      b.AddOne(Op::kDispatch, {b.x, slot}, {{"groups", int64_t{1}}, {"capacity", int64_t{8}}});
  const ValueId inner = b.AddOne(Op::kGroupedMatmul, {slots, used, b.Weight("up", {3, 8, 5})});
  const ValueId outer = b.AddOne(Op::kGroupedMatmul,
                                 {b.AddOne(Op::kSilu, {inner}), used, b.Weight("down", {3, 5, 8})});
  return b.AddOne(Op::kCombine, {outer, slot, weights});
}

TEST(ToMixedPrecision, ExpertsComputeInBf16AndAreWeighedInF32) {
  MixedGraph b;
  const Graph graph = b.Mixed(b.AddOne(Op::kAdd, {b.x, LayerOfExperts(b)}));
  EXPECT_THAT(SignaturesOf(graph, Op::kDispatch), ElementsAre("bf16,i32->bf16"));
  EXPECT_THAT(SignaturesOf(graph, Op::kGroupedMatmul), Each("bf16,i32,bf16->bf16"));
  EXPECT_THAT(SignaturesOf(graph, Op::kSilu), ElementsAre("bf16->bf16"));
  EXPECT_THAT(SignaturesOf(graph, Op::kCombine), ElementsAre("bf16,i32,f32->bf16"));
  EXPECT_THAT(SignaturesOf(graph, Op::kAdd), ElementsAre("f32,f32->f32"));
}

TEST(ToMixedPrecision, ScalarProductIsASumInF32) {
  MixedGraph b;
  const ValueId product = b.Product(b.x, b.Weight("w"));
  const Graph graph = b.Mixed(b.AddOne(Op::kEinsum, {product, b.x}, {{"equation", "bsd,bsd->"}}));
  EXPECT_THAT(SignaturesOf(graph, Op::kEinsum), ElementsAre("bf16,bf16->f32", "f32,f32->f32"));
}

// So that each gradient of a weight is f32 before they are added.
TEST(ToMixedPrecision, EveryReadOfAParamHasItsOwnCast) {
  MixedGraph b;
  const ValueId w = b.Weight("w");
  const Graph graph = b.Mixed(b.Product(b.Product(b.x, w), w));
  const std::vector<NodeId> products = graph.NodesOf(Op::kEinsum);
  ASSERT_EQ(products.size(), 2u);
  EXPECT_NE(graph.node(products[0]).inputs[1], graph.node(products[1]).inputs[1]);
  EXPECT_THAT(CastOps(graph), ElementsAre("input", "param", "param"));
}

TEST(ToMixedPrecision, OtherValuesAreCastOncePerLayer) {
  MixedGraph b;
  b.SetLayer(0);
  const ValueId y = b.AddOne(Op::kGelu, {b.x});
  ValueId sum = b.AddOne(Op::kAdd, {b.Product(y, b.Weight("w0")), b.Product(y, b.Weight("w1"))});
  b.SetLayer(1);
  sum = b.AddOne(Op::kAdd, {sum, b.Product(y, b.Weight("w2"))});
  const Graph graph = b.Mixed(sum);
  std::multiset<int> layers;
  for (NodeId id : graph.NodesOf(Op::kCast)) {
    const Node& cast = graph.node(id);
    if (graph.producer(cast.inputs[0]).op == Op::kGelu) layers.insert(cast.layer);
  }
  EXPECT_THAT(layers, ElementsAre(0, 1));
}

TEST(ToMixedPrecision, ComputesInTypesOf16BitsOnly) {
  MixedGraph b;
  const Graph plain = b.Plain(b.Product(b.x, b.Weight("w")));
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32}) {
    const auto refused = ToMixedPrecision(plain, dtype);
    ASSERT_FALSE(refused.has_value()) << DTypeName(dtype);
    EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), HasSubstr(fmt::format("not {}", DTypeName(dtype))));
  }
  const auto half = ToMixedPrecision(plain, DType::kF16);
  ASSERT_TRUE(half.has_value()) << half.error();
  EXPECT_THAT(SignaturesOf(*half, Op::kEinsum), ElementsAre("f16,f16->f32"));
}

TEST(FoldCasts, OneCastOfAllReadersBecomesTheAttribute) {
  MixedGraph b;
  const ValueId half = b.CastTo(b.x, "bf16");
  const ValueId sum = b.AddOne(Op::kReduceSum, {half}, {{"dims", std::vector<int64_t>{0, 1}}});
  b.SetOutput("a", b.AddOne(Op::kGelu, {b.CastTo(sum, "f32")}));
  const Graph graph = Folded(b.Plain(b.AddOne(Op::kSilu, {b.CastTo(sum, "f32")})));
  EXPECT_THAT(SignaturesOf(graph, Op::kReduceSum), ElementsAre("bf16->f32"));
  EXPECT_THAT(CastOps(graph), ElementsAre("input"));
}

TEST(FoldCasts, CastsStayWhereTheAttributeWouldSayLess) {
  const auto product = [](MixedGraph& b, DType dtype) {
    return b.Product(b.Value("a", kTokens, dtype), b.Value("w", {8, 8}, dtype));
  };
  MixedGraph is_output;
  const ValueId made = product(is_output, DType::kBF16);
  is_output.SetOutput("made", made);
  MixedGraph two_types;
  const ValueId twice = product(two_types, DType::kF32);
  two_types.SetOutput("half", two_types.CastTo(twice, "f16"));
  MixedGraph from_f64;
  MixedGraph to_f64;
  MixedGraph no_product;
  const std::vector<Graph> graphs = {
      is_output.Plain(is_output.CastTo(made, "f32")),
      two_types.Plain(two_types.CastTo(twice, "bf16")),
      from_f64.Plain(from_f64.CastTo(product(from_f64, DType::kF64), "f32")),
      to_f64.Plain(to_f64.CastTo(product(to_f64, DType::kBF16), "f64")),
      no_product.Plain(no_product.CastTo(no_product.AddOne(Op::kGelu, {no_product.x}), "bf16"))};
  for (const Graph& graph : graphs) EXPECT_EQ(FormatGraph(Folded(graph)), FormatGraph(graph));
}

TEST(FoldCasts, OnlyTheFirstResultHasTheType) {
  MixedGraph b;
  const std::vector<ValueId> norm = b.Add(Op::kRmsNorm, {b.x, b.Weight("g", {8})}, {{"eps", 1e-5}});
  b.SetOutput("rstd", b.CastTo(norm[1], "bf16"));
  const Graph graph = Folded(b.Plain(b.CastTo(norm[0], "bf16")));
  EXPECT_THAT(SignaturesOf(graph, Op::kRmsNorm), ElementsAre("f32,f32->bf16"));
  EXPECT_THAT(SignaturesOf(graph, Op::kCast), ElementsAre("f32->bf16"));
  EXPECT_EQ(graph.type(graph.Output("rstd")), (TensorType{DType::kBF16, {2, 4}}));
}

// Two layers with a residual stream, biases and a weight of two products.
Graph DifferentiatedBlock() {
  MixedGraph b;
  ValueId y = b.x;
  const ValueId shared = b.Weight("shared");
  for (int layer = 0; layer < 2; ++layer) {
    b.SetLayer(layer);
    const ValueId g = b.Weight(fmt::format("g{}", layer), {8});
    const ValueId n = b.Add(Op::kRmsNorm, {y, g}, {{"eps", 1e-5}})[0];
    ValueId up = b.Product(n, b.Weight(fmt::format("up{}", layer)));
    up = b.AddOne(Op::kGelu, {b.AddOne(Op::kAdd, {up, b.Weight(fmt::format("b{}", layer), {8})})});
    y = b.AddOne(Op::kAdd, {y, b.Product(up, shared)});
  }
  const auto mixed = ToMixedPrecision(b.Loss(y), DType::kBF16);
  EXPECT_TRUE(mixed.has_value()) << mixed.error();
  if (!mixed) return {};
  const auto graph = Differentiate(*mixed);
  EXPECT_TRUE(graph.has_value()) << graph.error();
  return graph.value_or(Graph{});
}

TEST(FoldCasts, WeightGradientsLeaveTheirProductsInF32) {
  const Graph graph = Folded(DifferentiatedBlock());
  EXPECT_TRUE(VerifyGraph(graph).ok()) << VerifyGraph(graph);
  for (const char* name : {"up0", "up1"}) {
    const Node& product = graph.producer(graph.Output(std::string("grad/") + name));
    EXPECT_EQ(product.op, Op::kEinsum) << name;
    EXPECT_EQ(SignatureOf(graph, product), "bf16,bf16->f32") << name;
  }
  for (const char* name : {"b0", "b1"}) {
    const Node& sum = graph.producer(graph.Output(std::string("grad/") + name));
    EXPECT_EQ(sum.op, Op::kReduceSum) << name;
    EXPECT_EQ(SignatureOf(graph, sum), "bf16->f32") << name;
  }
  const Node& sum = graph.producer(graph.Output("grad/shared"));
  ASSERT_EQ(sum.op, Op::kSum);
  ASSERT_EQ(sum.inputs.size(), 2u);
  for (ValueId part : sum.inputs) {
    EXPECT_EQ(graph.producer(part).op, Op::kEinsum);
    EXPECT_EQ(SignatureOf(graph, graph.producer(part)), "bf16,bf16->f32");
  }
}

TEST(FoldCasts, GradientsOfExpertsLeaveTheirProductsInF32) {
  MixedGraph b;
  const auto mixed = ToMixedPrecision(b.Loss(LayerOfExperts(b)), DType::kBF16);
  ASSERT_TRUE(mixed.has_value()) << mixed.error();
  const auto steps = Differentiate(*mixed);
  ASSERT_TRUE(steps.has_value()) << steps.error();
  const Graph graph = Folded(*steps);
  EXPECT_TRUE(VerifyGraph(graph).ok()) << VerifyGraph(graph);
  for (const char* name : {"grad/up", "grad/down"}) {
    const Node& product = graph.producer(graph.Output(name));
    EXPECT_EQ(product.op, Op::kGroupedMatmulGrad) << name;
    EXPECT_EQ(SignatureOf(graph, product), "bf16,i32,bf16->f32") << name;
  }
  EXPECT_THAT(SignaturesOf(graph, Op::kCombineGradWeights), ElementsAre("bf16,bf16,i32->f32"));
}

TEST(FoldCasts, TwiceIsOnce) {
  const Graph once = Folded(DifferentiatedBlock());
  EXPECT_FALSE(once.nodes.empty());
  EXPECT_EQ(Folded(once), once);
}

TEST(HalfParams, ThoseOfProductsAreOfThatTypeAndNoOther) {
  MixedGraph g;
  const ValueId table = g.Weight("table", {16, 8});
  const ValueId gain = g.Weight("gain", {8});
  const ValueId ids = g.Value("ids", {2, 4}, DType::kI32);
  const ValueId rows = g.AddOne(Op::kEmbedding, {table, ids});
  const ValueId norm = g.AddOne(Op::kRmsNorm, {rows, gain}, {{"eps", 1e-5}});
  const ValueId y = g.Product(norm, g.Weight("w"));
  const ValueId logits = g.AddOne(Op::kEinsum, {y, table}, {{"equation", "bsk,vk->bsv"}});
  const auto half = WithHalfParams(g.Mixed(logits), DType::kBF16);
  ASSERT_TRUE(half) << half.error();
  EXPECT_TRUE(VerifyGraph(*half).ok()) << VerifyGraph(*half);
  std::map<std::string, DType> types;
  for (const NodeId id : half->NodesOf(Op::kParam)) {
    const Node& param = half->node(id);
    types[param.attrs.Str("name")] = half->type(param.outputs[0]).dtype;
  }
  const std::map<std::string, DType> expected = {
      {"table", DType::kBF16}, {"gain", DType::kF32}, {"w", DType::kBF16}};
  EXPECT_EQ(types, expected);
  for (const NodeId id : half->NodesOf(Op::kCast)) {
    EXPECT_NE(half->producer(half->node(id).inputs[0]).op, Op::kParam);
  }
  EXPECT_EQ(half->type(half->outputs[0].value).dtype, DType::kF32);
}

// A bias of one token's product is as large as the product itself, and rounds like any other.
TEST(MixedPrecision, ABiasFollowsWhateverTheBatch) {
  for (const int64_t tokens : {1, 4}) {
    Builder g("loss");
    const auto value = [&](Op op, const char* name, Dims dims) {
      return g.AddOne(op, {}, {{"name", name}}, {{DType::kF32, std::move(dims)}});
    };
    const ValueId x = value(Op::kInput, "x", {1, tokens, 8});
    const ValueId y =
        g.AddOne(Op::kEinsum, {x, value(Op::kParam, "w", {8, 8})}, {{"equation", "bsk,kn->bsn"}});
    g.SetOutput("y", g.AddOne(Op::kAdd, {y, value(Op::kParam, "bias", {8})}));
    const auto mixed = ToMixedPrecision(*g.Finish(), DType::kBF16);
    ASSERT_TRUE(mixed) << mixed.error();
    const Node& add = mixed->node(mixed->NodesOf(Op::kAdd).at(0));
    EXPECT_EQ(mixed->type(add.outputs[0]).dtype, DType::kBF16) << tokens;
  }
}

}  // namespace
}  // namespace meshwright::ir
