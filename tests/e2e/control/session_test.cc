// Sessions: a client that drives a job on real workers, and asks one that trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "client/program.h"
#include "client/trainer.h"
#include "tests/e2e/control/local_cluster.h"

namespace meshwright::testing {
namespace {

using client::Answer;
using client::Batch;
using client::Builder;
using client::Feeds;
using client::InputSpec;
using client::Session;
using client::Tensor;
using ::testing::HasSubstr;

constexpr int64_t kRows = 8;
constexpr int64_t kFeatures = 4;
constexpr int64_t kClasses = 3;

// Two linear layers in f64, trained by what the client feeds; "logits" answers for the same
// weights.
ir::JobRequest Classifier(int64_t data, int64_t tensor) {
  const std::vector<InputSpec> inputs = {{"x", {ir::DType::kF64, {kRows, kFeatures}}},
                                         {"y", {ir::DType::kI32, {kRows}}}};
  const auto logits = [](Builder& b, ValueId x) {
    return b.Linear(b.Gelu(b.Linear(x, "up", 8)), "head", kClasses);
  };
  const client::ProgramOptions f64{.dtype = ir::DType::kF64};
  auto loss = client::TrainedProgram(
      inputs,
      [&](Builder& b, const Batch& in) {
        return b.CrossEntropy(logits(b, in.at("x")), in.at("y"));
      },
      f64);
  auto predict = client::MakeProgram(
      "predict", {inputs[0]},
      [&](Builder& b, const Batch& in) {
        b.SetOutput("logits", logits(b, in.at("x")));
        return OkStatus();
      },
      f64);
  EXPECT_TRUE(loss.has_value()) << loss.error();
  EXPECT_TRUE(predict.has_value()) << predict.error();
  ir::ParallelSpec parallel;
  parallel.data = data;
  parallel.tensor = tensor;
  ir::OptimizerSpec optimizer;
  optimizer.lr = 0.05;
  optimizer.weight_decay = 0;
  client::JobBuilder builder("classifier");
  builder.Batch(kRows, 1)
      .DType(ir::DType::kF64)
      .Parallel(parallel)
      .Optimizer(optimizer)
      .Program(*std::move(loss))
      .Program(*std::move(predict))
      .Driver({ir::DriverKind::kClient, "", 0, 0})
      .SaveWeights(false);
  auto job = builder.Build();
  EXPECT_TRUE(job.has_value()) << job.error();
  return job.has_value() ? *job : ir::JobRequest{};
}

// The class is the largest of the first three features.
Feeds RowsOf(int64_t step) {
  std::vector<double> x;
  std::vector<int32_t> y;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kFeatures; ++i) {
      const uint32_t bits =
          PhiloxBits(3, 5, static_cast<uint64_t>(step * kRows + row), static_cast<uint64_t>(i));
      x.push_back(static_cast<double>(bits) / 4294967296.0 - 0.5);
    }
    const auto first = x.end() - kFeatures;
    y.push_back(static_cast<int32_t>(std::max_element(first, first + kClasses) - first));
  }
  return {{"x", Tensor::Of<double>({kRows, kFeatures}, x)}, {"y", Tensor::Of<int32_t>({kRows}, y)}};
}

std::unique_ptr<Session> Open(LocalCluster& cluster, const ir::JobRequest& job) {
  auto session = cluster.client().OpenSession(job);
  EXPECT_TRUE(session.has_value()) << session.error();
  return session.has_value() ? *std::move(session) : nullptr;
}

struct Learned {
  std::vector<double> losses;
  std::vector<double> logits;
};

Learned Learn(Session& session, int64_t steps) {
  Learned learned;
  std::vector<std::future<Result<Answer>>> under_way;
  for (int64_t step = 0; step < steps; ++step) {
    under_way.push_back(session.Call("step", RowsOf(step)));
  }
  for (auto& future : under_way) {
    const Result<Answer> answer = future.get();
    EXPECT_TRUE(answer.has_value()) << answer.error();
    if (answer.has_value()) learned.losses.push_back(answer->values.at("loss"));
  }
  Feeds feeds = RowsOf(1000);
  feeds.erase("y");
  const Result<Answer> answer = session.Run("predict", feeds);
  EXPECT_TRUE(answer.has_value()) << answer.error();
  if (answer.has_value()) learned.logits = answer->tensors.at("logits").Values<double>();
  return learned;
}

TEST(Sessions, AClassifierLearnsTheSameOnEveryLayout) {
  LocalClusterOptions options;
  options.workers = 2;
  options.devices_per_worker = 2;
  auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  std::vector<Learned> runs;
  for (const auto& [data, tensor] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    SCOPED_TRACE(::testing::Message() << "data=" << data << " tensor=" << tensor);
    const auto session = Open(**cluster, Classifier(data, tensor));
    ASSERT_NE(session, nullptr);
    runs.push_back(Learn(*session, 40));
    EXPECT_TRUE(session->Close().ok());
    const auto info = (*cluster)->client().Wait(session->job_id(), 20'000);
    ASSERT_TRUE(info.has_value()) << info.error();
    EXPECT_EQ(info->state, client::JobState::kSucceeded) << info->message;
  }
  ASSERT_EQ(runs[0].losses.size(), 40u);
  EXPECT_LT(runs[0].losses.back(), 0.7 * runs[0].losses.front());
  ASSERT_EQ(runs[0].logits.size(), static_cast<size_t>(kRows * kClasses));
  for (const Learned& run : runs) {
    ASSERT_EQ(run.losses.size(), 40u);
    for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(run.losses[i], runs[0].losses[i], 1e-10) << i;
    ASSERT_EQ(run.logits.size(), runs[0].logits.size());
    for (size_t i = 0; i < run.logits.size(); ++i) {
      EXPECT_NEAR(run.logits[i], runs[0].logits[i], 1e-9) << i;
    }
  }
}

// "encode" and "decode", and what they do as one program, on the weights of a classifier.
ir::JobRequest TwoParts(int64_t data, int64_t tensor) {
  ir::JobRequest job = Classifier(data, tensor);
  const client::ProgramOptions f64{.dtype = ir::DType::kF64};
  const InputSpec x = {"x", {ir::DType::kF64, {kRows, kFeatures}}};
  const auto encode = [](Builder& b, ValueId in) { return b.Gelu(b.Linear(in, "up", 8)); };
  const auto add = [&](Result<ir::JobProgram> program) {
    EXPECT_TRUE(program.has_value()) << program.error();
    if (program.has_value()) job.programs.push_back(*std::move(program));
  };
  add(client::MakeProgram(
      "encode", {x},
      [&](Builder& b, const Batch& in) {
        b.SetOutput("hidden", encode(b, in.at("x")));
        return OkStatus();
      },
      f64));
  // Twice, so that a program in the middle both reads and is read.
  add(client::MakeProgram(
      "shift", {client::OutputOf("h", {ir::DType::kF64, {kRows, 8}}, "encode", "hidden")},
      [&](Builder& b, const Batch& in) {
        b.SetOutput("shifted", b.Gelu(in.at("h")));
        return OkStatus();
      },
      f64));
  add(client::MakeProgram(
      "decode",
      {client::OutputOf("h", {ir::DType::kF64, {kRows, 8}}, "encode", "hidden"),
       client::OutputOf("s", {ir::DType::kF64, {kRows, 8}}, "shift", "shifted")},
      [&](Builder& b, const Batch& in) {
        b.SetOutput("logits",
                    b.Linear(b.AddOne(ir::Op::kAdd, {in.at("h"), in.at("s")}), "head", kClasses));
        return OkStatus();
      },
      f64));
  add(client::MakeProgram(
      "whole", {x},
      [&](Builder& b, const Batch& in) {
        const ValueId h = encode(b, in.at("x"));
        b.SetOutput("logits", b.Linear(b.AddOne(ir::Op::kAdd, {h, b.Gelu(h)}), "head", kClasses));
        return OkStatus();
      },
      f64));
  return job;
}

TEST(Sessions, AProgramReadsWhatAnotherGaveOutOnEveryLayout) {
  LocalClusterOptions options;
  options.workers = 2;
  options.devices_per_worker = 2;
  auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  std::vector<double> on_one;
  client::CallOptions no_fetch;
  no_fetch.fetch = client::Fetch::kNothing;
  for (const auto& [data, tensor] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    SCOPED_TRACE(::testing::Message() << "data=" << data << " tensor=" << tensor);
    const auto session = Open(**cluster, TwoParts(data, tensor));
    ASSERT_NE(session, nullptr);
    const auto early = session->Run("decode", {});
    ASSERT_FALSE(early.has_value());
    EXPECT_THAT(early.error().message(), HasSubstr("call 'encode' first"));
    Learn(*session, 3);
    for (int64_t round = 0; round < 3; ++round) {
      const Feeds rows = {{"x", RowsOf(round).at("x")}};
      // Nothing comes back, and nothing is sent again.
      ASSERT_TRUE(session->Run("encode", rows, no_fetch).has_value());
      ASSERT_TRUE(session->Run("shift", {}, no_fetch).has_value());
      const auto parts = session->Run("decode", {});
      const auto whole = session->Run("whole", rows);
      ASSERT_TRUE(parts.has_value()) << parts.error();
      ASSERT_TRUE(whole.has_value()) << whole.error();
      const auto logits = parts->tensors.at("logits").Values<double>();
      const auto expected = whole->tensors.at("logits").Values<double>();
      ASSERT_EQ(logits.size(), expected.size());
      for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-10) << i;
      if (round < 2) continue;
      if (on_one.empty()) on_one = logits;
      for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], on_one[i], 1e-9) << i;
    }
    // A step between the two does not touch it.
    const auto before = session->Run("decode", {});
    ASSERT_TRUE(session->Run("eval", RowsOf(7)).has_value());
    const auto after = session->Run("decode", {});
    ASSERT_TRUE(before.has_value() && after.has_value());
    EXPECT_EQ(before->tensors.at("logits").data, after->tensors.at("logits").data);
    EXPECT_TRUE(session->Close().ok());
  }
}

TEST(Sessions, WhatWasAskedIsAnsweredBeforeASessionCloses) {
  auto cluster = LocalCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto session = Open(**cluster, Classifier(1, 1));
  ASSERT_NE(session, nullptr);
  std::vector<std::future<Result<client::Answer>>> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(session->Call("step", RowsOf(i)));
  EXPECT_TRUE(session->Close().ok());
  for (size_t i = 0; i < calls.size(); ++i) {
    const Result<client::Answer> answer = calls[i].get();
    ASSERT_TRUE(answer.has_value()) << i << ": " << answer.error();
    EXPECT_EQ(answer->step, static_cast<int64_t>(i));
  }
  EXPECT_FALSE(session->Call("step", RowsOf(0)).get().has_value());
}

TEST(Sessions, WhoDoesNotWaitLongerLeavesNoJobInTheQueue) {
  auto cluster = LocalCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto holder = Open(**cluster, Classifier(2, 1));
  ASSERT_NE(holder, nullptr);
  const auto session = (*cluster)->client().OpenSession(Classifier(2, 1), {.open_timeout_ms = 200});
  ASSERT_FALSE(session.has_value());
  EXPECT_EQ(session.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(session.error().message(), HasSubstr("is cancelled"));
  const auto jobs = (*cluster)->client().List();
  ASSERT_TRUE(jobs.has_value()) << jobs.error();
  ASSERT_EQ(jobs->size(), 2u);
  const auto info = (*cluster)->client().Wait(std::max((*jobs)[0].id, (*jobs)[1].id), 20'000);
  ASSERT_TRUE(info.has_value()) << info.error();
  EXPECT_EQ(info->state, client::JobState::kCancelled) << info->message;
}

// One that only looks leaves the job to the client that drives it.
TEST(Sessions, WhoAttachesAndClosesEndsNothing) {
  auto cluster = LocalCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto owner = Open(**cluster, Classifier(1, 1));
  ASSERT_NE(owner, nullptr);
  Learn(*owner, 1);
  const auto guest = (*cluster)->client().AttachSession(owner->job_id());
  ASSERT_TRUE(guest.has_value()) << guest.error();
  EXPECT_TRUE((*guest)->Run("eval", RowsOf(7)).has_value());
  EXPECT_TRUE((*guest)->Close().ok());
  const auto next = owner->Run("step", RowsOf(1));
  EXPECT_TRUE(next.has_value()) << next.error();
  EXPECT_TRUE(owner->Close().ok());
  const auto info = (*cluster)->client().Wait(owner->job_id(), 20'000);
  ASSERT_TRUE(info.has_value()) << info.error();
  EXPECT_EQ(info->state, client::JobState::kSucceeded) << info->message;
}

TEST(Sessions, StateIsReadAndWrittenByNameWhateverTheLayout) {
  LocalClusterOptions options;
  options.workers = 2;
  auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto session = Open(**cluster, Classifier(1, 2));
  ASSERT_NE(session, nullptr);
  Learn(*session, 3);
  auto state = session->ReadState();
  ASSERT_TRUE(state.has_value()) << state.error();
  ASSERT_TRUE(state->contains("up.weight"));
  EXPECT_EQ(state->at("up.weight").type.ToString(), "f64[4,8]");
  const auto moments = session->ReadState({"opt.m/up.weight"});
  ASSERT_TRUE(moments.has_value()) << moments.error();
  const Learned before = Learn(*session, 0);
  std::map<std::string, Tensor> zeros = *state;
  for (auto& [name, tensor] : zeros)
    std::fill(tensor.data.begin(), tensor.data.end(), std::byte{0});
  ASSERT_TRUE(session->WriteState(zeros).ok());
  EXPECT_THAT(Learn(*session, 0).logits, ::testing::Each(0.0));
  ASSERT_TRUE(session->WriteState(*state).ok());
  EXPECT_EQ(Learn(*session, 0).logits, before.logits);
  const Status refused = session->WriteState({{"up.weight", Tensor::Of<double>({1}, {1.0})}});
  EXPECT_THAT(refused.message(), HasSubstr("\"up.weight\" is f64[1]; it must be f64[4,8]"));
  EXPECT_TRUE(session->Close().ok());
}

// More than a message holds, both ways, over two workers.
TEST(Sessions, CallsBringAndGiveOutManyMegabytes) {
  constexpr int64_t kWide = int64_t{1} << 19;
  constexpr int64_t kMany = 8;  // rows: 16 MiB
  auto cluster = LocalCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const InputSpec x = {"x", {ir::DType::kF32, {kMany, kWide}}};
  const auto twice = client::MakeProgram("twice", {x}, [&](Builder& b, const Batch& in) {
    b.SetOutput("y", b.AddOne(ir::Op::kAdd, {in.at("x"), in.at("x")}));
    return OkStatus();
  });
  ASSERT_TRUE(twice.has_value()) << twice.error();
  const InputSpec too_many = {"x", {ir::DType::kF32, {kMany, 8 * kWide}}};
  const auto large = client::MakeProgram("large", {too_many}, [&](Builder& b, const Batch& in) {
    b.SetOutput("y", b.AddOne(ir::Op::kAdd, {in.at("x"), in.at("x")}));
    return OkStatus();
  });
  ASSERT_TRUE(large.has_value()) << large.error();
  ir::ParallelSpec parallel;
  parallel.data = 2;
  client::JobBuilder builder("bulk");
  const auto job = builder.Batch(kMany, 1)
                       .Parallel(parallel)
                       .Program(*twice)
                       .Program(*large)
                       .Driver({ir::DriverKind::kClient, "", 0, 0})
                       .SaveWeights(false)
                       .Build();
  ASSERT_TRUE(job.has_value()) << job.error();
  const auto session = Open(**cluster, *job);
  ASSERT_NE(session, nullptr);
  for (int round = 0; round < 2; ++round) {
    std::vector<float> values(static_cast<size_t>(kMany * kWide));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 1000 + static_cast<size_t>(round));
    }
    const auto answer = session->Run("twice", {{"x", Tensor::Of<float>({kMany, kWide}, values)}});
    ASSERT_TRUE(answer.has_value()) << answer.error();
    for (float& value : values) value *= 2;
    EXPECT_EQ(answer->tensors.at("y").Values<float>(), values);
  }
  const std::vector<float> zeros(static_cast<size_t>(8 * kMany * kWide));
  const auto refused = session->Run("large", {{"x", Tensor::Of<float>({kMany, 8 * kWide}, zeros)}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("134217728 bytes, of which one message takes"));
  const std::vector<float> ones(static_cast<size_t>(kMany * kWide), 1.0F);
  EXPECT_TRUE(session->Run("twice", {{"x", Tensor::Of<float>({kMany, kWide}, ones)}}).has_value());
}

TEST(Sessions, BadFeedsAreErrorsThatNameTheInputAndTheSessionGoesOn) {
  auto cluster = LocalCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto session = Open(**cluster, Classifier(1, 1));
  ASSERT_NE(session, nullptr);
  const auto message = [&](const Feeds& feeds) {
    const auto answer = session->Run("step", feeds);
    return answer.has_value() ? std::string() : answer.error().message();
  };
  Feeds feeds = RowsOf(0);
  feeds.emplace("z", feeds.at("x"));
  EXPECT_THAT(message(feeds), HasSubstr("no input \"z\""));
  feeds = RowsOf(0);
  feeds.at("x") = Tensor::Of<double>({1}, {1.0});
  EXPECT_THAT(message(feeds), HasSubstr("input \"x\" is f64[1]; it must be f64[8,4]"));
  feeds.erase("y");
  feeds.at("x") = RowsOf(0).at("x");
  EXPECT_THAT(message(feeds), HasSubstr("input \"y\""));
  EXPECT_EQ(message(RowsOf(0)), "");
}

TEST(Sessions, AJobThatTrainsAnswersBetweenItsSteps) {
  auto cluster = LocalCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  ir::JobRequest job = ByteJob(2, 1, 1'000'000);
  client::TrainerFunctions functions;
  const auto id = (*cluster)->Submit(job, SampleBytes(20'000));
  ASSERT_TRUE(id.has_value()) << id.error();
  const auto session = (*cluster)->client().AttachSession(*id);
  ASSERT_TRUE(session.has_value()) << session.error();
  for (int i = 0; i < 3; ++i) {
    const auto answer = (*session)->Run("eval", {});
    ASSERT_TRUE(answer.has_value()) << answer.error();
    EXPECT_GT(answer->values.at("loss_sum") / answer->values.at("count"), 0);
  }
  EXPECT_TRUE((*cluster)->client().Cancel(*id).ok());
  const auto gone = (*session)->Run("eval", {});
  ASSERT_FALSE(gone.has_value());
  EXPECT_THAT(gone.error().message(), HasSubstr("cancelled"));
}

TEST(Sessions, AJobOutlivesItsClientForItsGraceTimeOnly) {
  auto cluster = LocalCluster::Start({});
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  ir::JobRequest job = Classifier(1, 1);
  job.driver.grace_s = 3600;
  int64_t id = 0;
  {
    const auto first = Open(**cluster, job);
    ASSERT_NE(first, nullptr);
    Learn(*first, 2);
    id = first->job_id();
  }
  const auto second = (*cluster)->client().AttachSession(id);
  ASSERT_TRUE(second.has_value()) << second.error();
  const auto answer = (*second)->Run("step", RowsOf(2));
  ASSERT_TRUE(answer.has_value()) << answer.error();
  EXPECT_EQ(answer->step, 2) << "the calls of both are counted";
  EXPECT_TRUE((*second)->Close({.end_job = true}).ok());
  const auto info = (*cluster)->client().Wait(id, 20'000);
  ASSERT_TRUE(info.has_value()) << info.error();
  EXPECT_EQ(info->state, client::JobState::kSucceeded) << info->message;
  EXPECT_FALSE((*cluster)->client().AttachSession(id).has_value());
}

}  // namespace
}  // namespace meshwright::testing
