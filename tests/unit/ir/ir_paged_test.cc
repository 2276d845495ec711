// paged_attention: what it takes, what it renews, what may be split.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/gpu_support.h"
#include "ir/schema.h"

namespace meshwright::ir {
namespace {

using ::testing::HasSubstr;

constexpr DType kF32 = DType::kF32;
constexpr DType kI32 = DType::kI32;

std::vector<TensorType> Operands() {
  return {{kF32, {2, 5, 6, 8}}, {kF32, {2, 5, 3, 8}},
          {kF32, {2, 5, 3, 8}}, {DType::kBF16, {2, 7, 2, 3, 4, 8}},
          {kI32, {2, 4, 6}},    {kI32, {2, 5}},
          {kI32, {2, 5}}};
}

TEST(PagedAttention, GivesOutAttentionAndThePagesAsTheyAre) {
  const auto types = InferTypes(Op::kPagedAttention, {}, Operands(), {});
  ASSERT_TRUE(types) << types.error();
  ASSERT_EQ(types->size(), 3u);
  EXPECT_EQ((*types)[0].ToString(), "f32[2,5,6,8]");
  EXPECT_EQ((*types)[1].ToString(), "f32[2,6,5]");
  EXPECT_EQ((*types)[2].ToString(), "bf16[2,7,2,3,4,8]");
}

TEST(PagedAttention, RenewsItsPagesInPlace) {
  const std::vector<Renewed> renewed = RenewedOf(Op::kPagedAttention);
  ASSERT_EQ(renewed.size(), 1u);
  EXPECT_EQ(renewed[0].result, 2u);
  EXPECT_EQ(renewed[0].operand, 3u);
  EXPECT_EQ(InPlaceOperand(Op::kPagedAttention, 2), 3u);
  EXPECT_FALSE(InPlaceOperand(Op::kPagedAttention, 0));
  EXPECT_TRUE(RenewedOf(Op::kAttention).empty());
  EXPECT_EQ(RenewedOf(Op::kAdamW).size(), 3u);
  EXPECT_EQ(RenewedOf(Op::kSgd).size(), 2u);
}

TEST(PagedAttention, SaysWhatDoesNotFit) {
  const auto error = [](size_t operand, TensorType type, Attrs attrs = {}) {
    std::vector<TensorType> operands = Operands();
    operands[operand] = std::move(type);
    const auto types = InferTypes(Op::kPagedAttention, attrs, operands, {});
    return types ? std::string() : types.error().message();
  };
  EXPECT_THAT(error(0, {kF32, {2, 5, 5, 8}}), HasSubstr("5 query heads"));
  EXPECT_THAT(error(0, {kF32, {2, 4, 6, 8}}), HasSubstr("must agree"));
  EXPECT_THAT(error(3, {kF32, {2, 7, 2, 6, 4, 8}}), HasSubstr("pages must be"));
  EXPECT_THAT(error(4, {kI32, {1, 4, 6}}), HasSubstr("the table"));
  EXPECT_THAT(error(5, {kI32, {2, 4}}), HasSubstr("operand 5 must be i32[2,5]"));
  EXPECT_THAT(error(6, {kF32, {2, 5}}), HasSubstr("operand 6 must be i32[2,5]"));
  EXPECT_THAT(error(0, Operands()[0], {{"window", int64_t{0}}}), HasSubstr("window"));
}

TEST(PagedAttention, KeysMayHavePlacesOfTheirOwnAndScoresABias) {
  std::vector<TensorType> operands = Operands();
  const TensorType bias{kF32, {6, 9}};
  operands.push_back(bias);
  EXPECT_TRUE(InferTypes(Op::kPagedAttention, {}, operands, {}));
  operands.pop_back();
  operands[1] = operands[2] = {kF32, {2, 4, 3, 8}};
  EXPECT_FALSE(InferTypes(Op::kPagedAttention, {}, operands, {}));
  operands.push_back({kI32, {2, 4}});
  operands.push_back({kI32, {2, 4}});
  EXPECT_TRUE(InferTypes(Op::kPagedAttention, {}, operands, {}));
  operands.push_back(bias);
  EXPECT_TRUE(InferTypes(Op::kPagedAttention, {}, operands, {}));
  operands.back() = {kF32, {3, 9}};
  const auto heads = InferTypes(Op::kPagedAttention, {}, operands, {});
  ASSERT_FALSE(heads);
  EXPECT_THAT(heads.error().message(), HasSubstr("the bias must be [h, d]"));
  operands.back() = bias;
  operands[8] = {kI32, {2, 5}};
  const auto places = InferTypes(Op::kPagedAttention, {}, operands, {});
  ASSERT_FALSE(places);
  EXPECT_THAT(places.error().message(), HasSubstr("operand 8 must be i32[2,4]"));
}

TEST(PagedAttention, GroupsAndKvHeadsMayBeSplitAndTokensMayNot) {
  Builder builder("paged");
  std::vector<ValueId> inputs;
  for (const TensorType& type : Operands()) {
    inputs.push_back(
        builder.AddOne(Op::kInput, {}, {{"name", std::to_string(inputs.size())}}, {type}));
  }
  builder.SetOutput("o", builder.Add(Op::kPagedAttention, inputs)[0]);
  const auto graph = builder.Finish();
  ASSERT_TRUE(graph) << graph.error();
  const auto rule = RuleOf(*graph, graph->nodes.back());
  ASSERT_TRUE(rule) << rule.error();
  const auto kind = [&](size_t operand, size_t dim) {
    return rule->factors[static_cast<size_t>(rule->operands[operand][dim][0])].kind;
  };
  EXPECT_EQ(kind(0, 0), FactorKind::kParallel);
  EXPECT_EQ(kind(0, 1), FactorKind::kWhole);
  EXPECT_EQ(kind(0, 2), FactorKind::kParallel);
  EXPECT_EQ(kind(3, 1), FactorKind::kWhole);
  EXPECT_EQ(rule->operands[3][3], rule->operands[1][2]);  // heads of pages go with those of k
  EXPECT_EQ(rule->operands[0][2][0], rule->operands[1][2][0]);
  EXPECT_EQ(rule->operands[3], rule->results[2]);
  EXPECT_GT(CostOf(*graph, graph->nodes.back()).flops, 0);
  EXPECT_THAT(WhyNotOnGpus(*graph), HasSubstr("paged_attention"));
}

}  // namespace
}  // namespace meshwright::ir
