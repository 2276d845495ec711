// Searches of shardings on models small enough to know the answer.
#include "search/intra_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

TEST(IntraProblem, EqualLayersAreOneQuestion) {
  std::vector<size_t> sizes;
  for (int layers : {4, 24}) {
    models::Gpt2Config config;
    config.vocabulary = 512;
    config.width = 64;
    config.heads = 8;
    config.layers = layers;
    const auto loss = Gpt2Loss(config, 8, 32);
    ASSERT_TRUE(loss.has_value()) << loss.error();
    const auto staged = StepOf(*loss);
    ASSERT_TRUE(staged.has_value()) << staged.error();
    IntraOptions options;
    options.axes = {{"data", 2}, {"tensor", 2}};
    options.budget_bytes = int64_t{1} << 40;
    const auto problem =
        IntraProblem::Make(staged->graph, staged->stages, options, *MakeRateCosts({}, {}));
    ASSERT_TRUE(problem.has_value()) << problem.error();
    EXPECT_TRUE(CheckChoiceProblem(problem->choices()).ok());
    sizes.push_back(problem->choices().nodes.size());
  }
  EXPECT_EQ(sizes[0], sizes[1]);
}

}  // namespace
}  // namespace meshwright::search
