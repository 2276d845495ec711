// Rows shared token by token: every factorisation with a context axis trains the model of one
// device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kContextTokens = 16;

struct ContextLayout {
  int64_t data = 1, context = 1, tensor = 1, pipeline = 1, microbatches = 1;
  int devices() const { return static_cast<int>(data * context * tensor * pipeline); }
  std::string ToString() const {
    return fmt::format("data={} context={} tensor={} pipeline={} microbatches={}", data, context,
                       tensor, pipeline, microbatches);
  }
};

// All with a context axis.
std::vector<ContextLayout> LayoutsOf(int64_t devices) {
  std::vector<ContextLayout> layouts;
  for (int64_t data = 1; data <= devices; data *= 2) {
    for (int64_t context = 2; data * context <= devices; context *= 2) {
      for (int64_t tensor = 1; data * context * tensor <= devices; tensor *= 2) {
        const int64_t pipeline = devices / (data * context * tensor);
        layouts.push_back({data, context, tensor, pipeline, pipeline == 1 ? 1 : 4});
      }
    }
  }
  return layouts;
}

ir::JobRequest With(ir::JobRequest job, const ContextLayout& layout) {
  job.parallel.data = layout.data;
  job.parallel.context = layout.context;
  job.parallel.tensor = layout.tensor;
  job.parallel.pipeline = layout.pipeline;
  job.parallel.microbatches = layout.microbatches;
  return job;
}

TinyOptions OptionsOf(const std::string& family) {
  TinyOptions options;
  options.family = family;
  options.layers = 4;
  options.batch = 8;
  options.sequence = kContextTokens;
  return options;
}

void ExpectLikeOneDevice(const ir::JobRequest& job, const TinyOptions& options,
                         const std::vector<ContextLayout>& layouts) {
  const auto vocabulary = static_cast<int>(options.vocabulary);
  const auto expected = RunJob(With(job, {}), 1, vocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const ContextLayout& layout : layouts) {
    const auto actual = RunJob(With(job, layout), layout.devices(), vocabulary);
    ASSERT_TRUE(actual.has_value()) << layout.ToString() << ": " << actual.error();
    EXPECT_EQ(actual->plan.layout.context(), layout.context);
    ExpectEqual(*expected, *actual, 1e-10, layout.ToString());
  }
}

class Context : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(Context, EveryFactorisationEqualsOneDeviceInF64) {
  const auto& [family, devices] = GetParam();
  const TinyOptions options = OptionsOf(family);
  ExpectLikeOneDevice(MakeTinyJob(options), options, LayoutsOf(devices));
}

std::vector<int> ContextDevices() {
  if (kSanitizedBuild) return {4};
  return {2, 4, 8};
}

INSTANTIATE_TEST_SUITE_P(Models, Context,
                         ::testing::Combine(::testing::Values("gpt2", "llama"),
                                            ::testing::ValuesIn(ContextDevices())),
                         [](const auto& of) {
                           return fmt::format("{}On{}", std::get<0>(of.param),
                                              std::get<1>(of.param));
                         });

const std::vector<ContextLayout> kSomeLayouts = {
    {1, 2, 1, 1, 1}, {1, 4, 1, 1, 1}, {2, 2, 1, 1, 2}, {1, 2, 2, 1, 1}, {1, 2, 1, 2, 4}};

TEST(ContextVariants, DocumentsEqualOneDevice) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options = OptionsOf(family);
    options.document_separator = 3;
    ExpectLikeOneDevice(MakeTinyJob(options), options, kSomeLayouts);
  }
}

TEST(ContextVariants, KeysAreGatheredOrGoRound) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options = OptionsOf(family);
    options.document_separator = 3;
    ir::JobRequest job = MakeTinyJob(options);
    for (const char* attention : {"gather", "ring"}) {
      job.parallel.context_attention = attention;
      ExpectLikeOneDevice(job, options, kSomeLayouts);
    }
  }
}

TEST(ContextVariants, DropoutMasksDoNotDependOnTheLayout) {
  TinyOptions options = OptionsOf("gpt2");
  options.dropout = 0.2;
  ExpectLikeOneDevice(MakeTinyJob(options), options, kSomeLayouts);
}

// Five chunks of two tokens do not make two blocks of two chunks.
TEST(ContextVariants, TokensThatAreNoEqualChunksLieInTheirOrder) {
  TinyOptions options = OptionsOf("llama");
  options.sequence = 10;
  const ir::JobRequest job = MakeTinyJob(options);
  ExpectLikeOneDevice(job, options, {{1, 2, 1, 1, 1}});
  const auto odd = RunJob(With(job, {1, 4, 1, 1, 1}), 4, static_cast<int>(options.vocabulary));
  ASSERT_FALSE(odd.has_value());
  EXPECT_NE(odd.error().message().find("context=4 does not divide the 10 tokens of a row"),
            std::string::npos)
      << odd.error();
}

TEST(ContextVariants, ZeroAndRecomputingChangeNothing) {
  const TinyOptions options = OptionsOf("gpt2");
  for (const int64_t zero : {1, 2, 3}) {
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.zero = zero;
    job.parallel.recompute = zero == 2 ? "full" : "selective";
    ExpectLikeOneDevice(job, options, {{2, 2, 1, 1, 2}, {2, 2, 1, 2, 4}});
  }
}

}  // namespace
}  // namespace meshwright::testing
