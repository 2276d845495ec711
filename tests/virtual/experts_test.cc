// Experts: every factorisation with an expert axis, and every other one of a model with experts,
// trains the model of one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "models/mixture.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

struct ExpertLayout {
  int64_t data = 1, expert = 1, context = 1, tensor = 1, pipeline = 1, microbatches = 1;
  int devices() const { return static_cast<int>(data * context * tensor * pipeline); }
  std::string ToString() const {
    return fmt::format("data={} expert={} context={} tensor={} pipeline={} microbatches={}", data,
                       expert, context, tensor, pipeline, microbatches);
  }
};

constexpr int64_t kHeadGroups = 8;  // of a tiny mixtral: what the tensor axis can divide

// All that a model of 4 layers and 4 experts can have; experts are shared by some of the replicas,
// or not.
std::vector<ExpertLayout> ExpertLayoutsOf(int64_t devices) {
  std::vector<ExpertLayout> layouts;
  for (int64_t data = 1; data <= devices; data *= 2) {
    for (int64_t context = 1; data * context <= devices; context *= 2) {
      for (int64_t tensor = 1; data * context * tensor <= devices; tensor *= 2) {
        const int64_t pipeline = devices / (data * context * tensor);
        if (pipeline > 4 || tensor > kHeadGroups) continue;
        for (int64_t expert = 1; expert <= std::min<int64_t>(data, 4); expert *= 2) {
          layouts.push_back({data, expert, context, tensor, pipeline, pipeline == 1 ? 1 : 2});
        }
      }
    }
  }
  return layouts;
}

ir::JobRequest OnLayout(ir::JobRequest job, const ExpertLayout& layout) {
  job.parallel.data = layout.data;
  job.parallel.expert = layout.expert;
  job.parallel.context = layout.context;
  job.parallel.tensor = layout.tensor;
  job.parallel.pipeline = layout.pipeline;
  job.parallel.microbatches = layout.microbatches;
  return job;
}

TinyOptions Options() {
  TinyOptions options;
  options.family = "mixtral";
  options.layers = 4;
  options.batch = 16;
  options.sequence = 16;
  return options;
}

void ExpectAsOneDevice(const ir::JobRequest& job, const TinyOptions& options,
                       const std::vector<ExpertLayout>& layouts) {
  const auto vocabulary = static_cast<int>(options.vocabulary);
  const auto expected = RunJob(OnLayout(job, {}), 1, vocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const ExpertLayout& layout : layouts) {
    const auto actual = RunJob(OnLayout(job, layout), layout.devices(), vocabulary);
    ASSERT_TRUE(actual.has_value()) << layout.ToString() << ": " << actual.error();
    EXPECT_EQ(actual->plan.layout.expert(), layout.expert);
    ExpectEqual(*expected, *actual, 1e-10, layout.ToString());
  }
}

class Experts : public ::testing::TestWithParam<int> {};

TEST_P(Experts, EveryFactorisationEqualsOneDeviceInF64) {
  const TinyOptions options = Options();
  const std::vector<ExpertLayout> all = ExpertLayoutsOf(GetParam());
  // Of 16 devices every fifth one, unless all are asked for.
  const bool some = GetParam() == 16 && std::getenv("MESHWRIGHT_TEST_ALL_LAYOUTS") == nullptr;
  std::vector<ExpertLayout> layouts;
  for (size_t i = 0; i < all.size(); i += some ? 5 : 1) layouts.push_back(all[i]);
  ExpectAsOneDevice(MakeTinyJob(options), options, layouts);
}

std::vector<int> ExpertDevices() {
  if (kSanitizedBuild) return {4};
  return {2, 4, 8, 16};
}

INSTANTIATE_TEST_SUITE_P(Devices, Experts, ::testing::ValuesIn(ExpertDevices()));

const std::vector<ExpertLayout> kExpertLayouts = {{2, 2, 1, 1, 1, 1}, {4, 2, 1, 1, 1, 2},
                                                  {2, 2, 1, 2, 1, 1}, {2, 2, 2, 1, 1, 1},
                                                  {2, 2, 1, 1, 2, 4}, {4, 4, 1, 1, 1, 4}};

TEST(ExpertVariants, WithRoomForSomeTheSameTokensAreDropped) {
  for (const double factor : {0.5, 1.0}) {
    TinyOptions options = Options();
    options.capacity_factor = factor;
    ExpectAsOneDevice(MakeTinyJob(options), options, kExpertLayouts);
  }
}

TEST(ExpertVariants, ZeroAndRecomputingChangeNothing) {
  const TinyOptions options = Options();
  for (const int64_t zero : {1, 2, 3}) {
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.zero = zero;
    job.parallel.recompute = zero == 2 ? "full" : "selective";
    ExpectAsOneDevice(job, options, {{4, 2, 1, 1, 1, 2}, {4, 2, 1, 1, 2, 2}});
  }
}

TEST(ExpertVariants, TokensSplitOverTheTensorAxisAreWholeForExperts) {
  const TinyOptions options = Options();
  ir::JobRequest job = MakeTinyJob(options);
  const auto expected = RunJob(OnLayout(job, {}), 1, 61);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  job.parallel.sequence_parallel = true;
  const ExpertLayout layout{2, 2, 1, 2, 1, 1};
  const auto actual = RunJob(OnLayout(job, layout), layout.devices(), 61);
  ASSERT_TRUE(actual.has_value()) << actual.error();
  ExpectEqual(*expected, *actual, 1e-10, layout.ToString());
}

TEST(ExpertVariants, DocumentsEqualOneDevice) {
  TinyOptions options = Options();
  options.document_separator = 3;
  ExpectAsOneDevice(MakeTinyJob(options), options, kExpertLayouts);
}

TEST(ExpertVariants, ADegreeThatDoesNotFitIsRefusedWithOneThatDoes) {
  const TinyOptions options = Options();
  const ir::JobRequest job = MakeTinyJob(options);
  const auto error = [&](const ExpertLayout& layout) {
    const auto run = RunJob(OnLayout(job, layout), layout.devices(), 61);
    return run.has_value() ? "" : run.error().message();
  };
  EXPECT_NE(error({2, 4, 1, 1, 1, 1}).find("does not divide the 2 replicas"), std::string::npos);
  EXPECT_NE(error({8, 8, 1, 1, 1, 1}).find("does not divide 4 experts; choose one of {1, 2, 4}"),
            std::string::npos)
      << error({8, 8, 1, 1, 1, 1});
  TinyOptions dense = options;
  dense.family = "llama";
  const auto none = RunJob(OnLayout(MakeTinyJob(dense), {2, 2, 1, 1, 1, 1}), 2, 61);
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message().find("the model has no experts"), std::string::npos);
}

// Kinds of routers and forms of their losses, of 4 layers.

using Change = std::function<void(models::MixtureConfig&)>;

TinyOptions OptionsWith(const Change& change) {
  TinyOptions options = Options();
  options.mixture = change;
  return options;
}

const std::vector<ExpertLayout> kRouterLayouts = {
    {4, 2, 1, 1, 1, 2}, {2, 2, 1, 2, 1, 1}, {2, 2, 2, 1, 1, 2}, {2, 1, 1, 1, 2, 4}};
// Where sums over the whole batch can be: of a pipeline in one microbatch.
const std::vector<ExpertLayout> kWholeBatchLayouts = {
    {4, 2, 1, 1, 1, 1}, {2, 2, 1, 2, 1, 1}, {2, 1, 2, 1, 1, 1}, {2, 2, 1, 1, 2, 1},
    {1, 1, 1, 1, 1, 4}, {4, 2, 1, 1, 1, 2}, {2, 2, 1, 2, 1, 4}, {2, 2, 2, 1, 1, 2}};

void ExpectRouterAsOneDevice(const Change& change,
                             const std::vector<ExpertLayout>& layouts = kRouterLayouts) {
  const TinyOptions options = OptionsWith(change);
  ExpectAsOneDevice(MakeTinyJob(options), options, layouts);
}

TEST(ExpertRouters, SwitchEqualsOneDevice) {
  ExpectRouterAsOneDevice([](models::MixtureConfig& config) {
    config.experts.chosen = 1;
    config.experts.router = client::TopOfSoftmax{.normalised = false};
    config.experts.capacity_factor = 1.25;
  });
}

TEST(ExpertRouters, GshardWithItsLossEqualsOneDevice) {
  ExpectRouterAsOneDevice([](models::MixtureConfig& config) {
    config.experts.capacity_factor = 1;
    config.balance_form = client::BalanceForm::kGshard;
  });
}

TEST(ExpertRouters, ASoftmaxOfTheTopEqualsOneDevice) {
  ExpectRouterAsOneDevice([](models::MixtureConfig& config) {
    config.experts.router = client::SoftmaxOfTop{.bias = true};
  });
}

TEST(ExpertRouters, NoiseIsTheSameOnEveryLayoutAndNoneIsInValidation) {
  ExpectRouterAsOneDevice(
      [](models::MixtureConfig& config) { config.experts.router = client::NoisyTop{}; });
}

// The bias moves by whole counts of all microbatches, replicas and context ranks. Steps that are a
// power of two have no rounding, so that biases that came back to zero are zero.
TEST(ExpertRouters, DeepSeeksBiasSharedExpertAndDenseLayersEqualOneDevice) {
  const Change change = [](models::MixtureConfig& config) {
    config.experts.router =
        client::TopOfSigmoid{.scale = 2.5, .groups = 2, .chosen_groups = 1, .bias_rate = 1.0 / 128};
    config.shared_inner = 16;
    config.dense_layers = 1;
    config.dense_inner = 40;
  };
  ExpectRouterAsOneDevice(change);
  const TinyOptions options = OptionsWith(change);
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.zero = 3;
  ExpectAsOneDevice(job, options, {{4, 2, 1, 1, 1, 2}});
}

TEST(ExpertRouters, QwensGatedSharedExpertAndBiasesEqualOneDevice) {
  ExpectRouterAsOneDevice([](models::MixtureConfig& config) {
    config.experts.router = client::TopOfSoftmax{.normalised = false};
    config.shared_inner = 16;
    config.shared_gated = true;
    config.llama.attention_bias = true;
    config.llama.head_norm = models::HeadNorm::kEach;
  });
}

TEST(ExpertRouters, NormsOverAllHeadsEqualOneDevice) {
  ExpectRouterAsOneDevice(
      [](models::MixtureConfig& config) { config.llama.head_norm = models::HeadNorm::kTogether; });
}

TEST(ExpertRouters, LatentAttentionEqualsOneDevice) {
  ExpectRouterAsOneDevice([](models::MixtureConfig& config) {
    config.llama.kv_heads = 0;
    config.llama.latent = {.query_rank = 12, .rank = 8, .plain = 4, .turned = 4, .value = 6};
  });
}

// 256 tokens choose one of 128 experts each: some experts have nothing to do in a step, and on some
// replicas many.
TEST(ExpertRouters, IdleExpertsUnderZeroEqualOneDevice) {
  TinyOptions options = OptionsWith([](models::MixtureConfig& config) {
    config.experts.experts = 128;
    config.experts.chosen = 1;
    config.experts.router = client::TopOfSoftmax{.normalised = false};
  });
  options.layers = 2;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.zero = 3;
  ExpectAsOneDevice(job, options, {{4, 2, 1, 1, 1, 2}, {4, 1, 1, 1, 1, 1}});
}

TEST(ExpertRouters, LossesOfTheWholeBatchEqualOneDevice) {
  for (const auto form : {client::BalanceForm::kSwitch, client::BalanceForm::kMixtral}) {
    ExpectRouterAsOneDevice([form](models::MixtureConfig& config) { config.balance_form = form; },
                            kWholeBatchLayouts);
  }
}

// Counts of all microbatches are swept together first, whatever the backward keeps and wherever
// state is; noise and dropped tokens are those of the forward.
TEST(ExpertRouters, LossesOfTheWholeBatchDoNotSeeMicrobatchesUnderZeroRecomputingAndNoise) {
  const TinyOptions options = OptionsWith([](models::MixtureConfig& config) {
    config.balance_form = client::BalanceForm::kSwitch;
    config.experts.router = client::NoisyTop{};
    config.experts.capacity_factor = 1;
  });
  for (const char* recompute : {"none", "selective", "full"}) {
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.zero = 3;
    job.parallel.recompute = recompute;
    ExpectAsOneDevice(job, options, {{4, 2, 1, 1, 1, 4}});
  }
}

TEST(ExpertRouters, LossesOfTheWholeBatchWantOneMicrobatchInAPipeline) {
  for (const auto form : {client::BalanceForm::kSwitch, client::BalanceForm::kMixtral}) {
    const TinyOptions options =
        OptionsWith([form](models::MixtureConfig& config) { config.balance_form = form; });
    const ir::JobRequest job = MakeTinyJob(options);
    const auto run = RunJob(OnLayout(job, {1, 1, 1, 1, 2, 2}), 2, 61);
    ASSERT_FALSE(run.has_value());
    EXPECT_EQ(run.error().field(), "parallel.microbatches");
    EXPECT_NE(run.error().message().find(
                  "use microbatches=1, pipeline=1, or balance_form = \"sequence\""),
              std::string::npos)
        << run.error();
    // What is left open is one.
    const auto open = RunJob(OnLayout(job, {1, 1, 1, 1, 2, 0}), 2, 61);
    ASSERT_TRUE(open.has_value()) << open.error();
    EXPECT_EQ(open->plan.layout.microbatches, 1);
  }
}

TEST(ExpertRouters, ExpertsThatChooseEqualOneDevice) {
  TinyOptions options = OptionsWith(
      [](models::MixtureConfig& config) { config.experts.router = client::ExpertChoice{}; });
  options.balance_loss = 0;
  ExpectAsOneDevice(MakeTinyJob(options), options, kRouterLayouts);
}

// gpt-oss: biases of experts, clamped gates, sinks of attention, a window in every second layer.
TEST(ExpertRouters, GptOssEqualsOneDevice) {
  ExpectRouterAsOneDevice([](models::MixtureConfig& config) {
    config.experts.router = client::SoftmaxOfTop{.bias = true};
    config.expert_bias = true;
    config.glu_limit = 0.05;
    config.llama.attention_bias = true;
    config.llama.output_bias = true;
    config.llama.attention_sinks = true;
    config.llama.attention_window = 5;
    config.llama.windowed = {true, false};
  });
}

// Under mixed precision, too: sinks and shares are f32, what they weigh is not.
TEST(ExpertRouters, GptOssComputesInBf16) {
  TinyOptions options = OptionsWith([](models::MixtureConfig& config) {
    config.experts.router = client::SoftmaxOfTop{.bias = true};
    config.balance_form = client::BalanceForm::kSwitch;
    config.expert_bias = true;
    config.glu_limit = 0.05;
    config.llama.attention_sinks = true;
  });
  options.dtype = ir::DType::kF32;
  const auto exact = RunJob(OnLayout(MakeTinyJob(options), {}), 1, 61);
  ASSERT_TRUE(exact.has_value()) << exact.error();
  options.dtype = ir::DType::kBF16;
  const auto half = RunJob(OnLayout(MakeTinyJob(options), {2, 2, 1, 1, 1, 2}), 2, 61);
  ASSERT_TRUE(half.has_value()) << half.error();
  for (size_t step = 0; step < exact->losses.size(); ++step) {
    EXPECT_NEAR(half->losses[step] / exact->losses[step], 1, 2e-2) << step;
  }
}

// Bounded slots, where the bound holds: the same numbers in less memory.
TEST(ExpertVariants, BoundedSlotsAreEnoughAndTakeLessMemory) {
  const auto options_with = [](double factor) {
    TinyOptions options = OptionsWith([factor](models::MixtureConfig& config) {
      config.experts.experts = 8;
      config.experts.slots_factor = factor;
    });
    options.lr = 1e-5;  // a router that has learnt much sends more to one rank
    return options;
  };
  const TinyOptions options = options_with(3.5);
  const TinyOptions all = options_with(0);
  ExpectAsOneDevice(MakeTinyJob(options), options, kExpertLayouts);
  const auto bytes = [](const TinyOptions& of) {
    const auto run = RunJob(OnLayout(MakeTinyJob(of), {4, 4, 1, 1, 1, 1}), 4, 61);
    EXPECT_TRUE(run.has_value()) << run.error();
    return run.has_value() ? run->plan.memory[0].total_bytes : 0;
  };
  // Of 32 slots of a row and rank 28 are left: 4 of width 32 less, in several tensors of 4 layers.
  EXPECT_LT(bytes(options) + 4 * 3 * options.batch * 4 * 32 * 8, bytes(all));
}

TEST(ExpertVariants, ARowThatWantsMoreSlotsEndsTheStepAndNamesTheKey) {
  const TinyOptions options =
      OptionsWith([](models::MixtureConfig& config) { config.experts.slots_factor = 1; });
  const auto run = RunJob(OnLayout(MakeTinyJob(options), {2, 2, 1, 1, 1, 1}), 2, 61);
  ASSERT_FALSE(run.has_value());
  for (const char* part : {"layer model.layers.", "experts ", "which has 16 slots",
                           "raise model.expert_slots_factor"}) {
    EXPECT_NE(run.error().message().find(part), std::string::npos) << run.error();
  }
}

}  // namespace
}  // namespace meshwright::testing
