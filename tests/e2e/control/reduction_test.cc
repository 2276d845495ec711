// Scalars of programs: what the graph makes of the whole batch on every layout, and over several
// batches their sum or, where declared, their mean. The figures are computed here from the rows.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/philox.h"
#include "client/data_files.h"
#include "client/program.h"
#include "client/trainer.h"
#include "data/describe.h"
#include "tests/e2e/control/local_cluster.h"

// A namespace of its own: other tests of this folder have rows, layouts and clusters, too.
namespace meshwright::testing::scalars {
namespace {

using client::Batch;
using client::Builder;
constexpr int64_t kRows = 8;
constexpr int64_t kFeatures = 3;
constexpr int64_t kBatches = 10;

// Of the row, from a seed.
float At(int64_t row, int64_t feature) {
  const uint32_t bits =
      PhiloxBits(3, 5, static_cast<uint64_t>(row), static_cast<uint64_t>(feature));
  return static_cast<float>(static_cast<double>(bits) / 4294967296.0);
}

struct Figures {
  double sum = 0;
  double mean = 0;
};

// Of squares, over rows [0, rows).
Figures FiguresOf(int64_t rows) {
  Figures figures;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < kFeatures; ++i) figures.sum += std::pow(At(row, i), 2);
  }
  figures.mean = figures.sum / static_cast<double>(rows * kFeatures);
  return figures;
}

// The weight is one everywhere.
ValueId GiveOut(Builder& b, ValueId x) {
  const ValueId w = b.Param("w", {kFeatures}, {.init = "ones"});
  const ValueId square = b.AddOne(ir::Op::kMul, {b.AddOne(ir::Op::kMul, {x, x}), w});
  b.SetOutput("sum", b.ReduceSum(square, {0, 1}));
  b.SetOutput("mean", b.ReduceMean(square, {0, 1}), ir::Reduction::kMean);
  return w;
}

Result<ir::JobProgram> Score(const char* input, ir::InputFrom from) {
  return client::MakeProgram("score", {{input, {ir::DType::kF64, {kRows, kFeatures}}, from}},
                             [&](Builder& b, const Batch& in) {
                               GiveOut(b, in.at(input));
                               return OkStatus();
                             },
                             {ir::DType::kF64});
}

// "loss" trains on y and gives the scalars out too.
Result<ir::JobProgram> Trained() {
  return client::TrainedProgram(
      {{"x", {ir::DType::kF64, {kRows, kFeatures}}}, {"y", {ir::DType::kI32, {kRows}}}},
      [](Builder& b, const Batch& in) {
        const ValueId w = GiveOut(b, in.at("x"));
        const ValueId x = b.AddOne(ir::Op::kMul, {in.at("x"), w});
        return b.CrossEntropy(b.Linear(x, "head", 3), in.at("y"));
      },
      {ir::DType::kF64});
}

struct Layout {
  int64_t data = 1;
  int64_t microbatches = 1;
};
constexpr Layout kLayouts[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};

client::JobBuilder Job(const Layout& layout) {
  ir::ParallelSpec parallel;
  parallel.data = layout.data;
  parallel.microbatches = layout.microbatches;
  client::JobBuilder builder("scalars");
  builder.Batch(kRows, 1).DType(ir::DType::kF64).Parallel(parallel).SaveWeights(false);
  return builder;
}

std::unique_ptr<LocalCluster> Cluster() {
  LocalClusterOptions options;
  options.workers = 2;
  auto cluster = LocalCluster::Start(std::move(options));
  EXPECT_TRUE(cluster.has_value()) << cluster.error();
  return cluster.has_value() ? *std::move(cluster) : nullptr;
}

TEST(Scalars, AreThoseOfTheWholeBatchOnEveryLayout) {
  const auto cluster = Cluster();
  ASSERT_NE(cluster, nullptr);
  std::vector<double> x;
  for (int64_t i = 0; i < kRows * kFeatures; ++i) x.push_back(At(i / kFeatures, i % kFeatures));
  const client::Feeds rows = {{"x", client::Tensor::Of<double>({kRows, kFeatures}, x)}};
  client::Feeds labelled = rows;
  labelled["y"] = client::Tensor::Of<int32_t>({kRows}, std::vector<int32_t>(kRows, 1));
  const Figures wanted = FiguresOf(kRows);
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(fmt::format("data={} microbatches={}", layout.data, layout.microbatches));
    const auto job = Job(layout)
                         .Program(*Trained())
                         .Program(*Score("x", ir::InputFrom::kClient))
                         .DrivenByClient()
                         .Build();
    ASSERT_TRUE(job.has_value()) << job.error();
    const auto session = cluster->client().OpenSession(*job);
    ASSERT_TRUE(session.has_value()) << session.error();
    // The step comes last: it changes no weight of these before they are read.
    for (const auto& [program, feeds] :
         {std::pair("score", rows), std::pair("eval", labelled), std::pair("step", labelled)}) {
      const auto answer = (*session)->Run(program, feeds);
      ASSERT_TRUE(answer.has_value()) << program << ": " << answer.error();
      EXPECT_NEAR(answer->values.at("sum"), wanted.sum, 1e-10) << program;
      EXPECT_NEAR(answer->values.at("mean"), wanted.mean, 1e-10) << program;
    }
    EXPECT_TRUE((*session)->Close().ok());
  }
}

std::string Npy(int64_t rows) {
  std::string header = fmt::format(
      "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, kFeatures);
  header.resize(117, ' ');
  std::string bytes = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n";
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < kFeatures; ++i) {
      const float value = At(row, i);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  return bytes;
}

Result<ir::DataSpec> Rows(LocalCluster& cluster) {
  MW_TRY(WriteFileAtomic(cluster.File("x.npy"), Npy(kRows * kBatches)));
  data::FilesRequest files;
  files.stream = "rows";
  files.format = "npy";
  files.paths = {"x=" + cluster.File("x.npy")};
  files.validation_paths = files.paths;
  MW_ASSIGN_OR_RETURN(ir::DataStream stream, data::DescribeFiles(files));
  MW_ASSIGN_OR_RETURN(client::SentData sent, client::SendData(cluster.client(), {stream}));
  return std::move(sent.spec);
}

TEST(Scalars, AnEvaluationAddsSumsAndAveragesMeansOverItsBatches) {
  const auto cluster = Cluster();
  ASSERT_NE(cluster, nullptr);
  const auto data = Rows(*cluster);
  ASSERT_TRUE(data.has_value()) << data.error();
  const Figures wanted = FiguresOf(kRows * kBatches);
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(fmt::format("data={} microbatches={}", layout.data, layout.microbatches));
    const auto job = Job(layout)
                         .Data(*data)
                         .Program(*Score("rows/x", ir::InputFrom::kData))
                         .Driver({ir::DriverKind::kEvaluate, "score", kBatches, 0})
                         .Build();
    ASSERT_TRUE(job.has_value()) << job.error();
    const auto id = cluster->client().Submit(*job);
    ASSERT_TRUE(id.has_value()) << id.error();
    std::map<std::string, double> values;
    const auto info = cluster->client().Watch(
        *id,
        [&](const client::JobUpdate& update) {
          if (!update.steps.empty()) values = update.steps.back().values;
          return true;
        },
        60'000);
    ASSERT_TRUE(info.has_value()) << info.error();
    ASSERT_EQ(info->state, client::JobState::kSucceeded) << info->message;
    EXPECT_NEAR(values.at("sum"), wanted.sum, 1e-10);
    EXPECT_NEAR(values.at("mean"), wanted.mean, 1e-10);
  }
}

}  // namespace
}  // namespace meshwright::testing::scalars
