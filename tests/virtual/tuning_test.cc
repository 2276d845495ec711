// Fine-tuning on every kind of layout: the same adapters as one device, and of what is frozen no
// gradient, no state and no traffic.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "client/fine_tuning.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/saved_states.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

constexpr int kTunedVocabulary = 64;

ir::JobRequest Tuned(const TinyOptions& options, const client::FineTuning& tuning) {
  auto job = client::WithFineTuning(MakeTinyJob(options), tuning);
  EXPECT_TRUE(job.has_value()) << job.error();
  return *std::move(job);
}

TinyOptions TunedOptions(const char* family) {
  TinyOptions options;
  options.family = family;
  options.layers = 2;
  options.vocabulary = kTunedVocabulary;
  return options;
}

client::FineTuning Lora(const char* family) {
  client::FineTuning tuning;
  tuning.lora.rank = 4;
  tuning.lora.alpha = 8;
  tuning.lora.dropout = 0.1;
  tuning.lora.target_modules =
      std::string(family) == "gpt2"
          ? std::vector<std::string>{"c_attn", "c_proj", "c_fc"}
          : std::vector<std::string>{"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"};
  return tuning;
}

class TunedParity : public ::testing::TestWithParam<const char*> {};

TEST_P(TunedParity, LoraEqualsOneDevice) {
  const ir::JobRequest job = Tuned(TunedOptions(GetParam()), Lora(GetParam()));
  const auto expected = RunJob(WithLayout(job, {}), 1, kTunedVocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  std::vector<LayoutCase> layouts = {{2, 2, 1, 1}, {1, 4, 1, 1}, {1, 1, 2, 4}, {2, 2, 2, 4}};
  if (kSanitizedBuild) layouts = {{2, 2, 2, 4}};
  for (const LayoutCase& c : layouts) {
    for (const int zero : {0, 1, 2, 3}) {
      if (zero > 0 && (c.data == 1 || kSanitizedBuild)) continue;
      for (const bool sequence : {false, true}) {
        if (sequence && (c.tensor == 1 || zero > 0)) continue;
        ir::JobRequest split = WithLayout(job, c);
        split.parallel.zero = zero;
        split.parallel.sequence_parallel = sequence;
        const std::string layout =
            fmt::format("{} zero={} sequence_parallel={}", c.ToString(), zero, sequence);
        const auto actual = RunJob(split, c.devices(), kTunedVocabulary);
        ASSERT_TRUE(actual.has_value()) << layout << ": " << actual.error();
        ExpectEqual(*expected, *actual, 1e-10, layout);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TunedParity, ::testing::Values("gpt2", "llama"));

// Where a weight is split along its outputs, B is; along its inputs, A; the rest is whole.
TEST(TunedPlan, AdaptersAreSplitWithTheirWeights) {
  const ir::JobRequest job = Tuned(TunedOptions("gpt2"), Lora("gpt2"));
  const auto plan = planner::MakePlan(WithLayout(job, {1, 2, 1, 1}), mesh::Topology::Local(2));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const auto split = [&](const std::string& name) {
    for (const planner::ParamInfo& param : plan->params) {
      if (param.name == "transformer.h.0." + name) return param.sharding.UsesAxis("tensor");
    }
    ADD_FAILURE() << "no param " << name;
    return false;
  };
  EXPECT_TRUE(split("attn.c_attn.weight"));
  EXPECT_FALSE(split("attn.c_attn.lora_A.weight"));
  EXPECT_TRUE(split("attn.c_attn.lora_B.weight"));
  EXPECT_TRUE(split("mlp.c_proj.weight"));
  EXPECT_TRUE(split("mlp.c_proj.lora_A.weight"));
  EXPECT_FALSE(split("mlp.c_proj.lora_B.weight"));
}

TEST(TunedPlan, FrozenParamsHaveNoStateAndNoTraffic) {
  TinyOptions options = TunedOptions("gpt2");
  client::FineTuning tuning;
  tuning.groups = {{.pattern = "*", .frozen = true}, {.pattern = "*.h.1.*", .frozen = false}};
  const ir::JobRequest job = WithLayout(Tuned(options, tuning), {2, 1, 1, 1});
  int64_t trained_bytes = 0;
  const ir::Graph& graph = job.main().graph;
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    if (ir::IsFrozen(graph.node(id))) continue;
    trained_bytes += graph.type(graph.node(id).outputs[0]).bytes();
  }
  SyntheticTokens tokens(kTunedVocabulary);
  const auto cluster = VirtualCluster::Start(job, 2, &tokens);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  int64_t state_bytes = 0;
  for (const ir::Slot& slot : (*cluster)->plan().Main()[0].slots) {
    if (slot.persistent && slot.kind == ir::MemoryKind::kOptimizer)
      state_bytes += slot.type.bytes();
  }
  EXPECT_EQ(state_bytes, 2 * trained_bytes);
  ASSERT_TRUE((*cluster)->Train(0, 1).has_value());
  int64_t reduced = 0;
  for (const auto& [key, counters] : (*cluster)->Traffic()) reduced += counters.bytes;
  // Gradients of what is trained, once on each of two devices, and a few scalars.
  EXPECT_GE(reduced, 2 * trained_bytes);
  EXPECT_LT(reduced, 2 * trained_bytes + 4096);
}

// Adapters are state like any other: a checkpoint of one layout goes on in another.
TEST(TunedCheckpoint, EveryLayoutGoesOnFromOneDevice) {
  const ir::JobRequest job = Tuned(TunedOptions("gpt2"), Lora("gpt2"));
  SavedStates states;
  SyntheticTokens tokens(kTunedVocabulary);
  const auto one = VirtualCluster::Start(WithLayout(job, {}), 1, &tokens);
  ASSERT_TRUE(one.has_value()) << one.error();
  ASSERT_TRUE((*one)->Train(0, 2).has_value());
  ASSERT_TRUE(states.Save(**one, 2, "one").ok());
  const auto expected = TrainOn(**one, 2, 3);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const LayoutCase& c : {LayoutCase{2, 2, 1, 1}, LayoutCase{1, 1, 2, 4}}) {
    const auto other = VirtualCluster::Start(WithLayout(job, c), c.devices(), &tokens);
    ASSERT_TRUE(other.has_value()) << c.ToString() << ": " << other.error();
    const Status loaded = states.Load(**other, 2, "one");
    ASSERT_TRUE(loaded.ok()) << c.ToString() << ": " << loaded;
    const auto actual = TrainOn(**other, 2, 3);
    ASSERT_TRUE(actual.has_value()) << actual.error();
    ExpectSameTraining(*expected, *actual, false, c.ToString());
  }
}

// Stages that share a vocabulary that is not trained, and weights in the host's memory that are
// only read there.
TEST(TunedParityVariants, FrozenWeightsMayBeSharedAndElsewhere) {
  const ir::JobRequest job = Tuned(TunedOptions("gpt2"), Lora("gpt2"));
  const auto expected = RunJob(WithLayout(job, {}), 1, kTunedVocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  ir::JobRequest shared = WithLayout(job, {1, 1, 2, 4});
  shared.parallel.schedule = "1f1b-vocab";
  const auto blocks = RunJob(shared, 2, kTunedVocabulary);
  ASSERT_TRUE(blocks.has_value()) << blocks.error();
  ExpectEqual(*expected, *blocks, 1e-10, "1f1b-vocab");
  ir::JobRequest hosted = WithLayout(job, {2, 1, 1, 2});
  hosted.parallel.weights_memory = "host";
  hosted.parallel.optimizer_memory = "host";
  const auto copied = RunJob(hosted, 2, kTunedVocabulary);
  ASSERT_TRUE(copied.has_value()) << copied.error();
  ExpectEqual(*expected, *copied, 1e-10, "weights in the host's memory");
}

// In bf16 the adapters' products are in bf16, and they themselves in f32.
TEST(TunedParityVariants, MixedPrecisionTrainsAdapters) {
  TinyOptions options = TunedOptions("llama");
  options.dtype = ir::DType::kBF16;
  const ir::JobRequest job = Tuned(options, Lora("llama"));
  const auto one = RunJob(WithLayout(job, {}), 1, kTunedVocabulary);
  const auto four = RunJob(WithLayout(job, {2, 2, 1, 1}), 4, kTunedVocabulary);
  ASSERT_TRUE(one && four) << four.error();
  EXPECT_NEAR(four->losses[1], one->losses[1], 0.05);
}

TEST(TunedParityVariants, LossTermsEqualOneDeviceAndAreNotValidated) {
  for (const int64_t vocabulary : {61, 64}) {
    TinyOptions options = TunedOptions("gpt2");
    options.vocabulary = vocabulary;
    client::FineTuning tuning;
    tuning.terms = {.label_smoothing = 0.1, .z_loss = 0.01};
    const ir::JobRequest job = Tuned(options, tuning);
    const int words = static_cast<int>(vocabulary);
    const auto expected = RunJob(WithLayout(job, {}), 1, words);
    const auto plain = RunJob(WithLayout(MakeTinyJob(options), {}), 1, words);
    ASSERT_TRUE(expected && plain) << expected.error();
    EXPECT_GT(expected->losses[0], plain->losses[0] + 0.05) << "z-loss is of log(vocabulary)^2";
    EXPECT_NEAR(expected->validation, plain->validation, 0.02);
    for (const LayoutCase& c : {LayoutCase{2, 2, 1, 1}, LayoutCase{1, 2, 2, 4}}) {
      const auto actual = RunJob(WithLayout(job, c), c.devices(), words);
      ASSERT_TRUE(actual.has_value()) << c.ToString() << ": " << actual.error();
      ExpectEqual(*expected, *actual, 1e-10, c.ToString());
    }
  }
}

// Means of weights: the closed form on one device, and one device on every layout.
class TunedAverages : public ::testing::TestWithParam<const char*> {};

TEST_P(TunedAverages, FollowTheFormulaOnEveryLayout) {
  constexpr double kDecay = 0.75;
  client::FineTuning tuning = Lora("gpt2");
  const bool adapters = std::string(GetParam()) == "lora";
  if (!adapters) tuning = {};
  tuning.average_decay = kDecay;
  const ir::JobRequest job = Tuned(TunedOptions("gpt2"), tuning);
  SyntheticTokens tokens(kTunedVocabulary);
  const auto one = VirtualCluster::Start(WithLayout(job, {}), 1, &tokens);
  ASSERT_TRUE(one.has_value()) << one.error();
  const auto mean_of = [](const std::string& param) { return ir::kAveragePrefix + param; };
  auto means = (*one)->Gather().value();
  const size_t params_and_means = means.size();
  for (int step = 0; step < kRunSteps; ++step) {
    ASSERT_TRUE((*one)->Train(step, 1).has_value());
    const auto now = (*one)->Gather().value();
    for (auto& [name, tensor] : means) {
      const std::string param = ir::AveragedParam(name);
      if (param.empty()) continue;
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        if (step == 0) {
          ASSERT_EQ(tensor.values[i], means.at(param).values[i]) << name;
        }
        tensor.values[i] = kDecay * tensor.values[i] + (1 - kDecay) * now.at(param).values[i];
        ASSERT_NEAR(tensor.values[i], now.at(name).values[i], 1e-14) << name << " step " << step;
      }
    }
  }
  EXPECT_EQ(means.count(mean_of("transformer.wte.weight")), adapters ? 0u : 1u);
  EXPECT_GT(params_and_means, 0u);
  const auto expected = RunJob(WithLayout(job, {}), 1, kTunedVocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  struct Case {
    LayoutCase layout;
    int64_t zero;
    const char* schedule;
  };
  for (const Case& c : {Case{{2, 2, 1, 1}, 0, "1f1b"}, Case{{2, 2, 1, 1}, 1, "1f1b"},
                        Case{{4, 1, 1, 1}, 3, "1f1b"}, Case{{2, 1, 2, 4}, 2, "1f1b"},
                        Case{{1, 1, 2, 4}, 0, "1f1b-vocab"}, Case{{1, 2, 2, 4}, 0, "1f1b"}}) {
    ir::JobRequest split = WithLayout(job, c.layout);
    split.parallel.zero = c.zero;
    split.parallel.schedule = c.schedule;
    const std::string layout =
        fmt::format("{} zero={} {}", c.layout.ToString(), c.zero, c.schedule);
    const auto actual = RunJob(split, c.layout.devices(), kTunedVocabulary);
    ASSERT_TRUE(actual.has_value()) << layout << ": " << actual.error();
    ExpectEqual(*expected, *actual, 1e-10, layout);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, TunedAverages, ::testing::Values("all", "lora"));

}  // namespace
}  // namespace meshwright::testing
