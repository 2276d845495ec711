// Which tokens BERT hides: the shares of Devlin et al. 2019, the same ones on every layout and of
// every restart, others in every step; never padding.
#include <gtest/gtest.h>

#include <cstring>

#include "client/trainer.h"
#include "models/registry.h"
#include "ops/kernel.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

using ir::DType;

constexpr int64_t kHiddenRows = 64;
constexpr int64_t kHiddenTokens = 128;
constexpr int64_t kHiddenVocabulary = 64;
constexpr int32_t kMaskToken = 63;
constexpr int32_t kNoLabel = -100;

models::Model HidingModel() {
  models::ModelSpec spec;
  spec.name = "bert";
  spec.vocabulary = kHiddenVocabulary;
  spec.mask_token = kMaskToken;
  spec.positions = kHiddenTokens;
  const auto model = models::MakeModel(spec);
  EXPECT_TRUE(model.has_value()) << model.error();
  return model.value_or(models::Model());
}

struct Hidden {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;
};

// No mask and, once in 16, padding, which is 0.
int32_t TokenAt(int64_t place) {
  return place % 16 == 5 ? 0 : static_cast<int32_t>(1 + place % 61);
}

// The place at which the word of the token at this place of a row begins: words have 1 to 4 tokens.
int32_t WordAt(int64_t place) {
  int64_t begin = 0;
  for (int64_t next = 0, size = 1; next <= place; next += size, size = size % 4 + 1) begin = next;
  return static_cast<int32_t>(begin);
}

Result<Hidden> Hide(const models::Model& model, uint64_t seed, int64_t step, bool words = false) {
  client::Builder builder("hide");
  const auto input = [&](const char* name) {
    return builder.AddOne(ir::Op::kInput, {}, {{"name", std::string(name)}},
                          {{DType::kI32, {kHiddenRows, kHiddenTokens}}});
  };
  client::Batch brought = {{"tokens", input("tokens")}};
  if (words) brought["words"] = input("words");
  const client::Batch batch = model.functions.corrupt(builder, brought);
  builder.SetOutput("tokens", batch.at("tokens"));
  builder.SetOutput("labels", batch.at("labels"));
  MW_ASSIGN_OR_RETURN(const ir::Graph graph, builder.Finish());
  const auto bind = [&](const ir::Node& node) -> Result<ops::HostTensor> {
    const ir::TensorType& type = graph.type(node.outputs[0]);
    ops::HostTensor tensor{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
    for (int64_t i = 0; i < type.elements(); ++i) {
      const int32_t token =
          node.attrs.Str("name") == "words" ? WordAt(i % kHiddenTokens) : TokenAt(i);
      std::memcpy(tensor.data.data() + i * static_cast<int64_t>(sizeof(token)), &token,
                  sizeof(token));
    }
    return tensor;
  };
  ops::RunContext run;
  run.seed = seed;
  run.step = step;
  MW_ASSIGN_OR_RETURN(const auto outputs, ops::Evaluate(ops::Backend::kCpu, graph, bind, run));
  Hidden hidden;
  for (const auto& [tensor, to] :
       {std::pair(&outputs[0], &hidden.tokens), std::pair(&outputs[1], &hidden.labels)}) {
    to->resize(static_cast<size_t>(kHiddenRows * kHiddenTokens));
    std::memcpy(to->data(), tensor->data.data(), tensor->data.size());
  }
  return hidden;
}

TEST(HiddenTokens, HaveTheirSharesAndNoPadding) {
  const models::Model model = HidingModel();
  const auto hidden = Hide(model, 3, 0);
  ASSERT_TRUE(hidden.has_value()) << hidden.error();
  double texts = 0;
  double chosen = 0;
  double masked = 0;
  double kept = 0;
  for (size_t i = 0; i < hidden->tokens.size(); ++i) {
    const int32_t was = TokenAt(static_cast<int64_t>(i));
    const int32_t is = hidden->tokens[i];
    texts += was != 0 ? 1 : 0;
    if (hidden->labels[i] == kNoLabel) {
      EXPECT_EQ(is, was) << i;
      continue;
    }
    EXPECT_EQ(hidden->labels[i], was) << i;
    EXPECT_NE(was, 0) << "padding is hidden at " << i;
    EXPECT_TRUE(is >= 0 && is < kHiddenVocabulary) << is;
    chosen += 1;
    masked += is == kMaskToken ? 1 : 0;
    kept += is == was ? 1 : 0;
  }
  EXPECT_NEAR(chosen / texts, 0.15, 0.02);
  EXPECT_NEAR(masked / chosen, 0.8, 0.05);
  EXPECT_NEAR(kept / chosen, 0.1, 0.04);
}

TEST(HiddenTokens, AreOthersInEveryStepAndTheSameAgain) {
  const models::Model model = HidingModel();
  const auto first = Hide(model, 3, 0);
  const auto again = Hide(model, 3, 0);
  const auto next = Hide(model, 3, 1);
  ASSERT_TRUE(first.has_value() && again.has_value() && next.has_value());
  EXPECT_EQ(first->tokens, again->tokens);
  EXPECT_NE(first->labels, next->labels);
}

// All pieces of a word are hidden, or none; padding is none.
TEST(HiddenTokens, AreWholeWordsWhereTheseAreTold) {
  const models::Model model = HidingModel();
  const auto hidden = Hide(model, 3, 0, /*words=*/true);
  ASSERT_TRUE(hidden.has_value()) << hidden.error();
  double texts = 0;
  double chosen = 0;
  for (size_t i = 0; i < hidden->tokens.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    if (TokenAt(place) == 0) continue;
    texts += 1;
    const bool is_hidden = hidden->labels[i] != kNoLabel;
    chosen += is_hidden ? 1 : 0;
    const int64_t row = place / kHiddenTokens * kHiddenTokens;
    const int64_t first = row + WordAt(place - row);
    if (TokenAt(first) == 0) continue;  // it has no label of its own
    EXPECT_EQ(is_hidden, hidden->labels[static_cast<size_t>(first)] != kNoLabel) << i;
  }
  EXPECT_NEAR(chosen / texts, 0.15, 0.03);
}

// Rows of words, and tokens by formula.
class WordRows final : public ops::TokenSource {
 public:
  Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) override {
    for (size_t i = 0; i < row.size(); ++i) {
      const auto place = static_cast<int64_t>(i);
      row[i] = TokenAt(sample * 37 + place);
      if (source == "tokens/words") row[i] = WordAt(place);
      if (source == "tokens/positions") row[i] = static_cast<int32_t>(i);
      if (source == "tokens/segments") row[i] = 0;
    }
    return OkStatus();
  }
};

ir::DataSpec WordData(int64_t tokens) {
  ir::DataStream stream;
  stream.kind = ir::DataKind::kRecords;
  for (const char* name : {"tokens", "labels", "segments", "positions", "words"}) {
    stream.fields.push_back({name, ir::Element::kI32, {tokens}, {}, {}});
  }
  ir::DataSpec data;
  data.streams = {std::move(stream)};
  return data;
}

// The losses of two steps.
std::vector<double> LossesOn(int data, int tensor, int pipeline,
                             client::RowKind rows = client::RowKind::kWindows) {
  const models::Model model = HidingModel();
  ir::TrainSpec train;
  train.global_batch = 4;
  train.sequence = 32;
  train.steps = 2;
  client::JobBuilder builder("hidden");
  builder.Train(train).DType(DType::kF64);
  if (rows == client::RowKind::kWords) builder.Data(WordData(train.sequence));
  auto job = builder.Build(model.functions, rows);
  EXPECT_TRUE(job.has_value()) << job.error();
  if (!job.has_value()) return {};
  job->parallel.data = data;
  job->parallel.tensor = tensor;
  job->parallel.pipeline = pipeline;
  job->parallel.microbatches = 2;
  SyntheticTokens windows(kHiddenVocabulary);
  WordRows words;
  ops::TokenSource* const read =
      rows == client::RowKind::kWords ? static_cast<ops::TokenSource*>(&words) : &windows;
  const auto cluster = VirtualCluster::Start(*job, data * tensor * pipeline, read);
  EXPECT_TRUE(cluster.has_value()) << cluster.error();
  if (!cluster.has_value()) return {};
  const auto reports = (*cluster)->Train(0, train.steps);
  EXPECT_TRUE(reports.has_value()) << reports.error();
  std::vector<double> losses;
  for (const auto& report : *reports) losses.push_back(report.values.at("loss"));
  return losses;
}

TEST(HiddenTokens, AreTheSameOnEveryLayout) {
  for (const client::RowKind rows : {client::RowKind::kWindows, client::RowKind::kWords}) {
    const std::vector<double> one = LossesOn(1, 1, 1, rows);
    ASSERT_EQ(one.size(), 2u);
    for (const auto& [data, tensor, pipeline] : {std::tuple(2, 2, 1), std::tuple(1, 1, 2)}) {
      const std::vector<double> shared = LossesOn(data, tensor, pipeline, rows);
      ASSERT_EQ(shared.size(), one.size());
      for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(shared[i], one[i], 1e-10) << i;
    }
  }
}

}  // namespace
}  // namespace meshwright::testing
