// What PlanPages makes of its options.
#include "generation/paged_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace meshwright::generation {
namespace {

using ::testing::HasSubstr;

std::vector<int64_t> TokensOf(const PagedPlan& plan) {
  std::vector<int64_t> tokens;
  for (const client::PagedSize& size : plan.sizes) {
    EXPECT_EQ(size.rows, std::min(size.tokens, plan.shape.texts));
    tokens.push_back(size.tokens);
  }
  return tokens;
}

TEST(PlanPages, WithSourcesTheLastProgramReadsOne) {
  const auto plan = PlanPages({.positions = 100, .texts = 2, .tokens = 16, .source = 30});
  ASSERT_TRUE(plan) << plan.error();
  EXPECT_EQ(TokensOf(*plan), (std::vector<int64_t>{1, 2, 8, 16, 16}));
  for (const client::PagedSize& size : plan->sizes) EXPECT_EQ(size.source.positions, 30);
  EXPECT_TRUE(plan->sizes.back().source.reads);
  EXPECT_EQ(client::PagedProgramName(plan->sizes.back()), "source/16");
  EXPECT_EQ(client::PagedProgramName(plan->sizes[3]), "rows/16");
  EXPECT_EQ(plan->limits().source_positions, 30);
  EXPECT_FALSE(PlanPages({.source = -1}));
}

TEST(PlanPages, HasAProgramForEachOfAFewSizes) {
  const auto one = PlanPages({.positions = 100, .texts = 1, .tokens = 64});
  ASSERT_TRUE(one) << one.error();
  EXPECT_EQ(TokensOf(*one), (std::vector<int64_t>{1, 8, 64}));
  EXPECT_EQ(one->shape.pages, 7);  // of 16 positions each
  const auto many = PlanPages({.positions = 100, .texts = 32, .tokens = 64, .pages = 50});
  ASSERT_TRUE(many) << many.error();
  EXPECT_EQ(TokensOf(*many), (std::vector<int64_t>{1, 8, 32, 64}));
  EXPECT_EQ(many->limits().pages, 50);
  EXPECT_EQ(many->limits().tokens, 64);
  EXPECT_EQ(many->limits().texts, 32);
  const auto few = PlanPages({.positions = 100, .texts = 2, .tokens = 2});
  ASSERT_TRUE(few) << few.error();
  EXPECT_EQ(TokensOf(*few), (std::vector<int64_t>{1, 2}));
}

TEST(PlanPages, NamesTheOptionThatIsWrong) {
  EXPECT_THAT(PlanPages({.positions = 0}).error().message(), HasSubstr("positions is 0"));
  EXPECT_THAT(PlanPages({.texts = 9, .tokens = 8}).error().message(), HasSubstr("9 texts"));
}

}  // namespace
}  // namespace meshwright::generation
