// Searches of shardings on models small enough to know the answer.
#include "search/intra_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/intra_model.h"
#include "tests/rate_costs.h"
#include "tests/still_clock.h"
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
    const auto model =
        MakeIntraModel(staged->graph, staged->stages, options, *MakeRateCosts({}, {}));
    ASSERT_TRUE(model.has_value()) << model.error();
    EXPECT_TRUE(CheckChoiceProblem(model->problem).ok());
    sizes.push_back(model->problem.nodes.size());
  }
  EXPECT_EQ(sizes[0], sizes[1]);
}

class Pins : public ::testing::Test {
 protected:
  void SetUp() override {
    auto staged = StepOf(MlpLoss({.batch = 8, .sequence = 4, .width = 16, .layers = 2}));
    ASSERT_TRUE(staged.has_value()) << staged.error();
    staged_ = *std::move(staged);
    options_.axes = {{"data", 2}, {"tensor", 2}};
    options_.budget_bytes = int64_t{1} << 40;
  }

  Result<IntraAnswer> Search() const {
    return SearchIntra(staged_.graph, staged_.stages, options_, *MakeRateCosts({}, {}), kStill);
  }

  std::string Error() const {
    const auto answer = Search();
    if (answer.has_value()) return "";
    EXPECT_EQ(answer.error().code(), StatusCode::kInvalidArgument);
    return answer.error().ToString();
  }

  Staged staged_;
  IntraOptions options_;
};

TEST_F(Pins, AreKept) {
  const mesh::Sharding rows{{{"tensor"}, {"data"}}, {}};
  options_.pins.params["w1"] = rows;
  options_.pins.params["opt.v/w0"] = rows;
  const auto answer = Search();
  ASSERT_TRUE(answer.has_value()) << answer.error();
  EXPECT_EQ(answer->strategies.params.at("w1"), rows);
  EXPECT_EQ(answer->strategies.params.at("opt.v/w0"), rows);
  EXPECT_EQ(answer->strategies.params.at("opt.m/w0"), rows);
}

TEST_F(Pins, OfTheBatchAxisHoldInForwardAndBackward) {
  options_.pins.batch_axes = {"data"};
  const auto answer = Search();
  ASSERT_TRUE(answer.has_value()) << answer.error();
  for (NodeId id : staged_.graph.NodesOf(ir::Op::kGelu)) {
    const auto& strategy = answer->strategies.nodes[id.index()];
    EXPECT_EQ(strategy.results[0].dims[0].front(), "data");
  }
}

TEST_F(Pins, ThatNothingFulfilsAreNamed) {
  options_.pins.params["w7"] = mesh::Sharding::Replicated(2);
  EXPECT_THAT(Error(), testing::HasSubstr("pinned param w7 is not in the graph"));
  options_.pins = {};
  options_.pins.params["w0"] = {{{}, {"tensor"}}, {{"data", ir::PartialKind::kSum}}};
  EXPECT_THAT(Error(), testing::HasSubstr("param w0 cannot be f32[16,16{tensor}]"));
  options_.pins = {};
  options_.pins.batch_axes = {"rows"};
  EXPECT_THAT(Error(), testing::HasSubstr("batch axis rows"));
  options_.axes.push_back({"data", 4});
  EXPECT_THAT(Error(), testing::HasSubstr("data=4"));
}

TEST(IntraMemory, ATightBudgetSplitsMoreUntilNothingFits) {
  const auto staged = StepOf(MlpLoss({.batch = 8, .sequence = 4, .width = 64, .layers = 3}));
  ASSERT_TRUE(staged.has_value()) << staged.error();
  IntraOptions options{.axes = {{"data", 4}}, .budget_bytes = int64_t{1} << 40};
  // Transfers are dear, so that nothing is split without need.
  const auto costs = MakeRateCosts({1e12, 1e12, 0}, {{"data", {1, 1e-3}}});
  double last_s = 0;
  int64_t used_bytes = 0;
  const int64_t weights_bytes = 3 * 4 * 64 * 64;
  for (int round = 0; round < 4; ++round) {
    const auto answer = SearchIntra(staged->graph, staged->stages, options, *costs, kStill);
    ASSERT_TRUE(answer.has_value()) << round << ": " << answer.error();
    EXPECT_GE(answer->left_bytes, 0);
    EXPECT_GE(answer->step_s, last_s);
    last_s = answer->step_s;
    used_bytes = options.budget_bytes - answer->left_bytes;
    options.budget_bytes = used_bytes - weights_bytes / 2;
  }
  // Weights, gradients and both states: 4 of each, a quarter at least.
  options.budget_bytes = weights_bytes - 1;
  const auto none = SearchIntra(staged->graph, staged->stages, options, *costs, kStill);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace meshwright::search
