// Programs over pages on real workers: what several requests get at once, on layouts of all kinds,
// is what the whole forward says.
#include "generation/paged_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "models/gpt2.h"
#include "models/llama.h"
#include "models/mixture.h"
#include "models/t5.h"
#include "tests/e2e/control/local_cluster.h"

namespace meshwright::testing::paged {
namespace {

using client::Session;
using client::Tensor;
using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 48;
constexpr int64_t kPositions = 40;

client::TrainerFunctions Gpt2() {
  return models::MakeGpt2(
      {.vocabulary = kVocabulary, .positions = kPositions, .width = 32, .layers = 2, .heads = 4});
}

client::TrainerFunctions Llama(int64_t kv_heads = 2) {
  return models::MakeLlama({.vocabulary = kVocabulary,
                            .width = 32,
                            .inner = 48,
                            .layers = 2,
                            .heads = 4,
                            .kv_heads = kv_heads});
}

client::TrainerFunctions Experts() {
  models::MixtureConfig config;
  config.llama = {
      .vocabulary = kVocabulary, .width = 32, .inner = 24, .layers = 2, .heads = 4, .kv_heads = 2};
  config.experts = {.experts = 6, .chosen = 2};
  return models::MakeMixture(config);
}

constexpr int64_t kSourceTokens = 12;

client::TrainerFunctions T5() {
  return models::MakeT5({.vocabulary = kVocabulary,
                         .width = 32,
                         .inner = 48,
                         .head_size = 6,
                         .layers = 2,
                         .heads = 4,
                         .buckets = 8,
                         .max_distance = 10,
                         .target_tokens = kPositions});
}

// Asks "predict" for the logits behind all tokens of a text.
ir::JobRequest PredictJob(const client::TrainerFunctions& functions, ir::DType compute,
                          int64_t sequence = kPositions) {
  client::JobBuilder builder("predict");
  auto program = client::PredictProgram({.batch = 1, .sequence = sequence}, functions);
  EXPECT_TRUE(program) << program.error();
  ir::ParallelSpec parallel;
  parallel.data = 1;
  builder.Batch(1, sequence).DType(compute).Seed(3).Parallel(parallel).DrivenByClient();
  if (program) builder.Program(*std::move(program));
  auto job = builder.Build();
  EXPECT_TRUE(job) << job.error();
  return job ? *job : ir::JobRequest();
}

generation::PagedPlan Plan(int64_t source = 0) {
  generation::PagedOptions options;
  options.positions = kPositions;
  options.texts = 4;
  options.tokens = 8;
  options.page_tokens = 4;
  options.pages = 16;  // not enough for all at once
  options.source = source;
  auto plan = generation::PlanPages(options);
  EXPECT_TRUE(plan) << plan.error();
  return plan ? *plan : generation::PagedPlan();
}

std::unique_ptr<Session> Open(LocalCluster& cluster, const ir::JobRequest& job) {
  auto session = cluster.client().OpenSession(job);
  EXPECT_TRUE(session) << session.error();
  return session ? *std::move(session) : nullptr;
}

std::vector<int32_t> PromptOf(int64_t number) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < 3 + 5 * number; ++i) {
    prompt.push_back(static_cast<int32_t>((7 * i + 11 * number + 3) % kVocabulary));
  }
  return prompt;
}

struct Written {
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::vector<std::vector<double>>> logits;  // of each token of each text
  int64_t preemptions = 0;
  int64_t found_tokens = 0;
};

generation::Request RequestOf(int64_t number) {
  generation::Request request;
  request.prompt = PromptOf(number);
  request.max_new_tokens = 12;
  return request;
}

// Of a source of 3 to 11 tokens: the decoder begins with 0.
generation::Request SourceRequestOf(int64_t number) {
  generation::Request request;
  request.prompt = {0};
  for (int64_t i = 0; i < 3 + 2 * number; ++i) {
    request.source.push_back(
        static_cast<int32_t>(1 + (5 * i + 13 * number + 2) % (kVocabulary - 1)));
  }
  request.max_new_tokens = 30;
  return request;
}

// Greedy texts of several requests, all at once.
Written Write(Session& session, const generation::PagedPlan& plan,
              const std::vector<generation::Request>& requests) {
  Written written;
  written.texts.resize(requests.size());
  written.logits.resize(requests.size());
  const generation::StepLogits steps = generation::StepsOf(session, plan);
  generation::Engine engine(plan.limits(), [&](generation::Batch batch) {
    batch.likeliest = false;
    auto logits = steps(batch);
    for (size_t i = 0; logits && i < batch.wanted.size(); ++i) {
      written.logits[static_cast<size_t>(batch.wanted[i].id)].push_back(std::get<0>(*logits)[i]);
    }
    return logits;
  });
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto added = engine.Add(requests[i], {[&written, i](int32_t token) {
                                                  written.texts[i].push_back(token);
                                                  return true;
                                                },
                                                {},
                                                {}});
    EXPECT_TRUE(added) << added.error();
  }
  while (!engine.idle()) {
    const Status stepped = engine.Step();
    EXPECT_TRUE(stepped.ok()) << stepped;
    if (!stepped.ok()) break;
  }
  written.preemptions = engine.scheduler().preemptions();
  written.found_tokens = engine.scheduler().found_tokens();
  return written;
}

Written Write(Session& session, const std::vector<int64_t>& numbers) {
  std::vector<generation::Request> requests;
  for (const int64_t number : numbers) requests.push_back(RequestOf(number));
  return Write(session, Plan(), requests);
}

// The largest difference of the logits from those of the whole text.
double FromWhole(Session& session, int64_t number, const Written& written, size_t at) {
  std::vector<int32_t> window = PromptOf(number);
  const auto prompt = static_cast<int64_t>(window.size());
  window.insert(window.end(), written.texts[at].begin(), written.texts[at].end());
  window.resize(kPositions + 1);
  const auto answer =
      session.Run("predict", {{"window", Tensor::Of<int32_t>({1, kPositions + 1}, window)}});
  EXPECT_TRUE(answer) << answer.error();
  if (!answer) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < written.logits[at].size(); ++i) {
    const auto whole =
        answer->tensors.at("logits").RealsOfRow(0, prompt - 1 + static_cast<int64_t>(i));
    for (size_t j = 0; j < whole.size(); ++j) {
      largest = std::max(largest, std::abs(whole[j] - written.logits[at][i][j]));
    }
  }
  return largest;
}

struct Layout {
  int64_t tensor = 1;
  int64_t pipeline = 1;
};

ir::JobRequest PagedJobOf(const client::TrainerFunctions& functions, ir::DType compute,
                          const Layout& layout, int64_t source = 0) {
  ir::JobRequest of = PredictJob(functions, compute, source > 0 ? source : kPositions);
  of.parallel.tensor = layout.tensor;
  of.parallel.pipeline = layout.pipeline;
  auto job = generation::PagedJob(of, functions, Plan(source), "write");
  EXPECT_TRUE(job) << job.error();
  return job ? *job : ir::JobRequest();
}

TEST(PagedSession, SeveralRequestsGetWhatTheyGetAloneOnEveryLayout) {
  LocalClusterOptions options;
  options.workers = 1;
  options.devices_per_worker = 2;
  auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster) << cluster.error();
  const std::vector<int64_t> numbers = {0, 1, 2, 3, 4};
  for (const auto& functions : {Gpt2(), Llama(), Experts()}) {
    for (const Layout& layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 2}}) {
      SCOPED_TRACE(::testing::Message()
                   << "tensor=" << layout.tensor << " pipeline=" << layout.pipeline);
      const auto session = Open(**cluster, PagedJobOf(functions, ir::DType::kF32, layout));
      ASSERT_NE(session, nullptr);
      const Written together = Write(*session, numbers);
      EXPECT_GT(together.preemptions, 0);
      for (const size_t i : {size_t{0}, size_t{4}}) {
        const Written alone = Write(*session, {numbers[i]});
        EXPECT_EQ(alone.texts[0], together.texts[i]);
        EXPECT_TRUE(alone.logits[0] == together.logits[i]) << i;  // to the last bit
      }
      const Written twice = Write(*session, {4, 4});
      EXPECT_EQ(twice.found_tokens, 20);  // full pages of a prompt of 23
      for (const auto& logits : twice.logits) EXPECT_TRUE(logits == together.logits[4]);
      EXPECT_TRUE(session->Close().ok());
      const auto predict = Open(**cluster, PredictJob(functions, ir::DType::kF32));
      ASSERT_NE(predict, nullptr);
      for (size_t i = 0; i < numbers.size(); ++i) {
        EXPECT_EQ(together.texts[i].size(), 12u);
        EXPECT_LT(FromWhole(*predict, numbers[i], together, i), 1e-5) << i;
      }
      EXPECT_TRUE(predict->Close().ok());
    }
  }
}

// Pages have the key heads that the model has: a device that has none of its own has all of them.
TEST(PagedSession, FewerKeyHeadsThanDevicesOfATensorGroup) {
  LocalClusterOptions options;
  options.workers = 1;
  options.devices_per_worker = 4;
  auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster) << cluster.error();
  const std::vector<int64_t> numbers = {0, 4};
  for (const auto& [kv_heads, tensor] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 2}, {1, 4}, {2, 4}}) {
    SCOPED_TRACE(::testing::Message() << "kv_heads=" << kv_heads << " tensor=" << tensor);
    const client::TrainerFunctions functions = Llama(kv_heads);
    const auto session = Open(**cluster, PagedJobOf(functions, ir::DType::kF32, {tensor, 1}));
    ASSERT_NE(session, nullptr);
    const Written written = Write(*session, numbers);
    EXPECT_TRUE(session->Close().ok());
    const auto predict = Open(**cluster, PredictJob(functions, ir::DType::kF32));
    ASSERT_NE(predict, nullptr);
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(written.texts[i].size(), 12u);
      EXPECT_LT(FromWhole(*predict, numbers[i], written, i), 1e-5) << i;
    }
    EXPECT_TRUE(predict->Close().ok());
  }
}

// The largest difference from what the trained forward says of source and text.
double FromPair(Session& session, const generation::Request& request, const Written& written,
                size_t at) {
  std::vector<int32_t> source = request.source;
  source.resize(kSourceTokens);
  std::vector<int32_t> target = written.texts[at];
  target.resize(kPositions);
  const auto answer =
      session.Run("predict", {{"source", Tensor::Of<int32_t>({1, kSourceTokens}, source)},
                              {"target", Tensor::Of<int32_t>({1, kPositions}, target)}});
  EXPECT_TRUE(answer) << answer.error();
  if (!answer) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < written.logits[at].size(); ++i) {
    const auto whole = answer->tensors.at("logits").RealsOfRow(0, static_cast<int64_t>(i));
    for (size_t j = 0; j < whole.size(); ++j) {
      largest = std::max(largest, std::abs(whole[j] - written.logits[at][i][j]));
    }
  }
  return largest;
}

// More requests than rows and too few pages: each has its own source whatever becomes of it.
TEST(PagedSession, TextsHaveSourcesOnEveryLayout) {
  LocalClusterOptions options;
  options.workers = 1;
  options.devices_per_worker = 2;
  auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster) << cluster.error();
  std::vector<generation::Request> requests;
  for (int64_t number = 0; number < 5; ++number) requests.push_back(SourceRequestOf(number));
  const generation::PagedPlan plan = Plan(kSourceTokens);
  for (const Layout& layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 2}}) {
    SCOPED_TRACE(::testing::Message()
                 << "tensor=" << layout.tensor << " pipeline=" << layout.pipeline);
    const auto session = Open(**cluster, PagedJobOf(T5(), ir::DType::kF32, layout, kSourceTokens));
    ASSERT_NE(session, nullptr);
    const Written together = Write(*session, plan, requests);
    EXPECT_GT(together.preemptions, 0);
    for (const size_t i : {size_t{1}, size_t{4}}) {
      const Written alone = Write(*session, plan, {requests[i]});
      EXPECT_EQ(alone.texts[0], together.texts[i]);
      EXPECT_TRUE(alone.logits[0] == together.logits[i]) << i;  // to the last bit
    }
    EXPECT_TRUE(session->Close().ok());
    const auto predict = Open(**cluster, PredictJob(T5(), ir::DType::kF32, kSourceTokens));
    ASSERT_NE(predict, nullptr);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(together.texts[i].size(), 30u);
      EXPECT_LT(FromPair(*predict, requests[i], together, i), 1e-5) << i;
    }
    EXPECT_TRUE(predict->Close().ok());
  }
}

TEST(PagedSession, HalfPrecisionKeepsItsPagesInItToo) {
  LocalClusterOptions options;
  options.workers = 1;
  auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster) << cluster.error();
  const auto session = Open(**cluster, PagedJobOf(Llama(), ir::DType::kBF16, {}));
  ASSERT_NE(session, nullptr);
  const Written together = Write(*session, {0, 1, 2, 3});
  const Written alone = Write(*session, {2});
  EXPECT_TRUE(alone.logits[0] == together.logits[2]);
  EXPECT_TRUE(session->Close().ok());
  const auto predict = Open(**cluster, PredictJob(Llama(), ir::DType::kF32));
  ASSERT_NE(predict, nullptr);
  EXPECT_LT(FromWhole(*predict, 2, together, 2), 0.05);
  EXPECT_TRUE(predict->Close().ok());
}

TEST(PagedJob, RefusesReplicas) {
  ir::JobRequest of = PredictJob(Gpt2(), ir::DType::kF32);
  of.parallel.data = 2;
  const auto job = generation::PagedJob(of, Gpt2(), Plan(), "write");
  ASSERT_FALSE(job);
  EXPECT_THAT(job.error().message(), HasSubstr("parallel.data is 2"));
}

}  // namespace
}  // namespace meshwright::testing::paged
