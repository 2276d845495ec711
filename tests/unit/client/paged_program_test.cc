// Programs over pages against the model's own forward: equal numbers, and equal bits whatever the
// batch.
#include "client/paged_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "base/half.h"
#include "base/philox.h"
#include "base/thread_team.h"
#include "ir/builder.h"
#include "ir/mixed_precision.h"
#include "models/decoder.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "models/mixture.h"
#include "ops/kernel.h"

namespace meshwright::client {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 40;
constexpr int64_t kPositions = 48;

TrainerFunctions Gpt2() {
  return models::MakeGpt2(
      {.vocabulary = kVocabulary, .positions = kPositions, .width = 24, .layers = 2, .heads = 4});
}

models::LlamaConfig LlamaConfig() {
  return {
      .vocabulary = kVocabulary, .width = 24, .inner = 56, .layers = 2, .heads = 4, .kv_heads = 2};
}

// Numbers of a param by its name alone.
ops::HostTensor ParamOf(const ir::Node& node, const ir::TensorType& type) {
  ops::HostTensor tensor{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
  if (node.attrs.Int("kept") != 0) return tensor;
  const uint64_t stream = StreamOf(node.attrs.Str("name"));
  const bool ones = node.attrs.Str("init") == "ones";
  for (int64_t i = 0; i < type.elements(); ++i) {
    const double x = (ones ? 1.0 : 0.0) + 0.25 * PhiloxNormal(5, stream, static_cast<uint64_t>(i));
    if (type.dtype == ir::DType::kF64) {
      std::memcpy(tensor.data.data() + i * 8, &x, 8);
    } else if (type.dtype == ir::DType::kBF16) {
      const uint16_t half = FloatToBf16(static_cast<float>(x));
      std::memcpy(tensor.data.data() + i * 2, &half, 2);
    } else {
      const auto narrow = static_cast<float>(x);
      std::memcpy(tensor.data.data() + i * 4, &narrow, 4);
    }
  }
  return tensor;
}

// What a client brings, one group.
class Brought final : public ops::FeedSource {
 public:
  std::map<std::string, std::vector<int32_t>> values;

  Status ReadRow(const std::string& source, int64_t, std::span<std::byte> row) override {
    const std::vector<int32_t>& from = values.at(source);
    EXPECT_EQ(from.size() * sizeof(int32_t), row.size()) << source;
    std::memcpy(row.data(), from.data(), row.size());
    return OkStatus();
  }
};

std::vector<double> Reals(const ops::HostTensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.type.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.type.dtype == ir::DType::kF64) {
      std::memcpy(&values[i], tensor.data.data() + i * 8, 8);
    } else {
      float narrow = 0;
      std::memcpy(&narrow, tensor.data.data() + i * 4, 4);
      values[i] = narrow;
    }
  }
  return values;
}

std::vector<std::vector<double>> RowsOf(const ops::HostTensor& logits) {
  const std::vector<double> all = Reals(logits);
  std::vector<std::vector<double>> rows;
  for (size_t i = 0; i < all.size(); i += kVocabulary) {
    rows.emplace_back(all.begin() + static_cast<ptrdiff_t>(i),
                      all.begin() + static_cast<ptrdiff_t>(i + kVocabulary));
  }
  return rows;
}

std::vector<int32_t> TextOf(uint64_t seed, int64_t length) {
  std::vector<int32_t> text;
  for (int64_t i = 0; i < length; ++i) {
    text.push_back(static_cast<int32_t>(PhiloxBits(seed, 1, static_cast<uint64_t>(i), 0) %
                                        static_cast<uint64_t>(kVocabulary)));
  }
  return text;
}

// The logits behind every token of a text, by the program that trains.
std::vector<std::vector<double>> Whole(const TrainerFunctions& functions,
                                       const std::vector<int32_t>& text, ir::DType dtype) {
  const auto length = static_cast<int64_t>(text.size());
  const auto program = PredictProgram({.batch = 1, .sequence = length, .dtype = dtype}, functions);
  EXPECT_TRUE(program) << program.error();
  if (!program) return {};
  Brought brought;
  brought.values["window"] = text;
  brought.values["window"].push_back(0);
  ops::RunContext context;
  context.feed = &brought;
  const ir::Graph& graph = program->graph;
  const auto results = ops::Evaluate(
      ops::Backend::kCpu, graph,
      [&](const ir::Node& node) -> Result<ops::HostTensor> {
        return ParamOf(node, graph.type(node.outputs[0]));
      },
      context);
  EXPECT_TRUE(results) << results.error();
  return results ? RowsOf(results->at(0)) : std::vector<std::vector<double>>();
}

struct Token {
  int32_t token = 0;
  int32_t row = 0;
  int32_t position = 0;
};

// Products in bf16, of weights in it.
ir::Graph InHalf(const ir::Graph& graph) {
  const auto mixed = ir::ToMixedPrecision(graph, ir::DType::kBF16);
  EXPECT_TRUE(mixed) << mixed.error();
  const auto half = mixed ? ir::WithHalfParams(*mixed, ir::DType::kBF16) : mixed;
  EXPECT_TRUE(half) << half.error();
  return half.value_or(graph);
}

// Programs of several sizes on one state, as a job has them. dtype bf16: as InHalf.
class Job {
 public:
  Job(const PageShape& shape, const TrainerFunctions& functions, ir::DType dtype,
      std::vector<int64_t> sizes, ThreadTeam* team = nullptr)
      : shape_(shape), team_(team) {
    for (const int64_t size : sizes) {
      const bool half = dtype == ir::DType::kBF16;
      auto program = PagedProgram(shape, {.tokens = size, .rows = size}, functions,
                                  half ? ir::DType::kF32 : dtype);
      EXPECT_TRUE(program) << program.error();
      if (!program) continue;
      if (half) program->graph = InHalf(program->graph);
      ir::Builder builder(program->graph);
      for (const ir::Node& node : program->graph.nodes) {
        if (node.op != ir::Op::kPagedAttention) continue;
        const std::string name = program->graph.producer(node.inputs[3]).attrs.Str("name");
        builder.SetOutput(name, node.outputs[2]);
      }
      graphs_[size] = *builder.Finish();
    }
    table_.assign(static_cast<size_t>(shape.texts * shape.text_pages()), 0);
  }

  // Pages of a row of the table.
  void Place(int64_t row, const std::vector<int32_t>& pages) {
    std::copy(pages.begin(), pages.end(), table_.begin() + row * shape_.text_pages());
  }

  // The logits behind each of the tokens, by the program of `size`.
  std::vector<std::vector<double>> Run(int64_t size, std::vector<Token> tokens) {
    const ir::Graph& graph = graphs_.at(size);
    const size_t count = tokens.size();
    tokens.resize(static_cast<size_t>(size), {0, -1, 0});
    Brought brought;
    brought.values["table"] = table_;
    for (const Token& token : tokens) {
      brought.values["tokens"].push_back(token.token);
      brought.values["row"].push_back(token.row);
      brought.values["position"].push_back(token.position);
    }
    brought.values["wanted"].resize(static_cast<size_t>(size));
    std::iota(brought.values["wanted"].begin(), brought.values["wanted"].end(), 0);
    ops::RunContext context;
    context.feed = &brought;
    context.team = team_;
    const auto bind = [&](const ir::Node& node) -> Result<ops::HostTensor> {
      const auto kept = kept_.find(node.attrs.Str("name"));
      return kept != kept_.end() ? kept->second : ParamOf(node, graph.type(node.outputs[0]));
    };
    auto results = ops::Evaluate(ops::Backend::kCpu, graph, bind, context);
    EXPECT_TRUE(results) << results.error();
    if (!results) return {};
    for (size_t i = 1; i < graph.outputs.size(); ++i) {
      kept_[graph.outputs[i].name] = std::move(results->at(i));
    }
    std::vector<std::vector<double>> rows = RowsOf(results->at(0));
    rows.resize(count);
    return rows;
  }

  // A text of one row, `chunk` tokens at a time: the logits behind each of them.
  std::vector<std::vector<double>> Write(int32_t row, const std::vector<int32_t>& text,
                                         int64_t chunk, int64_t size) {
    std::vector<std::vector<double>> logits;
    for (size_t begin = 0; begin < text.size(); begin += static_cast<size_t>(chunk)) {
      std::vector<Token> tokens;
      const size_t end = std::min(text.size(), begin + static_cast<size_t>(chunk));
      for (size_t i = begin; i < end; ++i)
        tokens.push_back({text[i], row, static_cast<int32_t>(i)});
      for (auto& rows : Run(size, std::move(tokens))) logits.push_back(std::move(rows));
    }
    return logits;
  }

 private:
  PageShape shape_;
  ThreadTeam* team_ = nullptr;
  std::map<int64_t, ir::Graph> graphs_;
  std::map<std::string, ops::HostTensor> kept_;
  std::vector<int32_t> table_;
};

PageShape Shape(ir::DType dtype = ir::DType::kF32) {
  return {.groups = 1,
          .pages = 24,
          .page_tokens = 4,
          .texts = 4,
          .positions = kPositions,
          .dtype = dtype};
}

double Largest(const std::vector<std::vector<double>>& a,
               const std::vector<std::vector<double>>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return INFINITY;
    for (size_t j = 0; j < a[i].size(); ++j) {
      largest = std::max(largest, std::abs(a[i][j] - b[i][j]) / (1 + std::abs(a[i][j])));
    }
  }
  return largest;
}

// Falcon's first models: all queries share one key.
models::DecoderConfig OneKey() {
  return {.vocabulary = kVocabulary,
          .positions = kPositions,
          .width = 24,
          .layers = 2,
          .heads = 4,
          .kv_heads = 1,
          .rope_neighbours = true,
          .residual = models::DecoderResidual::kTogether,
          .files = models::QkvFiles::kOfOneHead,
          .names = {.embedding = "in",
                    .final_norm = "last",
                    .blocks = "h",
                    .norm = "norm",
                    .qkv = "qkv",
                    .out = "out",
                    .up = "up",
                    .down = "down"}};
}

// BLOOM: scores fall with the distance, six heads at speeds of two rows.
models::DecoderConfig Slopes() {
  models::DecoderConfig config = OneKey();
  config.heads = 6;
  config.kv_heads = 0;
  config.places = models::DecoderPlaces::kSlopes;
  config.residual = models::DecoderResidual::kInTurn;
  config.files = models::QkvFiles::kOfHeads;
  config.names.mlp_norm = "mlp_norm";
  return config;
}

// More experts than a vector has lanes.
models::MixtureConfig Mixture(const Router& router) {
  models::MixtureConfig config;
  config.llama = LlamaConfig();
  config.llama.inner = 8;
  config.experts = {.experts = 18, .chosen = 3, .router = router};
  return config;
}

std::vector<models::MixtureConfig> Mixtures() {
  models::MixtureConfig gated = Mixture(TopOfSoftmax{.normalised = false});
  gated.shared_inner = 12;
  gated.shared_gated = true;
  gated.balance_loss = 0.1;
  gated.z_loss = 0.1;
  gated.experts.slots_factor = 1;
  models::MixtureConfig grouped =
      Mixture(TopOfSigmoid{.scale = 1.5, .groups = 6, .chosen_groups = 2});
  grouped.llama.latent = {.rank = 12, .plain = 6, .turned = 4, .value = 5};
  grouped.dense_layers = 1;
  grouped.dense_inner = 30;
  models::MixtureConfig biased = Mixture(SoftmaxOfTop{.bias = true});
  biased.expert_bias = true;
  biased.glu_limit = 0.5;
  biased.llama.attention_sinks = true;
  biased.llama.attention_window = 6;
  return {gated, grouped, biased};
}

struct Family {
  const char* name;
  TrainerFunctions functions;
};

std::vector<Family> Families() {
  models::LlamaConfig window = LlamaConfig();
  window.attention_window = 6;
  window.attention_bias = true;
  models::LlamaConfig sinks = LlamaConfig();
  sinks.attention_sinks = true;
  sinks.head_norm = models::HeadNorm::kTogether;
  sinks.tied = true;
  models::LlamaConfig latent = LlamaConfig();
  latent.latent = {.rank = 12, .plain = 6, .turned = 4, .value = 5};
  models::LlamaConfig capped = LlamaConfig();
  capped.score_cap = 0.7;
  capped.attention_window = 9;
  return {{"gpt2", Gpt2()},
          {"llama", models::MakeLlama(LlamaConfig())},
          {"window", models::MakeLlama(window)},
          {"sinks", models::MakeLlama(sinks)},
          {"latent", models::MakeLlama(latent)},
          {"one_key", models::MakeDecoder(OneKey())},
          {"capped", models::MakeLlama(capped)},
          {"slopes", models::MakeDecoder(Slopes())},
          {"mixtral", models::MakeMixture(Mixture(TopOfSoftmax{}))},
          {"shared_expert", models::MakeMixture(Mixtures()[0])},
          {"latent_experts", models::MakeMixture(Mixtures()[1])},
          {"biased_experts", models::MakeMixture(Mixtures()[2])}};
}

class PagedFamily : public ::testing::TestWithParam<size_t> {
 protected:
  void CheckBits(ir::DType dtype);

  Family family_ = Families()[GetParam()];
};

TEST_P(PagedFamily, EqualsTheForwardThatTrains) {
  const std::vector<int32_t> text = TextOf(1, 21);
  for (const auto& [dtype, tolerance] :
       {std::pair(ir::DType::kF32, 1e-5), std::pair(ir::DType::kF64, 1e-12)}) {
    const auto whole = Whole(family_.functions, text, dtype);
    for (const int64_t chunk : {1, 5, 8}) {
      Job job(Shape(dtype), family_.functions, dtype, {8});
      job.Place(2, {7, 3, 20, 1, 9, 0});
      EXPECT_LT(Largest(whole, job.Write(2, text, chunk, 8)), tolerance) << chunk;
    }
  }
}

// Alone token by token, in chunks, on other pages, among other texts, with and without a team.
void PagedFamily::CheckBits(ir::DType dtype) {
  const std::vector<int32_t> text = TextOf(2, 40);
  Job alone(Shape(dtype), family_.functions, dtype, {1});
  alone.Place(0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto expected = alone.Write(0, text, 1, 1);
  ThreadTeam team(3);
  for (const int64_t chunk : {1, 7, 64}) {
    for (ThreadTeam* with : {static_cast<ThreadTeam*>(nullptr), &team}) {
      Job job(Shape(dtype), family_.functions, dtype, {8, 64}, with);
      job.Place(3, {23, 1, 20, 5, 2, 11, 8, 0, 7, 3});
      EXPECT_TRUE(job.Write(3, text, chunk, chunk <= 8 ? 8 : 64) == expected) << chunk;
    }
  }
  Job mixed(Shape(dtype), family_.functions, dtype, {8, 32}, &team);
  for (int32_t row = 0; row < 4; ++row) {
    std::vector<int32_t> pages;
    for (int32_t i = 0; i < 6; ++i) pages.push_back(4 * i + row);
    mixed.Place(row, pages);
  }
  const std::vector<int32_t> start(text.begin(), text.begin() + 24);
  std::vector<std::vector<int32_t>> texts;
  for (uint64_t row = 0; row < 4; ++row) texts.push_back(row == 1 ? start : TextOf(row + 9, 24));
  // Seven tokens of each text in one call, and the rest one by one.
  std::vector<std::vector<double>> found;
  std::vector<Token> tokens;
  for (int32_t i = 6; i >= 0; --i) {
    for (int32_t row = 0; row < 4; ++row) tokens.push_back({texts[row][i], row, i});
  }
  const auto first = mixed.Run(32, tokens);
  for (int32_t i = 0; i < 7; ++i) found.push_back(first[static_cast<size_t>((6 - i) * 4 + 1)]);
  for (int32_t i = 7; i < 24; ++i) {
    tokens.clear();
    for (int32_t row = 0; row < 4; ++row) tokens.push_back({texts[row][i], row, i});
    found.push_back(mixed.Run(8, tokens)[1]);
  }
  EXPECT_TRUE(found == std::vector(expected.begin(), expected.begin() + 24));
}

TEST_P(PagedFamily, BitsDoNotDependOnTheBatch) { CheckBits(ir::DType::kF32); }

TEST_P(PagedFamily, BitsInHalfPrecisionDoNotDependOnTheBatch) { CheckBits(ir::DType::kBF16); }

INSTANTIATE_TEST_SUITE_P(Models, PagedFamily, ::testing::Range<size_t>(0, 12),
                         [](const auto& param) { return Families()[param.param].name; });

TEST(PagedProgram, PagesInHalfPrecisionAreNear) {
  const std::vector<int32_t> text = TextOf(1, 21);
  Job job(Shape(ir::DType::kBF16), Gpt2(), ir::DType::kF32, {8});
  job.Place(0, {7, 3, 20, 1, 9, 0});
  const double difference = Largest(Whole(Gpt2(), text, ir::DType::kF32), job.Write(0, text, 8, 8));
  EXPECT_LT(difference, 0.05);
  EXPECT_GT(difference, 1e-5);
}

TEST(PagedProgram, WeightsInHalfPrecisionAreNear) {
  const std::vector<int32_t> text = TextOf(1, 21);
  Job job(Shape(ir::DType::kBF16), Gpt2(), ir::DType::kBF16, {8});
  job.Place(0, {7, 3, 20, 1, 9, 0});
  const double difference = Largest(Whole(Gpt2(), text, ir::DType::kF32), job.Write(0, text, 8, 8));
  EXPECT_LT(difference, 0.1);
  EXPECT_GT(difference, 1e-4);
}

TEST(PagedProgram, RefusesByNameWhatIsNotOfOneToken) {
  const auto refusal = [](const TrainerFunctions& functions) {
    const auto program = PagedProgram(Shape(), {}, functions);
    return program ? std::string() : program.error().ToString();
  };
  models::LlamaConfig documents = LlamaConfig();
  documents.document_separator = 0;
  EXPECT_THAT(refusal(models::MakeLlama(documents)), HasSubstr("document_separator"));
  models::Gpt2Config far{.vocabulary = 40, .positions = 16, .width = 24, .layers = 1, .heads = 4};
  EXPECT_THAT(refusal(models::MakeGpt2(far)), HasSubstr("48 is longer than the model's 16"));
  models::MixtureConfig full = Mixture(TopOfSoftmax{});
  full.experts.capacity_factor = 1.5;
  EXPECT_THAT(refusal(models::MakeMixture(full)), HasSubstr("capacity_factor"));
  TrainerFunctions bidirectional;
  bidirectional.predict = [](Builder& b, const Batch& in) {
    const ValueId x = b.Embedding(in.at("tokens"), "e", kVocabulary, 8);
    const ValueId q = b.Reshape(x, {1, 1, 2, 4});
    AttentionOptions options;
    options.causal = false;
    return b.Attention(q, q, q, options);
  };
  EXPECT_THAT(refusal(bidirectional), HasSubstr("causal"));
}

TEST(PagedProgram, KeptPagesAreNoWeights) {
  const auto program = PagedProgram(Shape(), {}, Gpt2());
  ASSERT_TRUE(program) << program.error();
  const auto predict = PredictProgram({.sequence = 4}, Gpt2());
  ASSERT_TRUE(predict) << predict.error();
  EXPECT_EQ(CountParams(program->graph), CountParams(predict->graph));
}

}  // namespace
}  // namespace meshwright::client
