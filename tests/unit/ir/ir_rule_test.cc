// Factor rules as text: "factors | operands -> results". A factor is size, then p parallel, r
// reduced, w whole; a dim lists its factors, major first; behind a result its partial kind when not
// sum; '*' marks operands through which a partial sum passes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/schema.h"

namespace meshwright::ir {
namespace {

using Types = std::vector<TensorType>;

TensorType F32(Dims dims) { return {DType::kF32, std::move(dims)}; }
TensorType I32(Dims dims) { return {DType::kI32, std::move(dims)}; }

std::string FormatDims(const TensorFactors& dims) {
  std::string text;
  for (const DimFactors& dim : dims) {
    std::string factors;
    for (FactorIndex factor : dim) factors += static_cast<char>('a' + factor);
    text += (text.empty() ? "" : ",") + factors;
  }
  return "[" + text + "]";
}

std::string FormatRule(const FactorRule& rule) {
  std::string text;
  for (size_t i = 0; i < rule.factors.size(); ++i) {
    text += fmt::format("{}{}={}{}", i ? " " : "", static_cast<char>('a' + i), rule.factors[i].size,
                        "prwsi"[static_cast<int>(rule.factors[i].kind)]);
  }
  text += " |";
  for (size_t i = 0; i < rule.operands.size(); ++i) {
    text += fmt::format(" {}{}", FormatDims(rule.operands[i]), rule.linear_operands[i] ? "*" : "");
  }
  text += " ->";
  for (size_t i = 0; i < rule.results.size(); ++i) {
    const char* kinds[] = {"", "max", "lse"};
    text += fmt::format(" {}{}", FormatDims(rule.results[i]),
                        kinds[static_cast<int>(rule.result_partial[i])]);
  }
  return text;
}

// The rule of one op applied to inputs of these types.
std::string RuleText(Op op, const Types& operands, const Attrs& attrs = {},
                     const Types& declared = {}) {
  Builder builder("rule");
  std::vector<ValueId> inputs;
  for (const TensorType& type : operands) {
    inputs.push_back(
        builder.AddOne(Op::kInput, {}, {{"name", fmt::format("x{}", inputs.size())}}, {type}));
  }
  builder.Add(op, inputs, attrs, declared);
  auto graph = builder.Finish();
  if (!graph) return graph.error().ToString();
  auto rule = RuleOf(*graph, graph->nodes.back());
  if (!rule) return rule.error().ToString();
  EXPECT_EQ(rule->result_partial.size(), rule->results.size());
  EXPECT_EQ(rule->linear_operands.size(), rule->operands.size());
  // Every dim is the product of its factors.
  const Node& node = graph->nodes.back();
  const auto check = [&](const TensorFactors& factors, const TensorType& type) {
    for (size_t d = 0; d < type.dims.size(); ++d) {
      int64_t size = 1;
      for (FactorIndex f : factors[d]) size *= rule->factors[static_cast<size_t>(f)].size;
      EXPECT_EQ(size, type.dims[d]) << OpName(op) << " dim " << d;
    }
  };
  for (size_t i = 0; i < node.inputs.size(); ++i)
    check(rule->operands[i], graph->type(node.inputs[i]));
  for (size_t i = 0; i < node.outputs.size(); ++i)
    check(rule->results[i], graph->type(node.outputs[i]));
  return FormatRule(*rule);
}

const Attrs kNamed = {{"name", std::string("n")}};

TEST(FactorRule, SourcesAreParallelInAllDims) {
  EXPECT_EQ(RuleText(Op::kParam, {}, kNamed, {F32({8, 4})}), "a=8p b=4p | -> [a,b]");
  EXPECT_EQ(RuleText(Op::kRandomNormal, {}, kNamed, {F32({8})}), "a=8p | -> [a]");
  EXPECT_EQ(RuleText(Op::kConstant, {}, {{"value", 1.0}}, {F32({})}), " | -> []");
  EXPECT_EQ(RuleText(Op::kFeed, {}, {{"source", std::string("tokens")}}, {I32({4, 9})}),
            "a=4p b=9p | -> [a,b]");
}

TEST(FactorRule, ElementwiseAlignsSuffixesFromTheRight) {
  EXPECT_EQ(RuleText(Op::kAdd, {F32({2, 3, 4}), F32({4})}),
            "a=2p b=3p c=4p | [a,b,c]* [c]* -> [a,b,c]");
  EXPECT_EQ(RuleText(Op::kMul, {F32({2, 4}), F32({2, 4})}), "a=2p b=4p | [a,b]* [a,b]* -> [a,b]");
  EXPECT_EQ(RuleText(Op::kMul, {F32({2, 4}), F32({4})}), "a=2p b=4p | [a,b]* [b] -> [a,b]");
  EXPECT_EQ(RuleText(Op::kSub, {F32({2}), F32({2})}), "a=2p | [a]* [a]* -> [a]");
  EXPECT_EQ(RuleText(Op::kScale, {F32({2})}, {{"factor", 2.0}}), "a=2p | [a]* -> [a]");
  EXPECT_EQ(RuleText(Op::kMulScalar, {F32({2}), F32({})}), "a=2p | [a]* [] -> [a]");
  EXPECT_EQ(RuleText(Op::kSum, {F32({2}), F32({2}), F32({2})}), "a=2p | [a]* [a]* [a]* -> [a]");
  EXPECT_EQ(RuleText(Op::kGelu, {F32({2})}), "a=2p | [a] -> [a]");
  EXPECT_EQ(RuleText(Op::kSilu, {F32({2})}), "a=2p | [a] -> [a]");
  EXPECT_EQ(RuleText(Op::kGeluGrad, {F32({2}), F32({2})}), "a=2p | [a] [a] -> [a]");
  EXPECT_EQ(RuleText(Op::kSiluGrad, {F32({2}), F32({2})}), "a=2p | [a] [a] -> [a]");
  EXPECT_EQ(RuleText(Op::kDropout, {F32({2})}, kNamed), "a=2p | [a]* -> [a]");
}

TEST(FactorRule, OfTheTableOfElementwiseOpsFollowTheirRows) {
  const TensorType c{DType::kBool, {2, 4}};
  EXPECT_EQ(RuleText(Op::kDivide, {F32({2, 4}), F32({4})}), "a=2p b=4p | [a,b]* [b] -> [a,b]");
  EXPECT_EQ(RuleText(Op::kSub, {F32({2, 4}), F32({4})}), "a=2p b=4p | [a,b]* [b]* -> [a,b]");
  EXPECT_EQ(RuleText(Op::kMaximum, {F32({2, 4}), F32({})}), "a=2p b=4p | [a,b] [] -> [a,b]");
  EXPECT_EQ(RuleText(Op::kShift, {F32({2})}, {{"value", 2.0}}), "a=2p | [a] -> [a]");
  EXPECT_EQ(RuleText(Op::kSelect, {c, F32({2, 4}), F32({4})}),
            "a=2p b=4p | [a,b] [a,b] [b] -> [a,b]");
}

TEST(FactorRule, ChoiceNeedsItsDimWhole) {
  const TensorType ids{DType::kI32, {2, 9}};
  const Attrs dim = {{"dim", int64_t{1}}};
  EXPECT_EQ(RuleText(Op::kGather, {F32({2, 5}), ids}, dim),
            "a=2p b=5w c=9w d=9w | [a,b]* [a,c] -> [a,d]");
  EXPECT_EQ(RuleText(Op::kOneHot, {ids}, {{"size", int64_t{5}}}),
            "a=2p b=9p c=5w | [a,b] -> [a,b,c]");
  EXPECT_EQ(RuleText(Op::kTopK, {F32({2, 5})}, {{"k", int64_t{3}}}),
            "a=2p b=5w c=3w | [a,b] -> [a,c] [a,c]");
  EXPECT_EQ(RuleText(Op::kSoftmax, {F32({2, 5})}), "a=2p b=5w | [a,b] -> [a,b]");
  EXPECT_EQ(RuleText(Op::kConcat, {F32({2, 5}), F32({2, 4})}, dim),
            "a=2p b=5w c=4w d=9w | [a,b] [a,c] -> [a,d]");
}

TEST(FactorRule, BroadcastIsAReductionBackwards) {
  const Attrs dims = {{"dims", std::vector<int64_t>{1}}};
  EXPECT_EQ(RuleText(Op::kBroadcast, {F32({2, 4})}, dims, {F32({2, 3, 4})}),
            "a=2p b=3p c=4p | [a,c]* -> [a,b,c]");
  EXPECT_EQ(RuleText(Op::kReduceSum, {F32({2, 3, 4})}, dims), "a=2p b=3r c=4p | [a,b,c]* -> [a,c]");
  EXPECT_EQ(RuleText(Op::kReduceMax, {F32({2, 3, 4})}, dims).substr(0, 15), "a=2p b=3r c=4p ");
}

TEST(FactorRule, ImagesSplitByBatchAndChannels) {
  const TensorType x = F32({2, 6, 6, 3});
  const TensorType k = F32({3, 3, 3, 5});
  EXPECT_EQ(RuleText(Op::kConv2d, {x, k}).substr(0, 15), "a=2p b=3r c=5p ");
  EXPECT_EQ(RuleText(Op::kConv2dGradInput, {k, F32({2, 4, 4, 5})}, {}, {x}).substr(0, 15),
            "a=2p b=3p c=5r ");
  EXPECT_EQ(RuleText(Op::kConv2dGradKernel, {x, F32({2, 4, 4, 5})}, {}, {k}).substr(0, 15),
            "a=2r b=3p c=5p ");
  EXPECT_EQ(RuleText(Op::kAvgPool, {x}, {{"window", std::vector<int64_t>{2, 2}}}).substr(0, 10),
            "a=2p b=3p ");
}

TEST(FactorRule, SlicedAndPaddedDimsAreWholeOnBothSides) {
  EXPECT_EQ(RuleText(Op::kSlice, {F32({4, 9})},
                     {{"dim", int64_t{1}}, {"start", int64_t{1}}, {"size", int64_t{8}}}),
            "a=4p b=9w c=8w | [a,b]* -> [a,c]");
  EXPECT_EQ(RuleText(Op::kPad, {F32({4, 8})},
                     {{"dim", int64_t{1}}, {"before", int64_t{1}}, {"after", int64_t{0}}}),
            "a=4p b=8w c=9w | [a,b]* -> [a,c]");
}

TEST(FactorRule, ReshapeMatchesProductsMajorFirst) {
  EXPECT_EQ(RuleText(Op::kReshape, {F32({2, 3, 8})}, {}, {F32({6, 8})}),
            "a=2p b=3p c=8p | [a,b,c]* -> [ab,c]");
  EXPECT_EQ(RuleText(Op::kReshape, {F32({4, 24})}, {}, {F32({4, 3, 8})}),
            "a=4p b=3p c=8p | [a,bc]* -> [a,b,c]");
  EXPECT_EQ(RuleText(Op::kReshape, {F32({6, 4})}, {}, {F32({3, 8})}),
            "a=3p b=2p c=4p | [ab,c]* -> [a,bc]");
  EXPECT_EQ(RuleText(Op::kReshape, {F32({4, 6})}, {}, {F32({3, 8})}),
            "a=4w b=6w c=3w d=8w | [a,b]* -> [c,d]");
  EXPECT_EQ(RuleText(Op::kReshape, {F32({5, 4, 6})}, {}, {F32({5, 3, 8})}),
            "a=5p b=4w c=6w d=3w e=8w | [a,b,c]* -> [a,d,e]");
  EXPECT_EQ(RuleText(Op::kReshape, {F32({1, 8})}, {}, {F32({8, 1})}),
            "a=1w b=8p c=1w | [a,b]* -> [b,c]");
  EXPECT_EQ(RuleText(Op::kReshape, {F32({1})}, {}, {F32({})}), "a=1w | [a]* -> []");
}

TEST(FactorRule, TransposeAndReductions) {
  EXPECT_EQ(RuleText(Op::kTranspose, {F32({2, 3, 4})}, {{"perm", std::vector<int64_t>{2, 0, 1}}}),
            "a=2p b=3p c=4p | [a,b,c]* -> [c,a,b]");
  EXPECT_EQ(RuleText(Op::kReduceSum, {F32({2, 3})}, {{"dims", std::vector<int64_t>{0}}}),
            "a=2r b=3p | [a,b]* -> [b]");
  EXPECT_EQ(RuleText(Op::kSumSquares, {F32({2, 3})}), "a=2r b=3r | [a,b] -> []");
}

TEST(FactorRule, EinsumReducesLabelsThatTheResultLacks) {
  EXPECT_EQ(RuleText(Op::kEinsum, {F32({2, 3, 4}), F32({4, 5})},
                     {{"equation", std::string("bsk,kn->bsn")}}),
            "a=2p b=3p c=4r d=5p | [a,b,c]* [c,d]* -> [a,b,d]");
  EXPECT_EQ(RuleText(Op::kEinsum, {F32({2, 3, 4}), F32({2, 4, 5})},
                     {{"equation", std::string("bij,bjk->bik")}}),
            "a=2p b=3p c=4r d=5p | [a,b,c]* [a,c,d]* -> [a,b,d]");
}

TEST(FactorRule, NormsReduceTheLastDimWithin) {
  const TensorType x = F32({2, 3, 8});
  const TensorType w = F32({8});
  const TensorType s = F32({2, 3});
  EXPECT_EQ(RuleText(Op::kLayerNorm, {x, w, w}),
            "a=2p b=3p c=8i | [a,b,c] [c] [c] -> [a,b,c] [a,b] [a,b]");
  EXPECT_EQ(RuleText(Op::kLayerNormGrad, {x, w, s, s, x}),
            "a=2p b=3p c=8i | [a,b,c] [c] [a,b] [a,b] [a,b,c] -> [a,b,c] [c] [c]");
  EXPECT_EQ(RuleText(Op::kRmsNorm, {x, w}), "a=2p b=3p c=8i | [a,b,c] [c] -> [a,b,c] [a,b]");
  EXPECT_EQ(RuleText(Op::kRmsNormGrad, {x, w, s, x}),
            "a=2p b=3p c=8i | [a,b,c] [c] [a,b] [a,b,c] -> [a,b,c] [c]");
}

TEST(FactorRule, EmbeddingReducesTheVocabularyAndItsGradientThePositions) {
  EXPECT_EQ(RuleText(Op::kEmbedding, {F32({50, 8}), I32({2, 3})}),
            "a=50r b=8p c=2p d=3p | [a,b] [c,d] -> [c,d,b]");
  EXPECT_EQ(RuleText(Op::kEmbeddingGrad, {I32({2, 3}), F32({2, 3, 8})}, {{"rows", int64_t{50}}}),
            "a=50p b=8p c=2r d=3r | [c,d] [c,d,b] -> [a,b]");
}

TEST(FactorRule, AttentionSplitsByKvHeadNeverBelow) {
  const TensorType q = F32({2, 5, 6, 4});
  const TensorType k = F32({2, 5, 3, 4});
  const TensorType lse = F32({2, 6, 5});
  EXPECT_EQ(
      RuleText(Op::kAttention, {q, k, k}),
      "a=2p b=5s c=5w d=3p e=2w f=4w | [a,b,de,f] [a,c,d,f] [a,c,d,f] -> [a,b,de,f] [a,de,b]");
  EXPECT_EQ(RuleText(Op::kAttentionGrad, {q, k, k, q, lse, q}),
            "a=2p b=5s c=5w d=3p e=2w f=4w | [a,b,de,f] [a,c,d,f] [a,c,d,f] [a,b,de,f] [a,de,b] "
            "[a,b,de,f] -> [a,b,de,f] [a,c,d,f] [a,c,d,f]");
  EXPECT_EQ(RuleText(Op::kRotary, {q}), "a=2p b=5p c=6p d=4w | [a,b,c,d]* -> [a,b,c,d]");
}

TEST(FactorRule, ExpertsAreSplitByGroupAndTokensByRow) {
  const TensorType choices = I32({2, 6, 2});
  const Attrs four = {{"experts", int64_t{8}}, {"groups", int64_t{4}}, {"capacity", int64_t{5}}};
  EXPECT_EQ(RuleText(Op::kExpertSlots, {choices}, four),
            "a=2p b=6w c=2w d=8w | [a,b,c] -> [a,b,c] [a,d] [a,d]");
  EXPECT_EQ(RuleText(Op::kDispatch, {F32({2, 6, 3}), choices}, four),
            "a=2p b=6s c=2w d=3p e=4p f=5w | [a,b,d]* [a,b,c] -> [a,e,f,d]");
  const TensorType slots = F32({2, 4, 5, 3});
  EXPECT_EQ(RuleText(Op::kCombine, {slots, choices}),
            "a=2p b=6s c=2w d=3p e=4r f=5w | [a,e,f,d]* [a,b,c] -> [a,b,d]");
  const Attrs hosts = {{"hosts", int64_t{2}},
                       {"groups", int64_t{4}},
                       {"capacity", int64_t{5}},
                       {"host_capacity", int64_t{6}}};
  EXPECT_EQ(RuleText(Op::kExpertSlots, {choices}, hosts),
            "a=2p b=6w c=2w d=2w e=6w | [a,b,c] -> [a,b,d] [a,d,e,c] [a,d]");
  const TensorType within = I32({2, 2, 6, 2});
  const Attrs of_host = {{"groups", int64_t{2}}, {"capacity", int64_t{5}}};
  EXPECT_EQ(RuleText(Op::kDispatch, {F32({2, 2, 6, 3}), within}, of_host),
            "a=2p b=6s c=2w d=3p e=2p f=5w g=2p | [a,g,b,d]* [a,g,b,c] -> [a,ge,f,d]");
  EXPECT_EQ(RuleText(Op::kCombine, {slots, within}),
            "a=2p b=6s c=2w d=3p e=2r f=5w g=2p | [a,ge,f,d]* [a,g,b,c] -> [a,g,b,d]");
  EXPECT_EQ(RuleText(Op::kGroupedMatmul, {slots, I32({2, 8}), F32({8, 3, 7})}),
            "a=2p b=4p c=2w d=5w e=3r f=7p | [a,b,d,e] [a,bc] [bc,e,f] -> [a,b,d,f]");
}

TEST(FactorRule, LossesReduceTheVocabularyByLogSumExp) {
  const TensorType logits = F32({2, 3, 50});
  const TensorType labels = I32({2, 3});
  const TensorType lse = F32({2, 3});
  EXPECT_EQ(RuleText(Op::kCrossEntropy, {logits, labels}),
            "a=2p b=3p c=50r | [a,b,c] [a,b] -> [] [] [a,b]lse");
  EXPECT_EQ(RuleText(Op::kCrossEntropyGrad, {logits, labels, lse, F32({})}),
            "a=2p b=3p c=50p | [a,b,c] [a,b] [a,b] [] -> [a,b,c]");
  EXPECT_EQ(RuleText(Op::kLogSumExp, {logits}), "a=2p b=3p c=50r | [a,b,c] -> [a,b]lse");
  EXPECT_EQ(RuleText(Op::kPick, {logits, labels}), "a=2p b=3p c=50r | [a,b,c] [a,b] -> [a,b]");
  EXPECT_EQ(RuleText(Op::kNll, {lse, lse, labels}), "a=2r b=3r | [a,b] [a,b] [a,b] -> [] []");
}

TEST(FactorRule, UpdatesAreParallelInAllDims) {
  const TensorType p = F32({4, 6});
  const TensorType c = F32({});
  EXPECT_EQ(RuleText(Op::kAdamW, {p, p, p, p, c, c}),
            "a=4p b=6p | [a,b] [a,b] [a,b] [a,b] [] [] -> [a,b] [a,b] [a,b]");
  EXPECT_EQ(RuleText(Op::kSgd, {p, p, p, c, c}),
            "a=4p b=6p | [a,b] [a,b] [a,b] [] [] -> [a,b] [a,b]");
  EXPECT_EQ(RuleText(Op::kClipMultiplier, {c, c}), " | [] [] -> [] []");
  EXPECT_EQ(RuleText(Op::kLearningRate, {}), " | -> []");
}

TEST(FactorRule, CollectivesHaveNone) {
  const std::string text =
      RuleText(Op::kAllReduce, {F32({4})}, {{"axes", std::vector<std::string>{"data"}}});
  EXPECT_NE(text.find("all_reduce has no factor rule"), std::string::npos) << text;
}

}  // namespace
}  // namespace meshwright::ir
