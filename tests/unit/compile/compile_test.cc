// The executable compiler: what it merges and fuses, and that no value changes.
#include "compile/compile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/philox.h"
#include "ir/autodiff.h"
#include "ir/builder.h"
#include "ir/fused.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/kernel.h"

namespace meshwright::compile {
namespace {

using ir::Graph;
using ir::Op;

// Ops of every fused node's body, in order: "einsum add gelu".
std::vector<std::string> Bodies(const Graph& graph) {
  std::vector<std::string> bodies;
  for (const ir::Node& node : graph.nodes) {
    if (node.op != Op::kFused) continue;
    std::string text;
    const Result<ir::FusedBody> body = ir::ParseFusedBody(node.attrs);
    if (!body) return {body.error().message()};
    for (const ir::FusedStep& step : body->steps) {
      text += (text.empty() ? "" : " ") + std::string(ir::OpName(step.op));
    }
    bodies.push_back(text);
  }
  return bodies;
}

ops::HostTensor RandomData(const ir::TensorType& type, uint64_t stream) {
  ops::HostTensor tensor{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
  for (int64_t i = 0; i < type.elements(); ++i) {
    const uint32_t bits = PhiloxBits(5, stream, 0, static_cast<uint64_t>(i));
    const double value = static_cast<double>(bits) / 4294967296.0 - 0.5;
    const auto at = static_cast<size_t>(i);
    if (type.dtype == ir::DType::kF64) std::memcpy(&tensor.data[at * 8], &value, 8);
    const auto narrow = static_cast<float>(value);
    if (type.dtype == ir::DType::kF32) std::memcpy(&tensor.data[at * 4], &narrow, 4);
    const int32_t id = static_cast<int32_t>(bits % 16);
    if (type.dtype == ir::DType::kI32) std::memcpy(&tensor.data[at * 4], &id, 4);
  }
  return tensor;
}

Result<std::vector<ops::HostTensor>> Evaluate(const Graph& graph, ops::Backend backend) {
  ops::RunContext context;
  context.seed = 3;
  const auto bind = [&](const ir::Node& node) -> Result<ops::HostTensor> {
    return RandomData(graph.type(node.outputs[0]), StreamOf(node.attrs.Str("name")));
  };
  return ops::Evaluate(backend, graph, bind, context);
}

Graph Compiled(const Graph& graph) {
  Result<Graph> compiled = CompileExecutable(graph);
  EXPECT_TRUE(compiled) << compiled.error();
  if (!compiled) return {};
  EXPECT_TRUE(ir::VerifyGraph(*compiled).ok());
  const Result<Graph> parsed = ir::ParseGraph(ir::FormatGraph(*compiled));
  EXPECT_TRUE(parsed) << parsed.error();
  EXPECT_EQ(*parsed, *compiled);
  return *std::move(compiled);
}

// Bit by bit in f64, where a fused node runs its steps by the kernels of their ops; within rounding
// in f32 on the CPU backend.
void ExpectSameValues(const Graph& wide, const Graph& single) {
  const Graph wide_compiled = Compiled(wide);
  const auto expected = Evaluate(wide, ops::Backend::kReference);
  const auto actual = Evaluate(wide_compiled, ops::Backend::kReference);
  ASSERT_TRUE(expected) << expected.error();
  ASSERT_TRUE(actual) << actual.error();
  for (size_t i = 0; i < expected->size(); ++i) {
    EXPECT_EQ((*expected)[i].data, (*actual)[i].data) << wide.outputs[i].name;
  }
  const auto plain = Evaluate(single, ops::Backend::kCpu);
  const auto fused = Evaluate(Compiled(single), ops::Backend::kCpu);
  ASSERT_TRUE(plain) << plain.error();
  ASSERT_TRUE(fused) << fused.error();
  for (size_t i = 0; i < plain->size(); ++i) {
    const auto* a = reinterpret_cast<const float*>((*plain)[i].data.data());
    const auto* b = reinterpret_cast<const float*>((*fused)[i].data.data());
    float largest = 1e-3f, difference = 0;
    for (int64_t k = 0; k < (*plain)[i].type.elements(); ++k) {
      largest = std::max(largest, std::abs(a[k]));
      difference = std::max(difference, std::abs(a[k] - b[k]));
    }
    EXPECT_LE(difference, 2e-6f * largest) << single.outputs[i].name;
  }
}

ir::TensorType Type(ir::DType dtype, ir::Dims dims) { return {dtype, std::move(dims)}; }

// A block of a model: norm, product, bias, gate, product, bias, dropout, residual; and its
// gradient.
Graph Block(ir::DType dtype) {
  ir::Builder b("block");
  const auto input = [&](const std::string& name, ir::Dims dims) {
    return b.AddOne(Op::kInput, {}, {{"name", name}}, {Type(dtype, std::move(dims))});
  };
  const auto param = [&](const std::string& name, ir::Dims dims) {
    return b.AddOne(Op::kParam, {}, {{"name", name}, {"init", std::string("normal")}},
                    {Type(dtype, std::move(dims))});
  };
  const ValueId x = input("x", {2, 24, 32});
  const std::vector<ValueId> norm =
      b.Add(Op::kLayerNorm, {x, param("w", {32}), param("b", {32})}, {{"eps", 1e-5}});
  const auto product = [&](const char* equation, ValueId a, ValueId w) {
    return b.AddOne(Op::kEinsum, {a, w}, {{"equation", std::string(equation)}});
  };
  ValueId h = b.AddOne(Op::kAdd,
                       {product("bsd,df->bsf", norm[0], param("w1", {32, 64})), param("b1", {64})});
  h = b.AddOne(Op::kGelu, {h});
  ValueId y =
      b.AddOne(Op::kAdd, {product("bsf,fd->bsd", h, param("w2", {64, 32})), param("b2", {32})});
  y = b.AddOne(Op::kDropout, {y}, {{"rate", 0.25}, {"name", std::string("drop")}});
  const ValueId out = b.AddOne(Op::kAdd, {x, y});
  const ValueId logits = product("bsd,vd->bsv", out, param("head", {16, 32}));
  const ValueId labels =
      b.AddOne(Op::kInput, {}, {{"name", std::string("labels")}}, {Type(ir::DType::kI32, {2, 24})});
  const std::vector<ValueId> loss =
      b.Add(Op::kCrossEntropy, {logits, labels}, {{"ignore_index", int64_t{-100}}});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  Result<Graph> graph = b.Finish();
  EXPECT_TRUE(graph) << graph.error();
  Result<Graph> step = ir::Differentiate(*graph);
  EXPECT_TRUE(step) << step.error();
  return *std::move(step);
}

TEST(Compile, BlockBecomesFewFusedNodes) {
  const std::vector<std::string> bodies = Bodies(Compiled(Block(ir::DType::kF32)));
  const std::vector<std::string> expected = {"einsum add gelu", "einsum add dropout add",
                                             "einsum dropout reduce_sum",
                                             "einsum gelu_grad reduce_sum"};
  for (const std::string& body : expected) {
    EXPECT_EQ(std::count(bodies.begin(), bodies.end(), body), 1) << body;
  }
}

TEST(Compile, BlockKeepsItsValues) {
  ExpectSameValues(Block(ir::DType::kF64), Block(ir::DType::kF32));
}

TEST(Compile, EqualNodesAreMergedAndInputsKept) {
  ir::Builder b("twice");
  const ir::TensorType type = Type(ir::DType::kF64, {40, 40});
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", std::string("x")}}, {type});
  b.AddOne(Op::kInput, {}, {{"name", std::string("unused")}}, {type});
  const ValueId one = b.AddOne(Op::kTranspose, {x}, {{"perm", std::vector<int64_t>{1, 0}}});
  const ValueId two = b.AddOne(Op::kTranspose, {x}, {{"perm", std::vector<int64_t>{1, 0}}});
  b.AddOne(Op::kScale, {x}, {{"factor", 2.0}});
  b.SetOutput("a", one);
  b.SetOutput("b", two);
  const Graph compiled = Compiled(*b.Finish());
  EXPECT_EQ(compiled.nodes.size(), 3u) << ir::FormatGraph(compiled);
  EXPECT_EQ(compiled.NodesOf(Op::kInput).size(), 2u);
  EXPECT_EQ(compiled.outputs[0].value, compiled.outputs[1].value);
}

// The gradient of a microbatch is added to the sum by the product that makes it.
TEST(Compile, ProductsAccumulateOverMicrobatches) {
  ir::Builder b("accumulate");
  const auto input = [&](const char* name, ir::Dims dims) {
    return b.AddOne(Op::kInput, {}, {{"name", std::string(name)}},
                    {Type(ir::DType::kF32, std::move(dims))});
  };
  const ValueId x = input("x", {32, 64}), y = input("y", {32, 64});
  const ValueId product = b.AddOne(Op::kEinsum, {x, y}, {{"equation", std::string("bd,bf->df")}});
  b.SetOutput("sum", b.AddOne(Op::kAdd, {input("sum", {64, 64}), product}));
  const Graph compiled = Compiled(*b.Finish());
  ASSERT_EQ(compiled.nodes.size(), 4u) << ir::FormatGraph(compiled);
  EXPECT_EQ(compiled.nodes[2].attrs.Str("name"), "sum") << "inputs keep their order";
  EXPECT_EQ(compiled.nodes[3].inputs.size(), 3u);
  EXPECT_EQ(compiled.outputs[0].value, compiled.nodes[3].outputs[0]);
}

std::vector<double> Doubles(const ops::HostTensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.type.elements()));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

void ExpectNear(const ops::HostTensor& a, const ops::HostTensor& b, double limit) {
  const std::vector<double> want = Doubles(a), have = Doubles(b);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(want[i], have[i], limit) << i;
}

// Head and embedding of one table, with or without a sum over microbatches in front.
Graph TiedTable(ir::DType dtype, bool accumulates) {
  ir::Builder b("tied");
  const auto input = [&](const char* name, ir::DType type, ir::Dims dims) {
    return b.AddOne(Op::kInput, {}, {{"name", std::string(name)}}, {Type(type, std::move(dims))});
  };
  const ValueId x = input("x", dtype, {2, 12, 8}), w = input("w", dtype, {16, 8});
  const ValueId labels = input("labels", ir::DType::kI32, {2, 12});
  const ValueId one = input("one", dtype, {});
  b.SetPhase(ir::Phase::kBackward);
  const std::vector<ValueId> head =
      b.Add(Op::kHeadLossGrad, {x, w, labels, one}, {{"block_tokens", int64_t{5}}});
  const ValueId dx = b.AddOne(Op::kGelu, {head[2]});
  const ValueId table = b.AddOne(Op::kEmbeddingGrad, {labels, dx}, {{"rows", int64_t{16}}});
  ValueId sum = b.AddOne(Op::kSum, {table, head[3]});
  if (accumulates) sum = b.AddOne(Op::kAdd, {input("total", dtype, {16, 8}), sum});
  b.SetOutput("total", sum);
  b.SetOutput("loss", head[0]);
  Result<Graph> graph = b.Finish();
  EXPECT_TRUE(graph) << graph.error();
  return *std::move(graph);
}

TEST(Compile, GradientsOfATiedTableAreOneTensor) {
  for (const bool accumulates : {false, true}) {
    const Graph wide = TiedTable(ir::DType::kF64, accumulates);
    const Graph compiled = Compiled(wide);
    EXPECT_TRUE(compiled.NodesOf(Op::kSum).empty()) << ir::FormatGraph(compiled);
    EXPECT_TRUE(compiled.NodesOf(Op::kAdd).empty()) << ir::FormatGraph(compiled);
    const ir::Node& table = compiled.node(compiled.NodesOf(Op::kEmbeddingGrad)[0]);
    ASSERT_EQ(table.inputs.size(), 3u);
    EXPECT_EQ(compiled.producer(table.inputs[2]).op, Op::kHeadLossGrad);
    EXPECT_EQ(compiled.producer(table.inputs[2]).inputs.size(), accumulates ? 5u : 4u);
    for (const auto backend : {ops::Backend::kReference, ops::Backend::kCpu}) {
      const auto expected = Evaluate(wide, backend);
      const auto actual = Evaluate(compiled, backend);
      ASSERT_TRUE(expected && actual);
      for (size_t i = 0; i < expected->size(); ++i) {
        ExpectNear((*expected)[i], (*actual)[i], 1e-13);
      }
    }
  }
}

// What others read, and what is made later, is left alone.
TEST(Compile, SumsOfWhatIsReadElsewhereStay) {
  ir::Builder b("read");
  const auto input = [&](const char* name) {
    return b.AddOne(Op::kInput, {}, {{"name", std::string(name)}},
                    {Type(ir::DType::kF32, {40, 40})});
  };
  const ValueId x = input("x"), total = input("total"), other = input("other");
  const ir::Attrs product = {{"equation", std::string("bd,bf->df")}};
  const ValueId shared = b.AddOne(Op::kEinsum, {x, x}, product);
  b.SetOutput("total", b.AddOne(Op::kAdd, {total, shared}));
  b.SetOutput("norm", b.AddOne(Op::kSumSquares, {shared}));
  const ValueId alone = b.AddOne(Op::kEinsum, {x, other}, product);
  const ValueId kept = b.AddOne(Op::kAdd, {other, alone});
  b.SetOutput("other", b.AddOne(Op::kTranspose, {kept}, {{"perm", std::vector<int64_t>{1, 0}}}));
  for (const ir::Node& node : Compiled(*b.Finish()).nodes) {
    EXPECT_TRUE(node.op != Op::kEinsum || node.inputs.size() == 2);
  }
}

// Random graphs of elementwise ops, products and column sums.
Graph RandomGraph(ir::DType dtype, uint64_t seed) {
  ir::Builder b("random");
  uint64_t draws = 0;
  const auto draw = [&](size_t below) {
    return static_cast<size_t>(PhiloxBits(seed, 1, 0, draws++)) % below;
  };
  const auto input = [&](const std::string& name, ir::Dims dims) {
    return b.AddOne(Op::kInput, {}, {{"name", name}}, {Type(dtype, std::move(dims))});
  };
  std::vector<ValueId> wide = {input("x0", {3, 48, 32}), input("x1", {3, 48, 32})};
  std::vector<ValueId> narrow = {input("n0", {32}), input("n1", {32})};
  const ValueId weight = input("w", {32, 32});
  const auto any = [&] { return wide[draw(wide.size())]; };
  const auto recent = [&] {
    return wide[wide.size() - 1 - draw(std::min<size_t>(3, wide.size()))];
  };
  for (int i = 0; i < 14; ++i) {
    switch (draw(8)) {
      case 0:
        wide.push_back(b.AddOne(Op::kAdd, {recent(), narrow[draw(narrow.size())]}));
        break;
      case 1:
        wide.push_back(b.AddOne(Op::kMul, {recent(), any()}));
        break;
      case 2:
        wide.push_back(b.AddOne(Op::kGelu, {recent()}));
        break;
      case 3:
        wide.push_back(b.AddOne(Op::kSum, {recent(), any(), recent()}));
        break;
      case 4:
      case 5:
        wide.push_back(
            b.AddOne(Op::kEinsum, {recent(), weight}, {{"equation", std::string("bsd,df->bsf")}}));
        wide.back() = b.AddOne(Op::kScale, {wide.back()}, {{"factor", 0.25}});
        break;
      case 6:
        narrow.push_back(
            b.AddOne(Op::kReduceSum, {recent()}, {{"dims", std::vector<int64_t>{0, 1}}}));
        narrow.back() = b.AddOne(Op::kScale, {narrow.back()}, {{"factor", 0.02}});
        break;
      default:
        wide.push_back(b.AddOne(Op::kSiluGrad, {recent(), any()}));
    }
  }
  for (size_t i = 0; i < wide.size(); ++i) {
    if (i + 1 == wide.size() || draw(4) == 0) b.SetOutput("w" + std::to_string(i), wide[i]);
  }
  for (size_t i = 2; i < narrow.size(); ++i) b.SetOutput("n" + std::to_string(i), narrow[i]);
  Result<Graph> graph = b.Finish();
  EXPECT_TRUE(graph) << graph.error();
  return *std::move(graph);
}

TEST(Compile, RandomGraphsKeepTheirValues) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExpectSameValues(RandomGraph(ir::DType::kF64, seed), RandomGraph(ir::DType::kF32, seed));
    if (HasFailure()) return;
  }
}

TEST(Head, LossAndGradientsBecomeOneNodeAndKeepTheirValues) {
  const Graph step = Block(ir::DType::kF64);
  const Result<Graph> fused = FuseHead(step, 1);
  ASSERT_TRUE(fused) << fused.error();
  EXPECT_TRUE(ir::VerifyGraph(*fused).ok()) << ir::VerifyGraph(*fused);
  EXPECT_EQ(fused->NodesOf(Op::kHeadLossGrad).size(), 1u);
  EXPECT_TRUE(fused->NodesOf(Op::kCrossEntropy).empty());
  EXPECT_EQ(fused->node(fused->NodesOf(Op::kHeadLossGrad)[0]).phase, ir::Phase::kBackward);
  const auto expected = Evaluate(step, ops::Backend::kReference);
  const auto actual = Evaluate(*fused, ops::Backend::kReference);
  ASSERT_TRUE(expected) << expected.error();
  ASSERT_TRUE(actual) << actual.error();
  ASSERT_EQ(expected->size(), actual->size());
  for (size_t i = 0; i < expected->size(); ++i) {
    const std::vector<double> a = Doubles((*expected)[i]), b = Doubles((*actual)[i]);
    for (size_t k = 0; k < a.size(); ++k) {
      ASSERT_NEAR(a[k], b[k], 1e-12) << step.outputs[i].name << " element " << k;
    }
  }
}

TEST(Head, BlockHoldsAtMostHalfOfADevicesTokens) {
  for (const int64_t splits : {1, 2, 6}) {
    const Graph fused = *FuseHead(Block(ir::DType::kF32), splits);
    const ir::Node& head = fused.node(fused.NodesOf(Op::kHeadLossGrad)[0]);
    const int64_t tokens = 48 / splits;
    EXPECT_LE(head.attrs.Int("block_tokens"), (tokens + 1) / 2) << splits;
    EXPECT_GE(head.attrs.Int("block_tokens"), 1) << splits;
  }
}

TEST(Head, StaysApartWhereItsLogitsAreWanted) {
  Graph step = Block(ir::DType::kF64);
  const ir::Node& loss = step.node(step.NodesOf(Op::kCrossEntropy)[0]);
  step.outputs.push_back({"logits", loss.inputs[0]});
  EXPECT_EQ(*FuseHead(step, 1), step);
}

TEST(Head, WithoutGradientItIsOnlyTheLoss) {
  ir::Builder b("loss");
  const auto input = [&](const char* name, const ir::TensorType& type) {
    return b.AddOne(Op::kInput, {}, {{"name", std::string(name)}}, {type});
  };
  const ValueId x = input("x", Type(ir::DType::kF64, {2, 8, 6}));
  const ValueId w = input("w", Type(ir::DType::kF64, {16, 6}));
  const ValueId labels = input("labels", Type(ir::DType::kI32, {2, 8}));
  const ValueId logits = b.AddOne(Op::kEinsum, {x, w}, {{"equation", std::string("bsd,vd->bsv")}});
  const std::vector<ValueId> loss = b.Add(Op::kCrossEntropy, {logits, labels});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  const Graph graph = *b.Finish();
  const Result<Graph> fused = FuseHead(graph, 1);
  ASSERT_TRUE(fused) << fused.error();
  EXPECT_EQ(fused->NodesOf(Op::kHeadLoss).size(), 1u);
  EXPECT_EQ(fused->nodes.size(), 4u);
  const auto expected = Evaluate(graph, ops::Backend::kReference);
  const auto actual = Evaluate(*fused, ops::Backend::kReference);
  ASSERT_TRUE(actual) << actual.error();
  EXPECT_NEAR(Doubles((*expected)[0])[0], Doubles((*actual)[0])[0], 1e-12);
  EXPECT_EQ(Doubles((*expected)[1])[0], Doubles((*actual)[1])[0]);
}

TEST(FusedBody, RefusesWhatIsNoBody) {
  const std::vector<ir::TensorType> operands = {Type(ir::DType::kF32, {4})};
  const auto error = [&](std::vector<std::string> body, std::vector<int64_t> results) {
    const ir::Attrs attrs = {{"body", std::move(body)}, {"results", std::move(results)}};
    const Result<Graph> graph = ir::ExpandFused(attrs, operands);
    return graph ? std::string("ok") : graph.error().message();
  };
  EXPECT_EQ(error({"gelu(0)"}, {1}), "ok");
  EXPECT_NE(error({"gelu(0)"}, {2}).find("not defined"), std::string::npos);
  EXPECT_NE(error({"gelu(1)"}, {1}).find("not defined"), std::string::npos);
  EXPECT_NE(error({"gelu(0) x"}, {1}).find("end of the step"), std::string::npos);
  EXPECT_NE(error({"fused(0)"}, {1}).find("cannot be a step"), std::string::npos);
  EXPECT_NE(error({"all_reduce(0)"}, {1}).find("cannot be a step"), std::string::npos);
  EXPECT_NE(error({"gelu(-1)"}, {1}).find("out of range"), std::string::npos);
  EXPECT_NE(error({"gelu(0)"}, {-1}).find("not a value"), std::string::npos);
  EXPECT_NE(error({}, {0}).find("needs 'body'"), std::string::npos);
  EXPECT_NE(error({"add(0,0,0)", "gelu(1)"}, {1}).find("add(0,0,0)"), std::string::npos);
  EXPECT_NE(error(std::vector<std::string>(65, "gelu(0)"), {1}).find("65 steps"),
            std::string::npos);
}

TEST(FusedBody, RefusesValuesThatNoPlanKnows) {
  ir::Builder b("large");
  const ir::TensorType vector = Type(ir::DType::kF32, {1000});
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", std::string("x")}}, {vector});
  ir::Attrs attrs;
  ir::SetFusedBody({{{Op::kEinsum, {0, 0}, {{"equation", std::string("a,b->ab")}}},
                     {Op::kReduceSum, {1}, {{"dims", std::vector<int64_t>{0, 1}}}}},
                    {2}},
                   attrs);
  b.AddOne(Op::kFused, {x}, attrs);
  EXPECT_NE(b.status().message().find("larger than every operand"), std::string::npos)
      << b.status();
}

}  // namespace
}  // namespace meshwright::compile
