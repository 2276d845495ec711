// A job that reads records of two arrays from files: trained alike on every layout, each row once
// an epoch, features and labels together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "base/philox.h"
#include "data/describe.h"
#include "data/identity.h"
#include "data/roots.h"
#include "ir/builder.h"
#include "tests/virtual/run_job.h"
#include "worker/data_feed.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kRecordRows = 37;
constexpr int64_t kPointFeatures = 4;
constexpr int64_t kPointClasses = 3;
constexpr int64_t kRecordBatch = 8;

template <typename T>
void WriteNpy(const std::string& path, const char* descr, const std::string& shape,
              const std::vector<T>& values) {
  const std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}\n", descr, shape);
  std::ofstream file(path, std::ios::binary);
  file << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(dict.size()) << '\0' << dict;
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

// Points whose class is the largest of three sums, as f64 features and u8 labels.
ir::DataStream WritePoints(const TempDir& dir) {
  std::vector<double> x;
  std::vector<uint8_t> labels;
  for (int64_t row = 0; row < kRecordRows; ++row) {
    double best = -1e9;
    uint8_t label = 0;
    for (int64_t f = 0; f < kPointFeatures; ++f) {
      x.push_back(PhiloxNormal(3, 1, static_cast<uint64_t>(row * kPointFeatures + f)));
      if (f < kPointClasses && x.back() > best) {
        best = x.back();
        label = static_cast<uint8_t>(f);
      }
    }
    labels.push_back(label);
  }
  WriteNpy(dir.File("x.npy"), "<f8", fmt::format("({}, {})", kRecordRows, kPointFeatures), x);
  WriteNpy(dir.File("label.npy"), "|u1", fmt::format("({},)", kRecordRows), labels);
  data::FilesRequest request;
  request.stream = "points";
  request.format = "npy";
  request.paths = {dir.path()};
  request.validation_fraction = 0.25;
  auto stream = data::DescribeFiles(request);
  EXPECT_TRUE(stream.has_value()) << stream.error();
  return stream.value_or(ir::DataStream());
}

ir::JobRequest Classifier(ir::DataStream points) {
  ir::Builder b("classifier");
  const auto param = [&](const char* name, ir::Dims dims) {
    return b.AddOne(ir::Op::kParam, {}, {{"name", name}, {"init", "normal"}, {"std", 0.5}},
                    {{ir::DType::kF32, std::move(dims)}});
  };
  const ValueId x = b.AddOne(ir::Op::kFeed, {}, {{"source", "points/x"}},
                             {{ir::DType::kF32, {kRecordBatch, kPointFeatures}}});
  const ValueId label = b.AddOne(ir::Op::kFeed, {}, {{"source", "points/label"}},
                                 {{ir::DType::kI32, {kRecordBatch}}});
  b.SetLayer(0);
  const ValueId hidden =
      b.AddOne(ir::Op::kGelu, {b.AddOne(ir::Op::kEinsum, {x, param("up", {kPointFeatures, 8})},
                                        {{"equation", "bf,fh->bh"}})});
  b.SetLayer(1);
  const ValueId logits = b.AddOne(ir::Op::kEinsum, {hidden, param("head", {8, kPointClasses})},
                                  {{"equation", "bh,hv->bv"}});
  const std::vector<ValueId> loss = b.Add(ir::Op::kCrossEntropy, {logits, label});
  b.SetOutput("loss_sum", loss[0]);
  b.SetOutput("count", loss[1]);
  ir::JobRequest job;
  job.name = "classifier";
  job.SetLoss(b.Finish().value());
  job.data.streams = {std::move(points)};
  job.train.global_batch = kRecordBatch;
  job.train.steps = 100;
  job.train.seed = 5;
  job.optimizer.lr = 0.05;
  job.optimizer.warmup_steps = 0;
  return job;
}

class RecordsParity : public ::testing::Test {
 protected:
  std::unique_ptr<worker::DataFeed> OpenFeed(const ir::JobRequest& job) {
    ir::DataSpec data = job.data;
    for (ir::FileRef& file : data.streams[0].files) {
      file.root = "d";
      file.path = file.blob.name.substr(dir_.path().size() + 1);
      const auto fd = data::OpenLocal(file);
      file.sampled = data::SampledHash(fd->get(), file.blob.size_bytes, file.path).value();
    }
    const worker::FeedTypes types = {{"points/x", ir::DType::kF32},
                                     {"points/label", ir::DType::kI32},
                                     {"validation:points/x", ir::DType::kF32},
                                     {"validation:points/label", ir::DType::kI32}};
    auto feed = worker::DataFeed::Open(data, {1, job.train.seed, 0}, types, {nullptr, &roots_, {}});
    EXPECT_TRUE(feed.has_value()) << feed.error();
    return feed.has_value() ? std::move(*feed) : nullptr;
  }

  TempDir dir_ = *TempDir::Make();
  data::Roots roots_ = *data::Roots::Open({{"d", dir_.path()}});
};

TEST_F(RecordsParity, EveryLayoutTrainsOnTheSameRows) {
  const ir::JobRequest job = Classifier(WritePoints(dir_));
  const Status valid = ir::ValidateJob(job);
  ASSERT_TRUE(valid.ok()) << valid;
  const auto run = [&](const LayoutCase& layout) -> Result<RunResult> {
    const auto feed = OpenFeed(job);
    MW_ASSIGN_OR_RETURN(const auto cluster, VirtualCluster::Start(WithLayout(job, layout),
                                                                  layout.devices(), feed.get()));
    return RunOn(*cluster);
  };
  const auto expected = run({1, 1, 1, 1});
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const LayoutCase& layout : {LayoutCase{2, 1, 1, 1}, LayoutCase{4, 1, 1, 1},
                                   LayoutCase{2, 1, 2, 2}, LayoutCase{1, 2, 1, 1}}) {
    const auto actual = run(layout);
    ASSERT_TRUE(actual.has_value()) << layout.ToString() << ": " << actual.error();
    ExpectEqual(*expected, *actual, 1e-5, layout.ToString());
  }
}

TEST_F(RecordsParity, TheClassifierLearns) {
  const ir::JobRequest job = Classifier(WritePoints(dir_));
  const auto feed = OpenFeed(job);
  const auto cluster = VirtualCluster::Start(WithLayout(job, {2, 1, 1, 1}), 2, feed.get());
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto reports = (*cluster)->Train(0, 100);
  ASSERT_TRUE(reports.has_value()) << reports.error();
  EXPECT_LT(reports->back().values.at("loss"), 0.3 * reports->front().values.at("loss"));
}

}  // namespace
}  // namespace meshwright::testing
