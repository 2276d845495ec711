// Structure of backward and update graphs. Numbers are checked against finite differences in
// tests/conformance/ops.
#include "ir/autodiff.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

TensorType F32(Dims dims) { return {DType::kF32, std::move(dims)}; }

ValueId Param(Builder& b, const std::string& name, Dims dims, int64_t decay = 0) {
  return b.AddOne(Op::kParam, {},
                  {{"name", name}, {"init", std::string("normal")}, {"decay", decay}},
                  {F32(std::move(dims))});
}

// loss of a two-layer language model with a tied embedding.
Graph TinyModel() {
  Builder b("loss");
  const ValueId tokens =
      b.AddOne(Op::kFeed, {}, {{"source", std::string("tokens")}}, {{DType::kI32, {2, 5}}});
  b.SetLayer(0);
  const auto cut = [&](int64_t start) {
    return b.AddOne(Op::kSlice, {tokens},
                    {{"dim", int64_t{1}}, {"start", start}, {"size", int64_t{4}}});
  };
  const ValueId ids = cut(0);
  const ValueId labels = cut(1);
  const ValueId table = Param(b, "wte", {11, 8}, 1);
  ValueId x = b.AddOne(Op::kEmbedding, {table, ids});
  for (int layer = 0; layer < 2; ++layer) {
    b.SetLayer(layer);
    const ValueId g = Param(b, fmt::format("norm{}", layer), {8});
    const ValueId w = Param(b, fmt::format("w{}", layer), {8, 8}, 1);
    const ValueId n = b.Add(Op::kRmsNorm, {x, g}, {{"eps", 1e-5}})[0];
    const ValueId h = b.AddOne(
        Op::kGelu, {b.AddOne(Op::kEinsum, {n, w}, {{"equation", std::string("bsk,kn->bsn")}})});
    x = b.AddOne(Op::kAdd, {x, h});
  }
  const ValueId logits =
      b.AddOne(Op::kEinsum, {x, table}, {{"equation", std::string("bsd,vd->bsv")}});
  const std::vector<ValueId> loss =
      b.Add(Op::kCrossEntropy, {logits, labels}, {{"ignore_index", int64_t{-1}}});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  return *b.Finish();
}

TEST(Differentiate, GoldenTextOfASmallGraph) {
  Builder b("loss");
  b.SetLayer(0);
  const ValueId w = Param(b, "w", {3});
  const ValueId x = b.AddOne(Op::kConstant, {}, {{"value", 2.0}}, {F32({2, 3})});
  const ValueId y = b.AddOne(Op::kMul, {x, w});
  b.SetLayer(1);
  const ValueId z = b.AddOne(Op::kAdd, {y, w});
  b.SetOutput("loss_sum", b.AddOne(Op::kReduceSum, {z}, {{"dims", std::vector<int64_t>{0, 1}}}));
  b.SetOutput("count", b.AddOne(Op::kConstant, {}, {{"value", 6.0}}, {F32({})}));
  const auto graph = Differentiate(*b.Finish());
  ASSERT_TRUE(graph.has_value()) << graph.error();
  EXPECT_EQ(FormatGraph(*graph), R"(graph "loss" {
  %0 = param {decay=0, init="normal", name="w"} @layer0 : f32[3]
  %1 = constant {value=2.0} @layer0 : f32[2,3]
  %2 = mul(%1, %0) @layer0 : f32[2,3]
  %3 = add(%2, %0) @layer1 : f32[2,3]
  %4 = reduce_sum(%3) {dims=[0,1]} @layer1 : f32[]
  %5 = constant {value=6.0} @layer1 : f32[]
  %6 = constant {value=1.0} @layer1 @backward : f32[]
  %7 = broadcast(%6) {dims=[0,1]} @layer1 @backward : f32[2,3]
  %8 = reduce_sum(%7) {dims=[0]} @layer1 @backward : f32[3]
  %9 = mul(%7, %1) @layer0 @backward : f32[2,3]
  %10 = reduce_sum(%9) {dims=[0]} @layer0 @backward : f32[3]
  %11 = sum(%10, %8) @update : f32[3]
  output "loss_sum" %4
  output "count" %5
  output "grad/w" %11
}
)");
}

TEST(Differentiate, EveryParamGetsAGradientOfItsType) {
  const Graph loss = TinyModel();
  const auto graph = Differentiate(loss);
  ASSERT_TRUE(graph.has_value()) << graph.error();
  EXPECT_TRUE(VerifyGraph(*graph).ok()) << VerifyGraph(*graph);
  for (NodeId id : loss.NodesOf(Op::kParam)) {
    const Node& node = loss.node(id);
    const ValueId grad = graph->Output("grad/" + node.attrs.Str("name"));
    ASSERT_TRUE(grad.valid()) << node.attrs.Str("name");
    EXPECT_EQ(graph->type(grad), loss.type(node.outputs[0]));
  }
}

TEST(Differentiate, KeepsTheLossGraphAsItsPrefix) {
  const Graph loss = TinyModel();
  const Graph graph = *Differentiate(loss);
  ASSERT_GT(graph.nodes.size(), loss.nodes.size());
  EXPECT_TRUE(std::equal(loss.nodes.begin(), loss.nodes.end(), graph.nodes.begin()));
  EXPECT_TRUE(std::equal(loss.outputs.begin(), loss.outputs.end(), graph.outputs.begin()));
  for (size_t i = loss.nodes.size(); i < graph.nodes.size(); ++i) {
    EXPECT_NE(graph.nodes[i].phase, Phase::kForward);
  }
}

TEST(Differentiate, TiedParamOfTwoLayersSumsInTheUpdateInUseOrder) {
  const Graph graph = *Differentiate(TinyModel());
  const Node& sum = graph.producer(graph.Output("grad/wte"));
  EXPECT_EQ(sum.op, Op::kSum);
  EXPECT_EQ(sum.layer, -1);
  EXPECT_EQ(sum.phase, Phase::kUpdate);
  ASSERT_EQ(sum.inputs.size(), 2u);
  EXPECT_EQ(graph.producer(sum.inputs[0]).op, Op::kEmbeddingGrad);
  EXPECT_EQ(graph.producer(sum.inputs[0]).layer, 0);
  EXPECT_EQ(graph.producer(sum.inputs[1]).op, Op::kEinsum);
  EXPECT_EQ(graph.producer(sum.inputs[1]).layer, 1);
}

// The residual stream is read twice in layer 1; its gradient must cross back to layer 0 as one
// tensor.
TEST(Differentiate, OneGradientPerValueCrossesALayerBoundary) {
  const Graph loss = TinyModel();
  const Graph graph = *Differentiate(loss);
  std::map<ValueId, int> crossing;
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::kBackward || node.layer != 0) continue;
    for (ValueId id : node.inputs) {
      const Node& producer = graph.producer(id);
      if (producer.phase == Phase::kBackward && producer.layer == 1) ++crossing[id];
    }
  }
  EXPECT_EQ(crossing.size(), 1u);
}

TEST(Differentiate, BackwardNodesHaveTheLayerTheyDifferentiate) {
  const Graph graph = *Differentiate(TinyModel());
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kRmsNormGrad) continue;
    const Node& forward = graph.producer(node.inputs[2]);
    EXPECT_EQ(forward.op, Op::kRmsNorm);
    EXPECT_EQ(node.layer, forward.layer);
  }
  EXPECT_EQ(graph.NodesOf(Op::kRmsNormGrad).size(), 2u);
}

TEST(Differentiate, MakesNoNodesForValuesWithoutParams) {
  Builder b("loss");
  const ValueId w = Param(b, "w", {3});
  const ValueId noise = b.AddOne(Op::kRandomNormal, {}, {{"name", std::string("n")}}, {F32({3})});
  const ValueId masked = b.AddOne(Op::kMul, {w, b.AddOne(Op::kGelu, {noise})});
  b.SetOutput("loss_sum", b.AddOne(Op::kSumSquares, {masked}));
  b.SetOutput("count", b.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {F32({})}));
  const Graph graph = *Differentiate(*b.Finish());
  EXPECT_TRUE(graph.NodesOf(Op::kGeluGrad).empty());
  EXPECT_EQ(graph.NodesOf(Op::kMul).size(), 2u);  // forward and dw, not the gradient of the mask
}

TEST(Differentiate, NamesTheParamThatDoesNotReachTheLoss) {
  Graph loss = TinyModel();
  Builder b(loss);
  Param(b, "unused", {3});
  const auto graph = Differentiate(*b.Finish());
  ASSERT_FALSE(graph.has_value());
  EXPECT_NE(graph.error().message().find("param \"unused\" does not reach"), std::string::npos);
}

TEST(Differentiate, RejectsMissingOrNonScalarLoss) {
  Builder b("loss");
  const ValueId w = Param(b, "w", {3});
  b.SetOutput("loss_sum", w);
  EXPECT_NE(Differentiate(b.graph()).error().message().find("is f32[3], must be"),
            std::string::npos);
  Builder empty("loss");
  EXPECT_NE(Differentiate(empty.graph()).error().message().find("no output \"loss_sum\""),
            std::string::npos);
}

TEST(Differentiate, NamesAnOpWithoutGradient) {
  Builder b("loss");
  const ValueId w = Param(b, "w", {3});
  const ValueId label = b.AddOne(Op::kInput, {}, {{"name", "label"}}, {{DType::kI32, {}}});
  const ValueId bad = b.AddOne(Op::kPick, {w, label});
  b.SetOutput("loss_sum", bad);
  b.SetOutput("count", b.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {F32({})}));
  const auto graph = Differentiate(b.graph());
  ASSERT_FALSE(graph.has_value());
  EXPECT_EQ(graph.error().code(), StatusCode::kUnimplemented);
  EXPECT_NE(graph.error().message().find("op pick has no gradient"), std::string::npos);
}

// One op between a param and sum_squares; text of the nodes that its gradient adds, without layers.
std::string GradientText(Op op, Dims dims, const Attrs& attrs,
                         const std::vector<TensorType>& declared = {}) {
  Builder b("loss");
  const ValueId w = Param(b, "w", std::move(dims));
  const ValueId y = b.AddOne(op, {w}, attrs, declared);
  b.SetOutput("loss_sum", b.AddOne(Op::kSumSquares, {y}));
  b.SetOutput("count", b.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {F32({})}));
  const auto graph = Differentiate(b.graph());
  if (!graph) return graph.error().ToString();
  EXPECT_TRUE(VerifyGraph(*graph).ok());
  const std::string text = FormatGraph(*graph);
  const size_t begin = text.find("%7 =");
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(Differentiate, StructuralOpsInvert) {
  EXPECT_EQ(GradientText(Op::kSlice, {4, 9},
                         {{"dim", int64_t{1}}, {"start", int64_t{2}}, {"size", int64_t{4}}}),
            "%7 = pad(%6) {after=3, before=2, dim=1} @backward : f32[4,9]");
  EXPECT_EQ(GradientText(Op::kPad, {4, 9},
                         {{"dim", int64_t{0}}, {"before", int64_t{1}}, {"after", int64_t{2}}}),
            "%7 = slice(%6) {dim=0, size=4, start=1} @backward : f32[4,9]");
  EXPECT_EQ(GradientText(Op::kTranspose, {2, 3, 4}, {{"perm", std::vector<int64_t>{1, 2, 0}}}),
            "%7 = transpose(%6) {perm=[2,0,1]} @backward : f32[2,3,4]");
  EXPECT_EQ(GradientText(Op::kReshape, {2, 6}, {}, {F32({3, 4})}),
            "%7 = reshape(%6) @backward : f32[2,6]");
  EXPECT_EQ(GradientText(Op::kRotary, {1, 2, 3, 4}, {{"base", 1e4}}),
            "%7 = rotary(%6) {base=10000.0, inverse=1} @backward : f32[1,2,3,4]");
  EXPECT_EQ(GradientText(Op::kDropout, {4}, {{"name", std::string("d")}, {"rate", 0.1}}),
            "%7 = dropout(%6) {name=\"d\", rate=0.1} @backward : f32[4]");
}

TEST(Differentiate, ReduceSumBroadcastsBackOverAnyDims) {
  Builder b("loss");
  const ValueId w = Param(b, "w", {2, 3, 4});
  const ValueId y = b.AddOne(Op::kReduceSum, {w}, {{"dims", std::vector<int64_t>{1}}});
  b.SetOutput("loss_sum", b.AddOne(Op::kSumSquares, {y}));
  b.SetOutput("count", b.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {F32({})}));
  const Graph graph = *Differentiate(b.graph());
  const Node& back = graph.producer(graph.Output("grad/w"));
  EXPECT_EQ(back.op, Op::kBroadcast);
  EXPECT_EQ(back.attrs.Ints("dims"), (std::vector<int64_t>{1}));
  EXPECT_EQ(graph.type(back.inputs[0]).dims, (Dims{2, 4}));
}

// d(x^3) = 3 x^2, and of that 6 x; the nodes are where the builder is.
TEST(AppendGradients, OfAGradientAreNodesOfTheGraphLikeAnyOthers) {
  Builder b("loss");
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", "x"}}, {F32({})});
  const ValueId cube = b.AddOne(Op::kMul, {x, b.AddOne(Op::kMul, {x, x})});
  b.SetLayer(3);
  const auto first = AppendGradients(b, cube, {{x}});
  ASSERT_TRUE(first.has_value()) << first.error();
  const auto second = AppendGradients(b, (*first)[0], {{x}});
  ASSERT_TRUE(second.has_value()) << second.error();
  EXPECT_TRUE(VerifyGraph(b.graph()).ok());
  EXPECT_EQ(b.graph().producer((*second)[0]).layer, 3);
  EXPECT_EQ(b.graph().producer((*second)[0]).phase, Phase::kForward);
}

TEST(AppendGradients, OfValuesInTheMiddleAddUpAllUses) {
  Builder b("loss");
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", "x"}}, {F32({2})});
  const ValueId y = b.AddOne(Op::kExp, {x});
  const ValueId product = b.AddOne(Op::kMul, {y, b.AddOne(Op::kRelu, {y})});
  const ValueId loss = b.AddOne(Op::kReduceSum, {product}, {{"dims", std::vector<int64_t>{0}}});
  const auto grads = AppendGradients(b, loss, {{y, x}});
  ASSERT_TRUE(grads.has_value()) << grads.error();
  EXPECT_EQ(b.graph().producer((*grads)[0]).op, Op::kSum);
  // x gets what y got, times its own slope.
  EXPECT_EQ(b.graph().producer((*grads)[1]).inputs[0], (*grads)[0]);
}

TEST(AppendGradients, RefusesWhatIsNoFloatOfTheGraph) {
  Builder b("loss");
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", "x"}}, {F32({})});
  const ValueId i = b.AddOne(Op::kInput, {}, {{"name", "i"}}, {{DType::kI32, {}}});
  EXPECT_NE(AppendGradients(b, x, {{i}}).error().message().find("is i32[], must be floating"),
            std::string::npos);
  EXPECT_NE(AppendGradients(b, x, {{ValueId()}}).error().message().find("is not a value"),
            std::string::npos);
}

TEST(AppendUpdate, AdamWUpdatesEveryParamAndItsState) {
  const Graph backward = *Differentiate(TinyModel());
  const auto graph = AppendUpdate(backward, OptimizerSpec());
  ASSERT_TRUE(graph.has_value()) << graph.error();
  EXPECT_TRUE(VerifyGraph(*graph).ok()) << VerifyGraph(*graph);
  EXPECT_EQ(graph->NodesOf(Op::kAdamW).size(), 5u);
  for (const char* name :
       {"loss", "grad_norm", "lr", "tokens", "grad/wte", "update/wte", "update/opt.m/wte",
        "update/opt.v/wte", "update/norm0", "loss_sum", "count"}) {
    EXPECT_TRUE(graph->Output(name).valid()) << name;
  }
  for (NodeId id : graph->NodesOf(Op::kAdamW)) {
    const Node& node = graph->node(id);
    EXPECT_EQ(node.phase, Phase::kUpdate);
    EXPECT_EQ(node.layer, -1);
    const Attrs& param = graph->producer(node.inputs[0]).attrs;
    EXPECT_EQ(node.attrs.Real("weight_decay"), param.Int("decay") == 1 ? 0.1 : 0.0);
    EXPECT_EQ(graph->producer(node.inputs[2]).attrs.Str("name"), "opt.m/" + param.Str("name"));
    EXPECT_EQ(graph->producer(node.inputs[3]).attrs.Int("state"), 1);
    EXPECT_EQ(node.inputs[1], graph->Output("grad/" + param.Str("name")));
    EXPECT_EQ(node.outputs[0], graph->Output("update/" + param.Str("name")));
  }
  EXPECT_EQ(graph->producer(graph->Output("loss")).op, Op::kDivide);
}

TEST(AppendUpdate, SgdKeepsOneState) {
  OptimizerSpec spec;
  spec.name = "sgd";
  spec.momentum = 0.9;
  const auto graph = AppendUpdate(*Differentiate(TinyModel()), spec);
  ASSERT_TRUE(graph.has_value()) << graph.error();
  EXPECT_EQ(graph->NodesOf(Op::kSgd).size(), 5u);
  EXPECT_TRUE(graph->Output("update/opt.m/wte").valid());
  EXPECT_FALSE(graph->Output("update/opt.v/wte").valid());
}

TEST(AppendUpdate, RejectsWhatCannotTrain) {
  const Graph backward = *Differentiate(TinyModel());
  OptimizerSpec spec;
  spec.name = "adagrad";
  EXPECT_NE(AppendUpdate(backward, spec).error().message().find("optimizer 'adagrad'"),
            std::string::npos);
  spec.name = "adamw";
  spec.schedule = "cosine";
  EXPECT_NE(AppendUpdate(backward, spec).error().message().find("needs total_steps"),
            std::string::npos);
  spec.total_steps = 10;
  EXPECT_TRUE(AppendUpdate(backward, spec).has_value());
  spec.beta1 = 2;
  EXPECT_NE(AppendUpdate(backward, spec).error().message().find("beta1=2"), std::string::npos);
  EXPECT_NE(
      AppendUpdate(TinyModel(), OptimizerSpec()).error().message().find("differentiate it first"),
      std::string::npos);
}

}  // namespace
}  // namespace meshwright::ir
