// Rows shared token by token: every factorisation with a context axis trains the model of one
// device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

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
    if (LeavesOut(2)) continue;
    TinyOptions options = OptionsOf(family);
    options.document_separator = 3;
    ExpectLikeOneDevice(MakeTinyJob(options), options, kSomeLayouts);
  }
}

TEST(ContextVariants, KeysAreGatheredOrGoRoundOrHeadsAreShared) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options = OptionsOf(family);
    options.document_separator = 3;
    ir::JobRequest job = MakeTinyJob(options);
    for (const char* attention : {"gather", "ring", "ulysses"}) {
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

TEST(ContextVariants, SharedHeadsEqualOneDeviceInEveryFactorisation) {
  for (const char* family : {"gpt2", "llama"}) {
    const TinyOptions options = OptionsOf(family);
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.context_attention = "ulysses";
    ExpectLikeOneDevice(job, options, LayoutsOf(kSanitizedBuild ? 4 : 8));
  }
}

// Llama has 8 heads of keys: 16 devices, or 8 beside a tensor axis, each take a copy.
TEST(ContextVariants, HeadsOfKeysFewerThanDevicesAreRepeated) {
  const TinyOptions options = OptionsOf("llama");
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.context_attention = "ulysses";
  ExpectLikeOneDevice(job, options, {{1, 16, 1, 1, 1}, {1, 8, 2, 1, 1}});
}

// Groups of neighbours share heads, and are a ring: 2 x 2, 2 x 4 (of 8 heads), 2 x 2 beside a
// tensor axis.
TEST(ContextVariants, NeighboursShareHeadsWithinARing) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options = OptionsOf(family);
    options.document_separator = 3;
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.context_attention = "nested";
    ExpectLikeOneDevice(job, options,
                        {{1, 4, 1, 1, 1}, {1, 8, 1, 1, 1}, {2, 4, 2, 1, 2}, {1, 4, 1, 2, 4}});
    options.dropout = 0.2;
    job = MakeTinyJob(options);
    job.parallel.context_attention = "nested";
    ExpectLikeOneDevice(job, options, {{1, 4, 1, 1, 1}});
  }
}

// 8 and 4 heads over 3 devices; of llama 16 and 8 with half as many of keys.
TEST(ContextVariants, HeadsThatDoNotComeOutEvenArePadded) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options = OptionsOf(family);
    options.sequence = 12;
    options.document_separator = 3;
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.context_attention = "ulysses";
    ExpectLikeOneDevice(job, options, {{1, 3, 1, 1, 1}, {2, 3, 2, 1, 2}, {1, 3, 1, 2, 4}});
  }
}

TEST(ContextVariants, MasksOfSharedHeadsDoNotDependOnTheLayout) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options = OptionsOf(family);
    options.dropout = 0.2;
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.context_attention = "ulysses";
    ExpectLikeOneDevice(job, options, kSomeLayouts);
    if (options.family == "llama") ExpectLikeOneDevice(job, options, {{1, 16, 1, 1, 1}});
  }
}

TEST(ContextVariants, SharedHeadsThatDoNotFitAreRefusedWithWhatWould) {
  TinyOptions options = OptionsOf("gpt2");
  options.gpt2_heads = 4;
  options.sequence = 24;
  const char* way = "ulysses";
  const auto refusal = [&](int64_t context, double dropout) {
    options.dropout = dropout;
    ir::JobRequest job = With(MakeTinyJob(options), {1, context, 1, 1, 1});
    job.parallel.context_attention = way;
    const auto run = RunJob(job, static_cast<int>(context), static_cast<int>(options.vocabulary));
    return run.has_value() ? std::string() : run.error().message();
  };
  EXPECT_NE(refusal(8, 0).find("context=8 devices cannot share 4 heads; choose context in {1, 2, "
                               "4}, or ring or gather"),
            std::string::npos)
      << refusal(8, 0);
  way = "nested";
  EXPECT_NE(refusal(3, 0).find("no part of context=3 devices can share 4 heads"), std::string::npos)
      << refusal(3, 0);
  way = "ulysses";
  EXPECT_NE(refusal(3, 0.1).find("4 heads are no multiple of context=3: attention with dropout "
                                 "takes no added heads"),
            std::string::npos)
      << refusal(3, 0.1);
}

TEST(ContextVariants, WindowsEqualOneDeviceHoweverTheyLieInBlocks) {
  for (const int64_t window : {1, 3, 6, 12}) {
    TinyOptions options = OptionsOf("llama");
    options.attention_window = window;
    options.document_separator = 3;
    ir::JobRequest job = MakeTinyJob(options);
    for (const char* attention : {"gather", "ring", "ulysses"}) {
      job.parallel.context_attention = attention;
      ExpectLikeOneDevice(job, options, {{1, 4, 1, 1, 1}, {2, 2, 2, 1, 2}, {1, 2, 1, 2, 4}});
    }
  }
}

TEST(ContextVariants, AutoTakesTheWayThatMovesLeast) {
  using planner::ContextAttention;
  struct Row {
    const char* family;
    int64_t context;
    int64_t window;
    ContextAttention way;
  };
  for (const Row& row :
       {Row{"gpt2", 2, 0, ContextAttention::kGather}, Row{"gpt2", 4, 0, ContextAttention::kUlysses},
        Row{"llama", 2, 0, ContextAttention::kGather},
        Row{"llama", 4, 0, ContextAttention::kUlysses},
        Row{"llama", 8, 3, ContextAttention::kRing}}) {
    TinyOptions options = OptionsOf(row.family);
    options.attention_window = row.window;
    const ir::JobRequest job = With(MakeTinyJob(options), {1, row.context, 1, 1, 1});
    const auto plan = planner::MakePlan(job, mesh::Topology::Local(static_cast<int>(row.context)));
    ASSERT_TRUE(plan.has_value()) << plan.error();
    EXPECT_EQ(plan->layout.context_attention, row.way) << row.family << " " << row.context;
    const auto says = [&](const std::string& note) {
      return note.find(fmt::format("attention over context={} by ", row.context)) !=
             std::string::npos;
    };
    EXPECT_TRUE(std::any_of(plan->notes.begin(), plan->notes.end(), says)) << row.family;
  }
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
    job.parallel.context_attention = "ulysses";
    ExpectLikeOneDevice(job, options, {{2, 2, 1, 2, 4}});
  }
}

}  // namespace
}  // namespace meshwright::testing
