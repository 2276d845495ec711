// Fine-tuning against PyTorch, transformers and PEFT: losses and trained tensors after 20 steps
// that tools/hf_check/tuning_truth.py wrote, of weights that both make by formula.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "client/fine_tuning.h"
#include "formats/safetensors.h"
#include "ir/autodiff.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "ops/kernel.h"

namespace meshwright::client {
namespace {

using ir::DType;
using ops::HostTensor;

constexpr int64_t kTruthRows = 2;
constexpr int64_t kTruthTokens = 6;
constexpr int64_t kTruthWords = 32;
constexpr int kTruthSteps = 20;

struct Truth {
  double probe = 0;   // or a loss
  double square = 0;  // sum
};
using Truths = std::map<std::string, Truth>;

// In [-1, 1): a hash of the name and the place.
double FormulaNumber(const std::string& name, int64_t place) {
  uint64_t x = 14695981039346656037ULL;
  for (const char letter : name) x = (x ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  x += static_cast<uint64_t>(place) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) / static_cast<double>(1ULL << 52) - 1;
}

double FormulaWeight(const std::string& name, int64_t place) {
  if (name.ends_with("lora_B.weight")) return 0;
  const bool of_norm =
      name.find("norm") != std::string::npos || name.find(".ln_") != std::string::npos;
  const double x = FormulaNumber(name, place);
  return of_norm && name.ends_with("weight") ? 1 + 0.1 * x : 0.3 * x;
}

// Calls visit(element, element in the file) for every element of a param.
template <typename Visit>
void ForEachInFile(const formats::ExportLayout& layout, const ir::Dims& dims, const Visit& visit) {
  ir::Dims at(dims.size(), 0);
  const int64_t count = ir::TensorType{DType::kF64, dims}.elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t in_file = 0;
    for (size_t d = 0; d < at.size(); ++d) in_file += at[d] * layout.strides[d];
    visit(i, in_file);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < dims[d]) break;
      at[d] = 0;
    }
  }
}

double& RealOf(HostTensor& tensor, int64_t i) {
  return reinterpret_cast<double*>(tensor.data.data())[i];
}

HostTensor ZeroTensor(const ir::TensorType& type) {
  return {type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
}

// The same rows in every step.
class TruthRows : public ops::TokenSource {
 public:
  Status ReadSample(const std::string&, int64_t sample, std::span<int32_t> row) override {
    const int64_t first = sample % kTruthRows * (kTruthTokens + 1);
    for (size_t t = 0; t < row.size(); ++t) {
      const int64_t i = first + static_cast<int64_t>(t);
      row[t] = static_cast<int32_t>((i * i * 7 + i + 3) % kTruthWords);
    }
    return OkStatus();
  }
};

models::Gpt2Config TruthGpt2() {
  return {.vocabulary = kTruthWords, .positions = 8, .width = 16, .layers = 2, .heads = 4};
}

models::LlamaConfig TruthLlama() {
  return {.vocabulary = kTruthWords,
          .width = 16,
          .inner = 24,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .epsilon = 1e-5};
}

struct TruthCase {
  const char* name;
  TrainerFunctions functions;
  FineTuning tuning;
};

std::vector<TruthCase> TruthCases() {
  std::vector<TruthCase> cases(8);
  cases[0] = {"gpt2-lora", models::MakeGpt2(TruthGpt2()), {}};
  cases[0].tuning.lora = {.rank = 4, .alpha = 8, .target_modules = {"c_attn", "c_proj", "c_fc"}};
  cases[1] = {"llama-rslora", models::MakeLlama(TruthLlama()), {}};
  cases[1].tuning.lora = {
      .rank = 4,
      .alpha = 8,
      .rank_stabilized = true,
      .target_modules = {"q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"},
      .modules_to_save = {"lm_head"}};
  cases[2] = {"gpt2-frozen", models::MakeGpt2(TruthGpt2()), {}};
  cases[2].tuning.groups = {{.pattern = "*.wte.*", .frozen = true},
                            {.pattern = "*.wpe.*", .frozen = true},
                            {.pattern = "*.h.0.*", .frozen = true},
                            {.pattern = "*.mlp.*", .lr_factor = 3, .weight_decay = 0.02}};
  cases[3] = {"llama-terms", models::MakeLlama(TruthLlama()), {}};
  cases[3].tuning.terms = {.label_smoothing = 0.1, .z_loss = 0.01};
  cases[4] = {"gpt2-lion", models::MakeGpt2(TruthGpt2()), {}};
  // The gradient of the keys' biases is 0 but for rounding, whose sign is anybody's.
  cases[4].tuning.groups = {{.pattern = "*.c_attn.bias", .frozen = true}};
  cases[5] = {"gpt2-adafactor", models::MakeGpt2(TruthGpt2()), {}};
  cases[5].tuning.groups = cases[4].tuning.groups;
  cases[6] = {"llama-adafactor", models::MakeLlama(TruthLlama()), {}};
  cases[7] = {"llama-adafactor-warmup", models::MakeLlama(TruthLlama()), {}};
  return cases;
}

ir::OptimizerSpec TruthOptimizer(const std::string& name) {
  if (name == "gpt2-lion") {
    return {.name = "lion",
            .lr = 1e-3,
            .beta1 = 0.9,
            .beta2 = 0.99,
            .weight_decay = 0.1,
            .max_norm = 0};
  }
  if (name == "llama-adafactor") {
    return {.name = "adafactor",
            .lr = 1e-3,
            .weight_decay = 0.1,
            .max_norm = 0,
            .scale_parameter = false,
            .clip_threshold = 0.5};
  }
  if (name.find("adafactor") != std::string::npos) {
    return {.name = "adafactor",
            .lr = 1,
            .schedule = name == "gpt2-adafactor" ? "relative" : "relative_warmup",
            .weight_decay = 0,
            .max_norm = 0};
  }
  return {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 0};
}

// The state of a job that is trained by the reference kernels, one step after the other.
class Trainee {
 public:
  static Result<Trainee> Make(const TruthCase& of) {
    JobBuilder builder(of.name);
    builder.Batch(kTruthRows, kTruthTokens).DType(DType::kF64).Optimizer(TruthOptimizer(of.name));
    MW_ASSIGN_OR_RETURN(ir::JobRequest job, builder.Build(of.functions));
    MW_ASSIGN_OR_RETURN(job, WithFineTuning(std::move(job), of.tuning));
    MW_ASSIGN_OR_RETURN(const ir::Graph gradients, ir::Differentiate(job.main().graph));
    Trainee trainee;
    MW_ASSIGN_OR_RETURN(trainee.step_, ir::AppendUpdate(gradients, job.optimizer));
    for (const NodeId id : trainee.step_.NodesOf(ir::Op::kParam)) {
      MW_TRY(trainee.Fill(trainee.step_.node(id)));
    }
    return trainee;
  }

  // The loss.
  Result<double> Step(int64_t step) {
    const auto bind = [&](const ir::Node& node) -> Result<HostTensor> {
      return state_.at(node.attrs.Str("name"));
    };
    TruthRows rows;
    ops::RunContext context;
    context.step = step;
    context.feed = &rows;
    MW_ASSIGN_OR_RETURN(std::vector<HostTensor> outputs,
                        ops::Evaluate(ops::Backend::kReference, step_, bind, context));
    double loss = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string& name = step_.outputs[i].name;
      if (name == "loss") loss = RealOf(outputs[i], 0);
      constexpr std::string_view kUpdate = "update/";
      if (name.starts_with(kUpdate)) state_[name.substr(kUpdate.size())] = std::move(outputs[i]);
    }
    return loss;
  }

  Result<Truths> Trained() {
    Truths truths;
    for (const NodeId id : step_.NodesOf(ir::Op::kParam)) {
      const ir::Node& param = step_.node(id);
      if (param.attrs.Int("state") != 0 || ir::IsFrozen(param)) continue;
      const ir::TensorType& type = step_.type(param.outputs[0]);
      MW_ASSIGN_OR_RETURN(const formats::ExportLayout layout, formats::ExportLayoutOf(param, type));
      Truth& truth = truths[layout.name];
      HostTensor& tensor = state_.at(param.attrs.Str("name"));
      ForEachInFile(layout, type.dims, [&](int64_t i, int64_t in_file) {
        const double value = RealOf(tensor, i);
        truth.probe += value * FormulaNumber("probe/" + layout.name, in_file);
        truth.square += value * value;
      });
    }
    return truths;
  }

 private:
  Status Fill(const ir::Node& param) {
    const ir::TensorType& type = step_.type(param.outputs[0]);
    HostTensor& tensor = state_[param.attrs.Str("name")] = ZeroTensor(type);
    if (param.attrs.Int("state") != 0) return OkStatus();
    MW_ASSIGN_OR_RETURN(const formats::ExportLayout layout, formats::ExportLayoutOf(param, type));
    ForEachInFile(layout, type.dims, [&](int64_t i, int64_t in_file) {
      RealOf(tensor, i) = FormulaWeight(layout.name, in_file);
    });
    return OkStatus();
  }

  ir::Graph step_;
  std::map<std::string, HostTensor> state_;
};

Truths ReadTruths(const std::string& of_case) {
  std::ifstream file(std::string(MESHWRIGHT_SOURCE_DIR) + "/tests/unit/client/tuning_truth.txt");
  Truths truths;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string own, name;
    Truth truth;
    if (words >> own >> name >> truth.probe >> truth.square && own == of_case) truths[name] = truth;
  }
  return truths;
}

void ExpectTruth(double actual, double expected, const std::string& what) {
  EXPECT_NEAR(actual, expected, 1e-8 * std::max(1.0, std::abs(expected))) << what;
}

class TuningTruth : public ::testing::TestWithParam<size_t> {};

TEST_P(TuningTruth, LossesAndWeightsAfterTwentyStepsAreThoseOfPyTorch) {
  const TruthCase of = TruthCases()[GetParam()];
  Truths truths = ReadTruths(of.name);
  ASSERT_GT(truths.size(), 10u) << of.name;
  auto trainee = Trainee::Make(of);
  ASSERT_TRUE(trainee.has_value()) << trainee.error();
  for (int step = 0; step < kTruthSteps; ++step) {
    const auto loss = trainee->Step(step);
    ASSERT_TRUE(loss.has_value()) << loss.error();
    const std::string name = "loss" + std::to_string(step);
    const auto known = truths.find(name);
    if (known == truths.end()) continue;
    ExpectTruth(*loss, known->second.probe, name);
    truths.erase(known);
  }
  const auto trained = trainee->Trained();
  ASSERT_TRUE(trained.has_value()) << trained.error();
  EXPECT_EQ(trained->size(), truths.size());
  for (const auto& [name, truth] : truths) {
    const auto own = trained->find(name);
    ASSERT_NE(own, trained->end()) << "nothing trained is called " << name;
    ExpectTruth(own->second.probe, truth.probe, name);
    ExpectTruth(own->second.square, truth.square, name + ", squared");
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TuningTruth, ::testing::Range<size_t>(0, 8));

}  // namespace
}  // namespace meshwright::client
