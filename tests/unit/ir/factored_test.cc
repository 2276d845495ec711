#include "ir/factored.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ir/builder.h"

namespace meshwright::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Factored> FactorsOf(const Dims& dims, std::vector<int64_t> perm,
                           std::vector<int64_t> shape) {
  Node node;
  node.op = Op::kParam;
  node.attrs.Set("name", std::string("w"));
  if (!perm.empty()) node.attrs.Set("export_perm", std::move(perm));
  if (!shape.empty()) node.attrs.Set("export_shape", std::move(shape));
  return FactoredOf(node, {DType::kF32, dims});
}

TEST(Factored, IsTheMatrixOfTheFile) {
  EXPECT_EQ(*FactorsOf({7, 5}, {}, {}), (Factored{0, 1}));
  EXPECT_EQ(*FactorsOf({7, 5}, {1, 0}, {}), (Factored{0, 1}));
  // GPT-2's fused attention, LLaMA's queries, what comes out of heads.
  EXPECT_EQ(*FactorsOf({12, 3, 4, 3}, {}, {12, 36}), (Factored{0, 1}));
  EXPECT_EQ(*FactorsOf({12, 4, 3}, {1, 2, 0}, {12, 12}), (Factored{0, 1}));
  EXPECT_EQ(*FactorsOf({4, 3, 12}, {2, 0, 1}, {12, 12}), (Factored{0, 2}));
  // Experts are matrices.
  EXPECT_EQ(*FactorsOf({8, 5, 7}, {0, 2, 1}, {}), (Factored{1, 1}));
}

TEST(Factored, WhatIsALineInFilesIsRememberedByElement) {
  const Factored bias = *FactorsOf({4, 3}, {}, {12});
  EXPECT_EQ(bias, (Factored{0, 2}));
  EXPECT_THAT(bias.RowsOf({4, 3}), ElementsAre(4, 3));
  EXPECT_THAT(bias.ColumnsOf({4, 3}), ElementsAre());
  EXPECT_EQ(*FactorsOf({9}, {}, {}), (Factored{0, 1}));
  EXPECT_EQ(*FactorsOf({}, {}, {}), (Factored{0, 0}));
}

TEST(Factored, RowsAndColumnsKeepTheMatricesApart) {
  const Factored experts{1, 1};
  EXPECT_THAT(experts.RowsOf({8, 5, 7}), ElementsAre(8, 5));
  EXPECT_THAT(experts.ColumnsOf({8, 5, 7}), ElementsAre(8, 7));
}

TEST(Factored, MixedDimsAreRefusedByName) {
  const auto mixed = FactorsOf({4, 12, 3}, {0, 2, 1}, {12, 12});
  ASSERT_FALSE(mixed.has_value());
  EXPECT_THAT(mixed.error().message(), HasSubstr("\"w\""));
}

}  // namespace
}  // namespace meshwright::ir
