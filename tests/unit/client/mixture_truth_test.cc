// Mixtures of experts against transformers on PyTorch: losses and gradients that mixture_truth.py
// wrote, of weights that both make by formula.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "ir/autodiff.h"
#include "models/mixture.h"
#include "ops/kernel.h"

namespace meshwright::models {
namespace {

using client::TopOfSigmoid;
using client::TopOfSoftmax;
using ir::DType;
using ops::HostTensor;
using TruthValues = std::map<std::string, double>;  // "loss", and by param

constexpr int64_t kTruthRows = 2;
constexpr int64_t kTruthTokens = 6;
constexpr int64_t kTruthVocabulary = 32;

// In [-1, 1): a hash of the name and the place.
double TruthNumber(const std::string& name, int64_t place) {
  uint64_t x = 14695981039346656037ULL;
  for (const char letter : name) {
    x = (x ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  x += static_cast<uint64_t>(place) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) / static_cast<double>(1ULL << 52) - 1;
}

double TruthWeight(const std::string& name, int64_t place) {
  const double x = TruthNumber(name, place);
  if (name.find("norm") != std::string::npos) return 1 + 0.1 * x;
  return name.ends_with("gate.weight") ? x : 0.3 * x;
}

template <typename T, typename Of>
HostTensor FilledTensor(const ir::TensorType& type, const Of& of) {
  HostTensor tensor{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
  for (int64_t i = 0; i < type.elements(); ++i) {
    const T value = static_cast<T>(of(i));
    std::memcpy(tensor.data.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  return tensor;
}

// Tokens of the rows of a window one longer than they are, from `first` on.
HostTensor TruthTokens(int64_t first) {
  return FilledTensor<int32_t>({DType::kI32, {kTruthRows, kTruthTokens}}, [first](int64_t i) {
    const int64_t at = i / kTruthTokens * (kTruthTokens + 1) + i % kTruthTokens + first;
    return (at * at * 7 + at + 3) % kTruthVocabulary;
  });
}

double FirstOf(const HostTensor& tensor) {
  double value = 0;
  std::memcpy(&value, tensor.data.data(), sizeof(value));
  return value;
}

// A gradient of the mean loss, times numbers by formula.
double ProbeOf(const std::string& name, const HostTensor& gradient, double count) {
  double sum = 0;
  for (int64_t i = 0; i < gradient.type.elements(); ++i) {
    double value = 0;
    std::memcpy(&value, gradient.data.data() + static_cast<size_t>(i) * sizeof(value),
                sizeof(value));
    sum += value * TruthNumber("probe/" + name, i);
  }
  return sum / count;
}

Result<TruthValues> LossAndGradients(const MixtureConfig& config) {
  client::Builder builder("truth", DType::kF64);
  client::Batch batch;
  for (const char* name : {"tokens", "labels"}) {
    batch[name] = builder.AddOne(ir::Op::kInput, {}, {{"name", std::string(name)}},
                                 {{DType::kI32, {kTruthRows, kTruthTokens}}});
  }
  const client::Loss loss = MakeMixture(config).loss(builder, batch);
  builder.SetOutput("loss_sum", loss.loss_sum);
  builder.SetOutput("count", loss.count);
  MW_ASSIGN_OR_RETURN(const ir::Graph forward, builder.Finish());
  MW_ASSIGN_OR_RETURN(const ir::Graph graph, ir::Differentiate(forward));
  const auto bind = [&](const ir::Node& node) -> Result<HostTensor> {
    const std::string name = node.attrs.Str("name");
    if (node.op == ir::Op::kInput) return TruthTokens(name == "labels" ? 1 : 0);
    return FilledTensor<double>(graph.type(node.outputs[0]),
                                [&](int64_t i) { return TruthWeight(name, i); });
  };
  MW_ASSIGN_OR_RETURN(const std::vector<HostTensor> outputs,
                      ops::Evaluate(ops::Backend::kReference, graph, bind, {}));
  TruthValues values;
  double count = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (graph.outputs[i].name == "count") count = FirstOf(outputs[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = graph.outputs[i].name;
    if (name == "loss_sum") values["loss"] = FirstOf(outputs[i]) / count;
    if (!name.starts_with("grad/")) continue;
    const std::string param = name.substr(std::strlen("grad/"));
    values[param] = ProbeOf(param, outputs[i], count);
  }
  return values;
}

TruthValues ReadTruth(const std::string& family) {
  std::ifstream file(std::string(MESHWRIGHT_SOURCE_DIR) + "/tests/unit/client/mixture_truth.txt");
  TruthValues values;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string of_family, name;
    double value = 0;
    if (words >> of_family >> name >> value && of_family == family) values[name] = value;
  }
  return values;
}

const MixtureNames kQwenTruthNames = {
    .layer = "mlp", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};

// Mixtral's balance loss, as transformers has it for all of these.
MixtureConfig TruthConfig() {
  return {.llama = {.vocabulary = kTruthVocabulary,
                    .width = 16,
                    .inner = 12,
                    .layers = 2,
                    .heads = 4,
                    .kv_heads = 2},
          .experts = {.experts = 4, .chosen = 2},
          .balance_form = client::BalanceForm::kMixtral,
          .balance_loss = 0.02};
}

MixtureConfig FamilyConfig(const std::string& family) {
  MixtureConfig config = TruthConfig();
  if (family == "mixtral") return config;
  config.names = kQwenTruthNames;
  if (family == "qwen2-moe") {
    config.llama.attention_bias = true;
    config.experts.router = TopOfSoftmax{.normalised = false};
    config.shared_inner = 20;
    config.shared_gated = true;
  } else if (family == "qwen3-moe") {
    config.llama.head_norm = HeadNorm::kEach;
  } else if (family == "olmoe") {
    config.llama.head_norm = HeadNorm::kTogether;
    config.experts.router = TopOfSoftmax{.normalised = false};
  } else if (family == "gpt-oss") {
    config.llama.attention_bias = true;
    config.llama.output_bias = true;
    config.llama.attention_sinks = true;
    config.llama.attention_window = 3;
    config.llama.windowed = {true, false};
    config.experts.router = client::SoftmaxOfTop{.bias = true};
    config.expert_bias = true;
    config.glu_limit = 0.5;
  } else {  // of DeepSeek
    config.names.shared = "shared_experts";
    config.experts.experts = 8;
    config.experts.router = TopOfSigmoid{.scale = 2.5, .groups = 4, .chosen_groups = 2};
    config.shared_inner = 12;
    config.dense_layers = 1;
    config.dense_inner = 20;
    config.balance_loss = 0;
  }
  if (family == "deepseek-v3") {
    config.llama.kv_heads = 0;
    config.llama.epsilon = 1e-6;
    config.llama.latent = {.query_rank = 10, .rank = 6, .plain = 4, .turned = 2, .value = 5};
  }
  return config;
}

class MixtureTruth : public ::testing::TestWithParam<const char*> {};

// Routers of transformers compute in float32 whatever the model is in.
TEST_P(MixtureTruth, LossAndEveryGradientAreThoseOfTransformers) {
  const TruthValues truth = ReadTruth(GetParam());
  ASSERT_GT(truth.size(), 20u);
  const auto values = LossAndGradients(FamilyConfig(GetParam()));
  ASSERT_TRUE(values.has_value()) << values.error();
  for (const auto& [name, wanted] : truth) {
    const auto found = values->find(name);
    ASSERT_NE(found, values->end()) << "no param " << name;
    EXPECT_NEAR(found->second, wanted, 2e-6 * std::max(1.0, std::abs(wanted))) << name;
  }
  for (const auto& [name, value] : *values) {
    const bool bias = name.ends_with("e_score_correction_bias");
    EXPECT_EQ(truth.contains(name), !bias) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MixtureTruth,
                         ::testing::Values("mixtral", "qwen2-moe", "qwen3-moe", "olmoe",
                                           "deepseek-moe", "deepseek-v3", "gpt-oss"));

}  // namespace
}  // namespace meshwright::models
