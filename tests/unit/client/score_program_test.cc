// How likely labels are, of models that read a source: what their loss says of each row.
#include "client/score_program.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "models/registry.h"
#include "ops/kernel.h"

namespace meshwright::client {
namespace {

using ::testing::HasSubstr;

constexpr char kT5[] =
    R"({"model_type":"t5","vocab_size":20,"d_model":16,"d_kv":4,"d_ff":24,"num_layers":1,)"
    R"("num_heads":4,"dropout_rate":0})";
constexpr char kBart[] =
    R"({"model_type":"bart","vocab_size":20,"max_position_embeddings":16,"d_model":16,)"
    R"("encoder_layers":1,"encoder_ffn_dim":24,"encoder_attention_heads":4,"decoder_layers":1,)"
    R"("decoder_ffn_dim":20,"decoder_attention_heads":2,"pad_token_id":1,"bos_token_id":0,)"
    R"("eos_token_id":2,"decoder_start_token_id":2,"dropout":0})";
constexpr int64_t kSource = 5;
constexpr int64_t kTarget = 4;

models::Model ModelOf(const std::string& config) {
  const auto model = models::MakeModel({.hf_config = config, .target_tokens = kTarget});
  EXPECT_TRUE(model.has_value()) << model.error();
  return model.value_or(models::Model());
}

template <typename T>
ops::HostTensor TensorOf(const ir::TensorType& type, const std::vector<T>& values) {
  ops::HostTensor tensor{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
  EXPECT_EQ(tensor.data.size(), values.size() * sizeof(T));
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

// Of a param by its name, the same in every graph.
ops::HostTensor WeightOf(const ir::Node& param, const ir::TensorType& type) {
  const std::string name = param.attrs.Str("name");
  const int seed = std::accumulate(name.begin(), name.end(), 0);
  std::vector<double> values;
  for (int64_t i = 0; i < type.elements(); ++i) {
    values.push_back(std::sin(static_cast<double>(seed) + 1.7 * static_cast<double>(i)));
  }
  return TensorOf(type, values);
}

using Rows = std::map<std::string, std::vector<int32_t>>;

// What the graph gives out, by name, of inputs or feeds.
std::map<std::string, std::vector<double>> ValuesOf(ir::Graph graph, const Rows& rows,
                                                    const std::vector<double>& counts = {}) {
  for (ir::Node& node : graph.nodes) {
    if (node.op != ir::Op::kFeed) continue;
    node.op = ir::Op::kInput;
    node.attrs = {{"name", node.attrs.Str("source")}};
  }
  const auto bind = [&](const ir::Node& node) -> Result<ops::HostTensor> {
    const ir::TensorType& type = graph.type(node.outputs[0]);
    if (node.op == ir::Op::kParam) return WeightOf(node, type);
    const std::string name = node.attrs.Str("name");
    return name == "counts" ? TensorOf(type, counts) : TensorOf(type, rows.at(name));
  };
  const auto outputs = ops::Evaluate(ops::Backend::kReference, graph, bind, {});
  EXPECT_TRUE(outputs.has_value()) << outputs.error();
  std::map<std::string, std::vector<double>> values;
  for (size_t i = 0; outputs.has_value() && i < outputs->size(); ++i) {
    std::vector<double>& of = values[graph.outputs[i].name];
    of.resize(static_cast<size_t>((*outputs)[i].type.elements()));
    std::memcpy(of.data(), (*outputs)[i].data.data(), of.size() * sizeof(double));
  }
  return values;
}

// The loss of one row, summed over its labels.
double LossOf(const models::Model& model, const Rows& row) {
  const GraphShape shape{1, kSource, ir::DType::kF64};
  const auto graph = BuildLossGraph("loss", shape, model.functions);
  EXPECT_TRUE(graph.has_value()) << graph.error();
  if (!graph.has_value()) return 0;
  Rows named;
  for (const auto& [name, tokens] : row) named["tokens/" + name] = tokens;
  return ValuesOf(*graph, named).at("loss_sum").at(0);
}

// Rows of which padding, that is no label, ends the second.
void ExpectScoresOfLoss(const std::string& config, int32_t padding) {
  const models::Model model = ModelOf(config);
  const auto program = ScoreProgram({2, kSource, ir::DType::kF64}, model.functions);
  ASSERT_TRUE(program.has_value()) << program.error();
  const Rows both = {{"source", {5, 6, 7, 8, 9, 10, 11, 12, padding, padding}},
                     {"target", {7, 8, 9, 2, 13, 2, padding, padding}}};
  const auto scores = ValuesOf(program->graph, both, {1, 1, 1, 1, 1, 1, 0, 0});
  const std::vector<double> likely = scores.at("log_likelihood");
  ASSERT_EQ(likely.size(), 2U);
  const Rows first = {{"source", {5, 6, 7, 8, 9}}, {"target", {7, 8, 9, 2}}};
  const Rows second = {{"source", {10, 11, 12, padding, padding}},
                       {"target", {13, 2, padding, padding}}};
  EXPECT_NEAR(likely[0], -LossOf(model, first), 1e-9);
  EXPECT_NEAR(likely[1], -LossOf(model, second), 1e-9);
  EXPECT_LT(likely[0], likely[1]) << "more labels are less likely";
  EXPECT_EQ(scores.at("hits").size(), 2U);
  // What does not count is not asked for.
  const auto one = ValuesOf(program->graph, both, {0, 0, 0, 0, 1, 0, 0, 0});
  EXPECT_EQ(one.at("log_likelihood")[0], 0);
  EXPECT_GT(one.at("log_likelihood")[1], likely[1]);
}

TEST(ScoreProgram, OfPairsSaysWhatTheirLossIs) {
  ExpectScoresOfLoss(kT5, 0);
  ExpectScoresOfLoss(kBart, 1);
}

TEST(ScoreProgram, RefusesWhatIsNoNextToken) {
  const auto bert = models::MakeModel({.name = "bert"});
  ASSERT_TRUE(bert.has_value()) << bert.error();
  const auto program = ScoreProgram({2, kSource, ir::DType::kF64}, bert->functions);
  EXPECT_THAT(program.error().message(), HasSubstr("`meshwright predict` gives its logits"));
}

}  // namespace
}  // namespace meshwright::client
