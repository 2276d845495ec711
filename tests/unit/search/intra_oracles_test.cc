// Found shardings against the closed forms of the strategies that people write by hand: data
// parallel, ZeRO, Megatron. Links have alpha 1 and beta 1 or 0.1, costs are unit-less; products are
// so dear that no device repeats one, all else is free. Source: Alpa's tests of its intra-operator
// pass, with 4-byte floats.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "planner/partition.h"
#include "search/intra_problem.h"
#include "tests/still_clock.h"
#include "tests/unit/search/search_testing.h"

namespace meshwright::search {
namespace {

using mesh::LinkCost;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr int64_t kPlenty = int64_t{1} << 40;

// What splits a product is free; every repetition costs more than all transfers.
class DearProducts final : public IntraCosts {
 public:
  explicit DearProducts(std::map<std::string, LinkCost> links) : links_(std::move(links)) {}

  double NodeSeconds(const ir::Graph& graph, const ir::Node& node,
                     const planner::NodeStrategy& strategy, const mesh::Mesh& mesh) const override {
    const bool product = node.op == ir::Op::kEinsum || node.op == ir::Op::kAttentionQkv ||
                         node.op == ir::Op::kAttentionQkvGrad;
    if (!product) return 0;
    std::set<std::string> axes;
    for (const mesh::Sharding& operand : strategy.operands) {
      for (const mesh::AxisList& dim : operand.dims) axes.insert(dim.begin(), dim.end());
    }
    (void)graph;
    return 1e9 * static_cast<double>(mesh.axes.size() - axes.size());
  }
  LinkCost Link(const std::string& axis) const override { return links_.at(axis); }

 private:
  const std::map<std::string, LinkCost> links_;
};

double AllReduce(double bytes, double devices, LinkCost link = {1, 1}) {
  return link.alpha_s + link.seconds_per_byte * 2 * (devices - 1) / devices * bytes;
}
double Half(double bytes, double devices, LinkCost link = {1, 1}) {  // gather or scatter
  return link.alpha_s + link.seconds_per_byte * (devices - 1) / devices * bytes;
}

struct Found {
  IntraAnswer answer;
  std::map<std::string, int> collectives;
};

// The layout that lowering wants: axes "data" and "tensor".
Result<Found> Find(const Staged& staged, const IntraOptions& options,
                   const std::map<std::string, LinkCost>& links) {
  Found found;
  MW_ASSIGN_OR_RETURN(
      found.answer, SearchIntra(staged.graph, staged.stages, options, DearProducts(links), kStill));
  planner::Layout layout;
  for (const ir::MeshAxis& axis : options.axes) {
    layout.degrees[axis.name == planner::kData ? planner::Axis::kData : planner::Axis::kTensor] =
        axis.size;
  }
  layout.microbatches = options.microbatches;
  MW_ASSIGN_OR_RETURN(const planner::Partition partition,
                      planner::MakePartition(staged.graph, staged.stages, found.answer.strategies,
                                             layout, int64_t{1} << 30));
  found.collectives = CollectivesOf(partition);
  return found;
}

class Mlp : public ::testing::Test {
 protected:
  Result<Found> Search(const MlpOptions& mlp, IntraOptions options,
                       const std::map<std::string, LinkCost>& links) {
    MW_ASSIGN_OR_RETURN(staged_, StepOf(MlpLoss(mlp)));
    return Find(staged_, options, links);
  }
  Staged staged_;
};

TEST_F(Mlp, DataParallelWhereWeightsAreSmall) {
  const double params = 6 * AllReduce(4 * 32 * 32, 4);
  for (const char* axis : {"data", "tensor"}) {
    const auto found = Search({}, {.axes = {{axis, 4}}, .budget_bytes = kPlenty}, {{axis, {1, 1}}});
    ASSERT_TRUE(found.has_value()) << found.error();
    // Scalars of the norm and the loss cost a call each, at most.
    EXPECT_LE(found->answer.step_s, params + 4 * AllReduce(4, 4));
    EXPECT_GE(found->answer.step_s, params);
    EXPECT_THAT(found->collectives, UnorderedElementsAre(Pair("all_reduce", 1)));
    for (const auto& [name, sharding] : found->answer.strategies.params) {
      EXPECT_EQ(sharding, mesh::Sharding::Replicated(2)) << name;
    }
  }
}

// Weights replicated, state split by rows.
TEST_F(Mlp, Zero2IsWhatSplitStateComesTo) {
  IntraOptions options{.axes = {{"data", 4}}, .budget_bytes = kPlenty};
  for (int i = 0; i < 6; ++i) {
    options.pins.params[fmt::format("opt.m/w{}", i)] = {{{"data"}, {}}, {}};
    options.pins.params[fmt::format("w{}", i)] = mesh::Sharding::Replicated(2);
  }
  const auto found = Search({}, options, {{"data", {1, 1}}});
  ASSERT_TRUE(found.has_value()) << found.error();
  EXPECT_NEAR(found->answer.step_s, 6 * 2 * Half(4 * 32 * 32, 4), 4 * AllReduce(4, 4));
  EXPECT_THAT(found->collectives,
              UnorderedElementsAre(Pair("reduce_scatter", 6), Pair("all_gather", 6)));
  EXPECT_EQ(found->answer.strategies.params.at("opt.v/w3").dims[0], mesh::AxisList{"data"});
}

// With microbatches the same state makes gradients add up split.
TEST_F(Mlp, Zero2AccumulatesSplitGradientsWhereMemoryIsShort) {
  const int64_t weight_bytes = 4 * 32 * 32;
  IntraOptions options{.axes = {{"data", 4}}, .microbatches = 4, .budget_bytes = kPlenty};
  for (int i = 0; i < 6; ++i) {
    options.pins.params[fmt::format("w{}", i)] = mesh::Sharding::Replicated(2);
    options.pins.params[fmt::format("opt.m/w{}", i)] = {{{"data"}, {}}, {}};
  }
  options.pins.batch_axes = {"data"};
  auto staged = StepOf(MlpLoss({}));
  ASSERT_TRUE(staged.has_value());
  const DearProducts costs({{"data", {1, 1}}});
  const auto roomy = SearchIntra(staged->graph, staged->stages, options, costs, kStill);
  ASSERT_TRUE(roomy.has_value()) << roomy.error();
  EXPECT_TRUE(roomy->strategies.kept_as.empty());
  // Gradients whole take 6 weights; split, a quarter of that.
  options.budget_bytes -= roomy->left_bytes + 4 * weight_bytes;
  const auto tight = SearchIntra(staged->graph, staged->stages, options, costs, kStill);
  ASSERT_TRUE(tight.has_value()) << tight.error();
  EXPECT_GE(tight->strategies.kept_as.size(), 5u);
  for (const auto& [value, sharding] : tight->strategies.kept_as) {
    EXPECT_TRUE(sharding.partial.empty());
    EXPECT_EQ(sharding.dims[0], mesh::AxisList{"data"});
  }
  EXPECT_GT(tight->step_s, roomy->step_s);
}

TEST_F(Mlp, Zero3IsWhatSplitWeightsComeTo) {
  IntraOptions options{.axes = {{"data", 4}}, .budget_bytes = kPlenty};
  for (int i = 0; i < 6; ++i) options.pins.params[fmt::format("w{}", i)] = {{{"data"}, {}}, {}};
  options.pins.batch_axes = {"data"};
  auto found = Search({}, options, {{"data", {1, 1}}});
  ASSERT_TRUE(found.has_value()) << found.error();
  // Gathered in forward and in backward; the first one's input has no gradient.
  EXPECT_NEAR(found->answer.step_s, (6 + 5 + 6) * Half(4 * 32 * 32, 4), 4 * AllReduce(4, 4));
  EXPECT_EQ(found->collectives["reduce_scatter"], 6);
  EXPECT_EQ(found->collectives["all_reduce"], 0);
}

TEST_F(Mlp, ModelParallelWhereActivationsAreSmall) {
  const MlpOptions mlp{.batch = 4, .sequence = 8, .width = 256};
  const double activation = 4.0 * 4 * 8 * 256;
  for (const char* axis : {"data", "tensor"}) {
    auto found = Search(mlp, {.axes = {{axis, 4}}, .budget_bytes = kPlenty}, {{axis, {1, 1}}});
    ASSERT_TRUE(found.has_value()) << found.error();
    EXPECT_LE(found->answer.step_s, 5 * AllReduce(activation, 4) + 4 * AllReduce(4, 4));
    EXPECT_LE(found->collectives["all_reduce"], 5);
    // Columns and rows in turn.
    for (int i = 0; i + 1 < 6; ++i) {
      const auto split = [&](int layer) {
        return found->answer.strategies.params.at(fmt::format("w{}", layer)).dims[0].empty();
      };
      EXPECT_NE(split(i), split(i + 1)) << "layer " << i;
    }
  }
}

TEST_F(Mlp, BothOnATwoByTwoMesh) {
  const LinkCost data{1, 1};
  const LinkCost tensor{1, 0.1};
  auto found = Search({}, {.axes = {{"data", 2}, {"tensor", 2}}, .budget_bytes = kPlenty},
                      {{"data", data}, {"tensor", tensor}});
  ASSERT_TRUE(found.has_value()) << found.error();
  const double activation = 4.0 * 256 * 32 / 2;
  const double wanted =
      6 * AllReduce(4 * 32 * 32 / 2.0, 2, data) + 5 * AllReduce(activation, 2, tensor);
  EXPECT_LE(found->answer.step_s, wanted + 8 * AllReduce(4, 2, data));
}

// ---- transformer ----

struct Gpt {
  static constexpr int64_t kLayers = 3;
  static constexpr int64_t kWidth = 64;
  int64_t batch = 4;
  int64_t sequence = 8;

  Result<Staged> Step() const {
    models::Gpt2Config config;
    config.vocabulary = 64;
    config.positions = sequence;
    config.width = kWidth;
    config.heads = 8;
    config.layers = kLayers;
    config.tied = false;
    MW_ASSIGN_OR_RETURN(const ir::Graph loss, Gpt2Loss(config, batch, sequence));
    return StepOf(loss);
  }
  double activation_bytes() const { return static_cast<double>(4 * batch * sequence * kWidth); }
};

bool HasText(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Which axis splits the inner dims of a block's weights, and not the outer ones.
void ExpectMegatron(const Found& found, int layer, const std::string& axis) {
  const auto& params = found.answer.strategies.params;
  const std::string block = fmt::format("transformer.h.{}.", layer);
  const mesh::AxisList split = {axis};
  EXPECT_EQ(params.at(block + "attn.c_attn.weight").dims[2], split);  // d, 3, heads, head size
  EXPECT_EQ(params.at(block + "attn.c_proj.weight").dims[0], split);  // heads, head size, d
  EXPECT_EQ(params.at(block + "mlp.c_fc.weight").dims[1], split);     // d, inner
  EXPECT_EQ(params.at(block + "mlp.c_proj.weight").dims[0], split);   // inner, d
}

TEST(GptOracle, MegatronIsFoundOnOneAxis) {
  const Gpt gpt{.batch = 1, .sequence = 8};
  const auto staged = gpt.Step();
  ASSERT_TRUE(staged.has_value()) << staged.error();
  const auto found =
      Find(*staged, {.axes = {{"tensor", 4}}, .budget_bytes = kPlenty}, {{"tensor", {1, 1}}});
  ASSERT_TRUE(found.has_value()) << found.error();
  for (int layer = 0; layer < Gpt::kLayers; ++layer) ExpectMegatron(*found, layer, "tensor");
  // Four all-reduces of activations per layer; the embedding and the head add theirs.
  const double blocks = 4 * Gpt::kLayers * AllReduce(gpt.activation_bytes(), 4);
  EXPECT_LE(found->answer.step_s, blocks + 4 * AllReduce(gpt.activation_bytes(), 4));
}

// With the batch on the slow axis, as data parallel has it.
TEST(GptOracle, MegatronIsFoundBesideData) {
  const Gpt gpt{.batch = 4, .sequence = 32};
  const auto staged = gpt.Step();
  ASSERT_TRUE(staged.has_value()) << staged.error();
  IntraOptions options{.axes = {{"data", 2}, {"tensor", 2}}, .budget_bytes = kPlenty};
  options.pins.batch_axes = {"data"};
  const auto found = Find(*staged, options, {{"data", {2, 1}}, {"tensor", {2, 0.1}}});
  ASSERT_TRUE(found.has_value()) << found.error();
  for (int layer = 0; layer < Gpt::kLayers; ++layer) ExpectMegatron(*found, layer, "tensor");
}

// Wider batches: gradients are scattered along the fast axis, reduced along the slow one and
// gathered again, which beats what the closed form of data parallel with Megatron's split comes to.
TEST(GptOracle, ReductionsByStepsBeatMegatronWhereActivationsAreLarge) {
  const Gpt gpt{.batch = 32, .sequence = 32};
  const auto staged = gpt.Step();
  ASSERT_TRUE(staged.has_value()) << staged.error();
  const LinkCost data{2, 1};
  const LinkCost tensor{2, 0.1};
  const auto found = Find(*staged, {.axes = {{"data", 2}, {"tensor", 2}}, .budget_bytes = kPlenty},
                          {{"data", data}, {"tensor", tensor}});
  ASSERT_TRUE(found.has_value()) << found.error();
  double megatron = 4 * Gpt::kLayers * AllReduce(gpt.activation_bytes() / 2, 2, tensor);
  for (const auto& [name, sharding] : found->answer.strategies.params) {
    if (!name.ends_with(".weight") || name.starts_with("opt.") || !HasText(name, ".h.")) continue;
    const double inner = HasText(name, "mlp") ? 4.0 : HasText(name, "c_attn") ? 3.0 : 1.0;
    if (HasText(name, "ln_")) continue;
    megatron += AllReduce(4 * inner * Gpt::kWidth * Gpt::kWidth / 2, 2, data);
  }
  EXPECT_LT(found->answer.step_s, megatron);
}

}  // namespace
}  // namespace meshwright::search
