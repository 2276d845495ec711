// Shape rules: what each op accepts and what its error says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/schema.h"

namespace meshwright::ir {
namespace {

using Types = std::vector<TensorType>;

TensorType F32(Dims dims) { return {DType::kF32, std::move(dims)}; }
TensorType F64(Dims dims) { return {DType::kF64, std::move(dims)}; }
TensorType Bf16(Dims dims) { return {DType::kBF16, std::move(dims)}; }
TensorType I32(Dims dims) { return {DType::kI32, std::move(dims)}; }

std::string Infer(Op op, const Types& operands, const Attrs& attrs = {},
                  const Types& declared = {}) {
  const auto types = InferTypes(op, attrs, operands, declared);
  if (!types) {
    EXPECT_EQ(types.error().code(), StatusCode::kInvalidArgument);
    return types.error().message();
  }
  EXPECT_EQ(types->size(), ResultCount(op, attrs, operands.size())) << OpName(op);
  std::string text;
  for (const TensorType& type : *types) text += (text.empty() ? "" : " ") + type.ToString();
  return text;
}

Attrs Equation(const char* text) { return {{"equation", std::string(text)}}; }
Attrs Perm(std::vector<int64_t> perm) { return {{"perm", std::move(perm)}}; }
Attrs Axes(Attrs attrs = {}) {
  attrs.Set("axes", std::vector<std::string>{"data"});
  return attrs;
}

TEST(Op, NamesRoundTripAndMisspeltOnesGetASuggestion) {
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const auto parsed = ParseOp(OpName(op));
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(*parsed, op);
  }
  const auto parsed = ParseOp("layernorm");
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().message(), "unknown op 'layernorm'; did you mean 'layer_norm'?");
  EXPECT_FALSE(ParseOp(std::string(100000, 'x')).has_value());
}

TEST(InferTypes, ResultsOfEveryFamily) {
  EXPECT_EQ(Infer(Op::kAdd, {F32({2, 3}), F32({3})}), "f32[2,3]");
  EXPECT_EQ(Infer(Op::kSlice, {F32({2, 9})},
                  {{"dim", int64_t{1}}, {"start", int64_t{1}}, {"size", int64_t{8}}}),
            "f32[2,8]");
  EXPECT_EQ(Infer(Op::kPad, {F32({2, 8})},
                  {{"dim", int64_t{1}}, {"before", int64_t{1}}, {"after", int64_t{2}}}),
            "f32[2,11]");
  EXPECT_EQ(Infer(Op::kTranspose, {F32({2, 3, 4})}, Perm({2, 0, 1})), "f32[4,2,3]");
  EXPECT_EQ(Infer(Op::kReduceSum, {F32({2, 3, 4})}, {{"dims", std::vector<int64_t>{0, 2}}}),
            "f32[3]");
  EXPECT_EQ(Infer(Op::kEinsum, {F32({2, 3, 4}), F32({4, 5})}, Equation("bsk,kn->bsn")),
            "f32[2,3,5]");
  EXPECT_EQ(Infer(Op::kLayerNorm, {Bf16({2, 8}), Bf16({8}), Bf16({8})}), "bf16[2,8] f32[2] f32[2]");
  EXPECT_EQ(Infer(Op::kEmbedding, {F64({50, 8}), I32({2, 3})}), "f64[2,3,8]");
  EXPECT_EQ(Infer(Op::kAttention, {F32({1, 5, 6, 4}), F32({1, 5, 3, 4}), F32({1, 5, 3, 4})}),
            "f32[1,5,6,4] f32[1,6,5]");
  EXPECT_EQ(Infer(Op::kCrossEntropy, {F32({2, 3, 50}), I32({2, 3})}), "f32[] f32[] f32[2,3]");
  EXPECT_EQ(Infer(Op::kSumSquares, {Bf16({4})}), "f32[]");
  EXPECT_EQ(Infer(Op::kLearningRate, {}), "f32[]");
  EXPECT_EQ(Infer(Op::kLearningRate, {}, {}, {F64({})}), "f64[]");
  EXPECT_EQ(Infer(Op::kAllReduce, {F32({2}), F32({3})}, Axes()), "f32[2] f32[3]");
  EXPECT_EQ(Infer(Op::kAllGather, {F32({2, 3})}, Axes({{"dim", int64_t{1}}}), {F32({2, 6})}),
            "f32[2,6]");
  EXPECT_EQ(Infer(Op::kAllToAll, {F32({4, 3})},
                  Axes({{"split_dim", int64_t{0}}, {"concat_dim", int64_t{1}}}), {F32({2, 6})}),
            "f32[2,6]");
}

TEST(InPlaceOperand, IsTheTensorThatTheResultRenews) {
  EXPECT_EQ(InPlaceOperand(Op::kAdd, 0), 0u);
  EXPECT_EQ(InPlaceOperand(Op::kReshape, 0), 0u);
  EXPECT_EQ(InPlaceOperand(Op::kAllReduce, 3), 3u);
  EXPECT_EQ(InPlaceOperand(Op::kAdamW, 0), 0u);
  EXPECT_EQ(InPlaceOperand(Op::kAdamW, 2), 3u);
  EXPECT_EQ(InPlaceOperand(Op::kSgd, 1), 2u);
  EXPECT_FALSE(InPlaceOperand(Op::kSgd, 2));
  EXPECT_EQ(InPlaceOperand(Op::kEinsum, 0), 2u);
  EXPECT_EQ(InPlaceOperand(Op::kHeadLossGrad, 3), 4u);
  EXPECT_FALSE(InPlaceOperand(Op::kHeadLossGrad, 2));
  EXPECT_FALSE(InPlaceOperand(Op::kGelu, 1));
  EXPECT_FALSE(InPlaceOperand(Op::kAdd, 1));
}

struct Wrong {
  const char* says;  // part of the message
  Op op;
  Types operands;
  Attrs attrs = {};
  Types declared = {};
};

void ExpectErrors(const std::vector<Wrong>& cases) {
  for (const Wrong& wrong : cases) {
    const std::string message = Infer(wrong.op, wrong.operands, wrong.attrs, wrong.declared);
    EXPECT_NE(message.find(wrong.says), std::string::npos) << OpName(wrong.op) << ": " << message;
  }
}

// Kernels read all floating operands of these ops as one C++ type.
TEST(InferTypes, ScalarsAndStateHaveTheDTypeThatKernelsRead) {
  const std::vector<Wrong> cases = {
      {"operand 1 must be f32[]", Op::kMulScalar, {F32({2}), F64({})}},
      {"operand 1 must be f32[]", Op::kMulScalar, {Bf16({2}), Bf16({})}},
      {"operand 3 must be f64[]",
       Op::kCrossEntropyGrad,
       {F64({2, 5}), I32({2}), F64({2}), F32({})}},
      {"operands 0 and 1 must have the same type", Op::kClipMultiplier, {F32({}), F64({})}},
      {"operands 0 and 1 must have the same type",
       Op::kAdamW,
       {F32({2}), F64({2}), F32({2}), F32({2}), F32({}), F32({})}},
      {"operand 3 (state) must be f32[2]",
       Op::kAdamW,
       {F32({2}), F32({2}), F32({2}), F64({2}), F32({}), F32({})}},
      {"operand 4 must be f64[]",
       Op::kAdamW,
       {F64({2}), F64({2}), F64({2}), F64({2}), F32({}), F64({})}},
      {"operand 2 (state) must be f32[2]",
       Op::kSgd,
       {Bf16({2}), Bf16({2}), F64({2}), F32({}), F32({})}},
      {"operand 4 must be f32[]", Op::kSgd, {F32({2}), F32({2}), F32({2}), F32({}), F64({})}},
  };
  ExpectErrors(cases);
}

TEST(InferTypes, ErrorsOfElementwiseOpsChoiceAndImages) {
  ExpectErrors(
      {{"floating point or i32", Op::kLess, {{{DType::kBool, {2}}, {DType::kBool, {2}}}}},
       {"must be bool", Op::kLogicalNot, {F32({2})}},
       {"bool in the shape of operand 1", Op::kSelect, {F32({2}), F32({2}), F32({2})}},
       {"needs the real attribute 'value'", Op::kShift, {F32({2})}},
       {"alike but for dim 1", Op::kConcat, {F32({2, 3}), F32({3, 3})}, {{"dim", int64_t{1}}}},
       {"cannot become f32[2,5]",
        Op::kBroadcast,
        {F32({3})},
        {{"dims", std::vector<int64_t>{0}}},
        {F32({2, 5})}},
       {"ids must be i32", Op::kGather, {F32({3}), F32({2})}, {{"dim", int64_t{0}}}},
       {"k=4 must be in [1, 3]", Op::kTopK, {F32({2, 3})}, {{"k", int64_t{4}}}},
       {"kind '' must be", Op::kNoise, {F32({2})}, {{"name", std::string("n")}}},
       {"images have 3 channels, the kernel takes 2",
        Op::kConv2d,
        {F32({1, 4, 4, 3}), F32({1, 1, 2, 5})}},
       {"larger than the padded image", Op::kConv2d, {F32({1, 2, 2, 3}), F32({3, 3, 3, 5})}},
       {"smaller than the window",
        Op::kAvgPool,
        {F32({1, 4, 4, 3})},
        {{"window", std::vector<int64_t>{2, 2}}, {"padding", std::vector<int64_t>{2, 0, 0, 0}}}}});
}

TEST(InferTypes, ErrorsNameOpAndShapesAndCause) {
  const Types qkv = {F32({1, 5, 4, 4}), F32({1, 5, 3, 4}), F32({1, 5, 3, 4})};
  const std::vector<Wrong> cases = {
      {"needs 2 operands, has 1", Op::kAdd, {F32({2})}},
      {"must be a suffix", Op::kAdd, {F32({2, 3}), F32({2})}},
      {"must have one dtype", Op::kMul, {F32({2}), F64({2})}},
      {"suffix of the shape", Op::kSub, {F32({2}), F32({3})}},
      {"needs the real attribute 'factor'", Op::kScale, {F32({2})}},
      {"operand 1 must be f32[]", Op::kMulScalar, {F32({2}), F32({2})}},
      {"at least one operand", Op::kSum, {}},
      {"floating point", Op::kGelu, {I32({2})}},
      {"rate=1 must be in", Op::kDropout, {F32({2})}, {{"rate", 1.0}, {"name", std::string("d")}}},
      {"non-empty 'name'", Op::kDropout, {F32({2})}},
      {"global_dims has 1",
       Op::kDropout,
       {F32({2, 2})},
       {{"name", std::string("d")},
        {"global_dims", std::vector<int64_t>{4}},
        {"dim_axes", std::vector<std::string>{"data"}}}},
      {"size=9 must be in [1, 8]",
       Op::kSlice,
       {F32({9})},
       {{"dim", int64_t{0}}, {"start", int64_t{1}}, {"size", int64_t{9}}}},
      {"needs the integer attribute 'dim'", Op::kPad, {F32({9})}},
      {"element count must be equal", Op::kReshape, {F32({6})}, {}, {F32({4})}},
      {"needs 1 declared", Op::kReshape, {F32({6})}},
      {"not a permutation", Op::kTranspose, {F32({2, 3})}, Perm({0, 0})},
      {"must increase", Op::kReduceSum, {F32({2, 3})}, {{"dims", std::vector<int64_t>{1, 0}}}},
      {"label 'k' is 4 and 5", Op::kEinsum, {F32({2, 4}), F32({5, 3})}, Equation("bk,kn->bn")},
      {"label 'k' is in one operand only",
       Op::kEinsum,
       {F32({2, 4}), F32({5, 3})},
       Equation("bk,jn->bjn")},
      {"label 'z' is in no operand",
       Op::kEinsum,
       {F32({2, 4}), F32({4, 3})},
       Equation("bk,kn->bnz")},
      {"must be like", Op::kEinsum, {F32({2, 2}), F32({2, 2})}, Equation("bb,bk->bk")},
      {"operand 1 must have rank 3",
       Op::kEinsum,
       {F32({2, 2}), F32({2, 2})},
       Equation("bk,kbn->bn")},
      {"weights must be [d]", Op::kLayerNorm, {F32({2, 8}), F32({7}), F32({8})}},
      {"statistics must be f32[2]",
       Op::kRmsNormGrad,
       {F32({2, 8}), F32({8}), F32({3}), F32({2, 8})}},
      {"ids must be i32", Op::kEmbedding, {F32({50, 8}), F32({2})}},
      {"dims of ids", Op::kEmbeddingGrad, {I32({3}), F32({2, 8})}, {{"rows", int64_t{50}}}},
      {"head size must be even", Op::kRotary, {F32({1, 2, 3, 5})}},
      {"4 query heads are not a multiple of 3", Op::kAttention, qkv},
      {"labels must be i32[2]", Op::kCrossEntropy, {F32({2, 8}), I32({3})}},
      {"operands 0 and 1 must have the same type",
       Op::kSgd,
       {F32({2}), F32({3}), F32({2}), F32({}), F32({})}},
      {"needs a non-empty list 'axes'", Op::kAllReduce, {F32({2})}},
      {"kind 'mean'", Op::kAllReduce, {F32({2})}, Axes({{"kind", std::string("mean")}})},
      {"a whole factor", Op::kAllGather, {F32({2})}, Axes({{"dim", int64_t{0}}}), {F32({3})}},
      {"a whole factor", Op::kReduceScatter, {F32({4})}, Axes({{"dim", int64_t{0}}}), {F32({8})}},
      {"one whole factor",
       Op::kAllToAll,
       {F32({4, 3})},
       Axes({{"split_dim", int64_t{0}}, {"concat_dim", int64_t{1}}}),
       {F32({2, 3})}},
      {"at least 1", Op::kParam, {}, {{"name", std::string("p")}}, {F32({0})}},
      {"2^48", Op::kParam, {}, {{"name", std::string("p")}}, {F32({INT64_MAX, INT64_MAX})}},
      {"has no rows", Op::kFeed, {}, {{"source", std::string("tokens")}}, {F32({})}},
      {"results are f32[2], declared are f32[3]", Op::kGelu, {F32({2})}, {}, {F32({3})}},
  };
  ExpectErrors(cases);
}

TEST(Builder, FirstErrorSticksAndLaterCallsAreHarmless) {
  Builder b("g");
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", std::string("x")}}, {F32({2, 3})});
  const ValueId bad = b.AddOne(Op::kAdd, {x, ValueId()});
  EXPECT_FALSE(bad.valid());
  EXPECT_EQ(b.Add(Op::kLayerNorm, {bad, bad, bad}).size(), 3u);
  b.SetOutput("y", bad);
  const auto graph = b.Finish();
  ASSERT_FALSE(graph.has_value());
  EXPECT_EQ(graph.error().message(), "add: operand -1 is not a value of graph \"g\"");
}

TEST(Builder, SetOutputReplacesByName) {
  Builder b("g");
  const ValueId x = b.AddOne(Op::kInput, {}, {{"name", std::string("x")}}, {F32({2})});
  const ValueId y = b.AddOne(Op::kGelu, {x});
  b.SetOutput("out", x);
  b.SetOutput("out", y);
  const auto graph = b.Finish();
  ASSERT_TRUE(graph.has_value());
  ASSERT_EQ(graph->outputs.size(), 1u);
  EXPECT_EQ(graph->Output("out"), y);
}

TEST(CostOf, CountsMatmulAndCausalAttentionFlops) {
  Builder b("g");
  const auto input = [&](const char* name, Dims dims) {
    return b.AddOne(Op::kInput, {}, {{"name", std::string(name)}}, {F32(std::move(dims))});
  };
  b.AddOne(Op::kEinsum, {input("x", {2, 3, 4}), input("w", {4, 5})}, Equation("bsk,kn->bsn"));
  const ValueId q = input("q", {1, 8, 2, 4});
  b.Add(Op::kAttention, {q, q, q}, {{"causal", int64_t{1}}});
  const Graph graph = *b.Finish();
  const OpCost einsum = CostOf(graph, graph.nodes[2]);
  EXPECT_EQ(einsum.flops, 2.0 * 2 * 3 * 4 * 5);
  EXPECT_EQ(einsum.bytes, 4.0 * (2 * 3 * 4 + 4 * 5 + 2 * 3 * 5));
  EXPECT_EQ(CostOf(graph, graph.nodes[4]).flops, 2.0 * (2.0 * 8 * 8 * 2 * 4) / 2);
}

}  // namespace
}  // namespace meshwright::ir
