// Data that host actors make: a job trains on rows of the actor "points" of tests/e2e/actor_worker
// as on a file of the same rows, on every layout; what goes wrong with the actor ends the job, by
// name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "client/data_files.h"
#include "client/program.h"
#include "client/trainer.h"
#include "data/describe.h"
#include "data/order.h"
#include "tests/e2e/actor_worker/points.h"
#include "tests/e2e/control/local_cluster.h"

namespace meshwright::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 8;
constexpr int64_t kSteps = 20;
constexpr int64_t kValidationRows = 12;
constexpr uint64_t kSeed = 3;

std::unique_ptr<LocalCluster> ClusterOfActors(bool with_actors = true) {
  LocalClusterOptions options;
  options.devices_per_worker = 2;
  if (with_actors) {
    options.host_actors.types = {"points"};
    options.host_actors.command = {MESHWRIGHT_ACTOR_WORKER, "host-actors"};
  }
  auto cluster = LocalCluster::Start(std::move(options));
  EXPECT_TRUE(cluster.has_value()) << cluster.error();
  return cluster.has_value() ? *std::move(cluster) : nullptr;
}

ir::DataStream OfAnActor(const std::string& args = "") {
  ir::DataStream stream;
  stream.name = "points";
  stream.kind = ir::DataKind::kRecords;
  stream.fields = {{"x", ir::Element::kF32, {points::kFeatures}, {}, {}},
                   {"label", ir::Element::kI32, {}, {}, {}}};
  stream.actor.type = "points";
  stream.actor.args = args;
  stream.actor.validation_rows = kValidationRows;
  return stream;
}

// An .npy file of `records` items.
std::string Npy(const std::string& descr, const std::string& dims, const std::string& bytes) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, dims);
  header.resize((header.size() + 10 + 64) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  return text + header + bytes;
}

// Files whose record at place(n) is row n.
void Write(LocalCluster& cluster, const std::string& prefix, int64_t records,
           const std::function<int64_t(int64_t)>& place) {
  std::string x(static_cast<size_t>(records) * sizeof(points::Features), '\0');
  std::string label(static_cast<size_t>(records) * sizeof(int32_t), '\0');
  for (int64_t n = 0; n < records; ++n) {
    const points::Features features = points::FeaturesOf(kSeed, n / kBatch, n % kBatch);
    const int32_t of = points::LabelOf(features);
    const auto at = static_cast<size_t>(place(n));
    std::memcpy(x.data() + at * sizeof features, features.data(), sizeof features);
    std::memcpy(label.data() + at * sizeof of, &of, sizeof of);
  }
  ASSERT_TRUE(WriteFileAtomic(cluster.File(prefix + "x.npy"),
                              Npy("<f4", fmt::format("{}, {}", records, points::kFeatures), x))
                  .ok());
  ASSERT_TRUE(WriteFileAtomic(cluster.File(prefix + "label.npy"),
                              Npy("<i4", fmt::format("{},", records), label))
                  .ok());
}

// One epoch, in which every step reads the rows that the actor makes for it.
Result<ir::DataSpec> OfAFile(LocalCluster& cluster) {
  constexpr int64_t kRecords = kBatch * kSteps;
  const uint64_t key = data::EpochBits(kSeed, 0, "data/record");
  Write(cluster, "", kRecords, [&](int64_t n) { return data::PermutedIndex(n, kRecords, key); });
  Write(cluster, "v-", kValidationRows, [](int64_t n) { return n; });
  data::FilesRequest files;
  files.stream = "points";
  files.format = "npy";
  files.paths = {"x=" + cluster.File("x.npy"), "label=" + cluster.File("label.npy")};
  files.validation_paths = {"x=" + cluster.File("v-x.npy"), "label=" + cluster.File("v-label.npy")};
  MW_ASSIGN_OR_RETURN(ir::DataStream stream, data::DescribeFiles(files));
  MW_ASSIGN_OR_RETURN(client::SentData sent, client::SendData(cluster.client(), {stream}));
  return std::move(sent.spec);
}

Result<ir::JobRequest> Classifier(ir::DataSpec data, ir::ParallelSpec parallel) {
  const std::vector<client::InputSpec> rows = {
      {"points/x", {ir::DType::kF64, {kBatch, points::kFeatures}}, ir::InputFrom::kData},
      {"points/label", {ir::DType::kI32, {kBatch}}, ir::InputFrom::kData}};
  const auto loss = [](client::Builder& b, const client::Batch& in) {
    const ValueId hidden = b.Gelu(b.Linear(in.at("points/x"), "up", 8));
    return b.CrossEntropy(b.Linear(hidden, "head", 4), in.at("points/label"));
  };
  MW_ASSIGN_OR_RETURN(ir::JobProgram program,
                      client::TrainedProgram(rows, loss, {ir::DType::kF64}));
  ir::TrainSpec train;
  train.global_batch = kBatch;
  train.steps = kSteps;
  train.seed = kSeed;
  train.validate_every = 10;
  train.validation_batches = 3;
  ir::OptimizerSpec optimizer;
  optimizer.lr = 0.05;
  return client::JobBuilder("points")
      .Train(train)
      .DType(ir::DType::kF64)
      .Optimizer(optimizer)
      .Data(std::move(data))
      .Parallel(parallel)
      .Program(std::move(program))
      .SaveWeights(false)
      .Build();
}

ir::ParallelSpec Layout(int64_t data, int64_t tensor) {
  ir::ParallelSpec parallel;
  parallel.data = data;
  parallel.tensor = tensor;
  return parallel;
}

struct Losses {
  std::vector<double> training, validation;
};

Result<Losses> Train(LocalCluster& cluster, ir::DataSpec data, ir::ParallelSpec parallel) {
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, Classifier(std::move(data), parallel));
  MW_ASSIGN_OR_RETURN(const int64_t id, cluster.client().Submit(job));
  Losses losses;
  MW_ASSIGN_OR_RETURN(const client::JobInfo info,
                      cluster.client().Watch(
                          id,
                          [&](const client::JobUpdate& update) {
                            for (const client::StepMetrics& step : update.steps) {
                              losses.training.push_back(step.loss);
                              if (std::isnan(step.validation_loss)) continue;
                              losses.validation.push_back(step.validation_loss);
                            }
                            return true;
                          },
                          60'000));
  if (info.state == proto::JobState::kSucceeded) return losses;
  return Fail(Aborted(info.message));
}

TEST(ActorData, TrainsAsAFileOfTheSameRowsOnEveryLayout) {
  const auto cluster = ClusterOfActors();
  ASSERT_NE(cluster, nullptr);
  const auto file = OfAFile(*cluster);
  ASSERT_TRUE(file.has_value()) << file.error();
  const auto wanted = Train(*cluster, *file, Layout(1, 1));
  ASSERT_TRUE(wanted.has_value()) << wanted.error();
  ASSERT_EQ(wanted->training.size(), static_cast<size_t>(kSteps));
  EXPECT_FALSE(wanted->validation.empty());
  EXPECT_LT(wanted->training.back(), wanted->training.front());
  ir::DataSpec made;
  made.streams = {OfAnActor()};
  for (const auto& [data, tensor] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    SCOPED_TRACE(::testing::Message() << "data=" << data << " tensor=" << tensor);
    const auto losses = Train(*cluster, made, Layout(data, tensor));
    ASSERT_TRUE(losses.has_value()) << losses.error();
    ASSERT_EQ(losses->training.size(), wanted->training.size());
    ASSERT_EQ(losses->validation.size(), wanted->validation.size());
    for (size_t i = 0; i < wanted->training.size(); ++i) {
      EXPECT_NEAR(losses->training[i], wanted->training[i], 1e-10) << i;
    }
    for (size_t i = 0; i < wanted->validation.size(); ++i) {
      EXPECT_NEAR(losses->validation[i], wanted->validation[i], 1e-10) << i;
    }
  }
}

TEST(ActorData, WhatBecomesOfTheActorEndsTheJobWithItsCause) {
  const auto cluster = ClusterOfActors();
  ASSERT_NE(cluster, nullptr);
  const auto fails = [&](ir::DataStream stream) {
    ir::DataSpec data;
    data.streams = {std::move(stream)};
    const auto losses = Train(*cluster, data, Layout(2, 1));
    EXPECT_FALSE(losses.has_value());
    return losses.has_value() ? "" : losses.error().message();
  };
  EXPECT_THAT(fails(OfAnActor("fail 4")),
              AllOf(HasSubstr("stream 'points': rows "), HasSubstr("of step 4"),
                    HasSubstr("the points ran out")));
  EXPECT_THAT(fails(OfAnActor("crash 4")), HasSubstr("killed by signal 6"));
  ir::DataStream kept = OfAnActor("keep 4");
  kept.actor.deadline_ms = 300;
  EXPECT_THAT(fails(kept), AllOf(HasSubstr("of step 4"), HasSubstr("300 ms")));
  EXPECT_THAT(fails(OfAnActor("nonsense")), HasSubstr("'nonsense' is no 'FATE STEP'"));
  ir::DataStream unknown = OfAnActor();
  unknown.actor.type = "oracle";
  EXPECT_THAT(fails(unknown), AllOf(HasSubstr("no actor type 'oracle'"), HasSubstr("points")));
  ir::DataStream narrow = OfAnActor();
  narrow.fields[1].element = ir::Element::kI64;
  EXPECT_THAT(fails(narrow), HasSubstr("the actor 'points' answered ["));
}

TEST(ActorData, AWorkerWithoutActorsSaysSo) {
  const auto cluster = ClusterOfActors(false);
  ASSERT_NE(cluster, nullptr);
  ir::DataSpec data;
  data.streams = {OfAnActor()};
  const auto losses = Train(*cluster, data, Layout(1, 1));
  ASSERT_FALSE(losses.has_value());
  EXPECT_THAT(losses.error().message(),
              AllOf(HasSubstr("stream 'points' of actor 'points'"), HasSubstr("no host actors")));
}

TEST(ActorData, ASpecThatContradictsItselfIsRefused) {
  ir::DataSpec data;
  data.streams = {OfAnActor()};
  EXPECT_TRUE(ir::CheckDataSpec(data).ok());
  data.streams[0].actor.validation_rows = -1;
  EXPECT_FALSE(ir::CheckDataSpec(data).ok());
  data.streams[0] = OfAnActor();
  data.streams[0].actor.deadline_ms = 0;
  EXPECT_FALSE(ir::CheckDataSpec(data).ok());
  data.streams[0] = OfAnActor();
  data.streams[0].files.resize(1);
  EXPECT_THAT(ir::CheckDataSpec(data).message(), HasSubstr("leave one out"));
}

}  // namespace
}  // namespace meshwright::testing
