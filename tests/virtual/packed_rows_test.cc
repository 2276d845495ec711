// Rows that hold whole documents: packed rows train what their documents train in rows of their
// own, and every layout trains what one device trains.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/philox.h"
#include "client/trainer.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kRowTokens = 16;
constexpr int64_t kDocumentsOfRow = 4;
constexpr int kPackedVocabulary = 61;
constexpr int32_t kNoLabel = -100;
// Inputs of the documents of each row; what is left over is padding.
constexpr int64_t kLengths[][kDocumentsOfRow] = {{7, 3, 5, 1}, {2, 2, 9, 2}, {11, 1, 1, 1}};

client::TrainerFunctions FunctionsOf(const std::string& family) {
  if (family == "gpt2") {
    models::Gpt2Config config;
    config.vocabulary = kPackedVocabulary;
    config.positions = kRowTokens + 3;
    config.width = 32;
    config.layers = 4;
    config.heads = 8;
    return models::MakeGpt2(config);
  }
  models::LlamaConfig config;
  config.vocabulary = kPackedVocabulary;
  config.width = 32;
  config.inner = 64;
  config.layers = 4;
  config.heads = 16;
  config.kv_heads = 8;
  config.head_size = 4;
  return models::MakeLlama(config);
}

ir::JobRequest JobOf(const std::string& family, client::RowKind rows, int64_t batch) {
  ir::DataStream stream;
  stream.kind = ir::DataKind::kRecords;
  for (const char* name : {"tokens", "labels", "segments", "positions"}) {
    stream.fields.push_back({name, ir::Element::kI32, {kRowTokens}, {}, {}});
  }
  ir::DataSpec data;
  data.streams = {std::move(stream)};
  ir::OptimizerSpec optimizer;
  optimizer.lr = 1e-2;
  ir::TrainSpec train;
  train.global_batch = batch;
  train.sequence = kRowTokens;
  train.seed = 42;
  const auto job = client::JobBuilder("packed-" + family)
                       .Train(train)
                       .DType(ir::DType::kF64)
                       .Optimizer(optimizer)
                       .Data(data)
                       .Build(FunctionsOf(family), rows);
  EXPECT_TRUE(job.has_value()) << job.error();
  return job.value_or(ir::JobRequest());
}

// Where a token of a row is: its document, counted over all rows, and its place there.
struct Place {
  int64_t document = 0;
  int64_t offset = 0;
  bool padding = false;
};

Place PlaceInPacked(int64_t row, int64_t token) {
  const auto& lengths = kLengths[row % std::ssize(kLengths)];
  int64_t begin = 0;
  for (int64_t i = 0; i < kDocumentsOfRow; ++i) {
    if (token < begin + lengths[i]) return {row * kDocumentsOfRow + i, token - begin};
    begin += lengths[i];
  }
  return {row * kDocumentsOfRow + kDocumentsOfRow, token - begin, true};
}

Place PlaceInPadded(int64_t row, int64_t token) {
  const auto& lengths = kLengths[row / kDocumentsOfRow % std::ssize(kLengths)];
  const bool padding = token >= lengths[row % kDocumentsOfRow];
  return {row, token, padding};
}

// The same documents in both kinds of rows; a third of the labels is not learned.
class Documents final : public ops::TokenSource {
 public:
  explicit Documents(bool packed) : packed_(packed) {}

  Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) override {
    const std::string field = source.substr(source.rfind('/') + 1);
    for (size_t i = 0; i < row.size(); ++i) {
      const auto token = static_cast<int64_t>(i);
      const Place at = packed_ ? PlaceInPacked(sample, token) : PlaceInPadded(sample, token);
      row[i] = ValueOf(field, sample, at);
    }
    return OkStatus();
  }

 private:
  static int32_t Token(const Place& at, int64_t offset) {
    const PhiloxBlock bits =
        Philox(7, static_cast<uint64_t>(at.document), static_cast<uint64_t>(offset));
    return static_cast<int32_t>(bits[0] % kPackedVocabulary);
  }

  int32_t ValueOf(const std::string& field, int64_t sample, const Place& at) const {
    if (field == "segments") return static_cast<int32_t>(at.document - sample * kDocumentsOfRow);
    if (field == "positions") return static_cast<int32_t>(at.offset);
    if (field == "tokens") return at.padding ? 0 : Token(at, at.offset);
    const bool learned = !at.padding && (at.document + at.offset) % 3 != 0;
    return learned ? Token(at, at.offset + 1) : kNoLabel;
  }

  const bool packed_;
};

Result<RunResult> Trained(const ir::JobRequest& job, int devices, bool packed) {
  Documents documents(packed);
  MW_ASSIGN_OR_RETURN(const auto cluster, VirtualCluster::Start(job, devices, &documents));
  return RunOn(*cluster);
}

class PackedRows : public ::testing::TestWithParam<const char*> {};

TEST_P(PackedRows, TrainWhatTheirDocumentsTrainAlone) {
  constexpr int64_t kPackedCount = 6;
  const auto alone =
      Trained(JobOf(GetParam(), client::RowKind::kLabelled, kPackedCount * kDocumentsOfRow), 1,
              /*packed=*/false);
  ASSERT_TRUE(alone.has_value()) << alone.error();
  const auto packed =
      Trained(JobOf(GetParam(), client::RowKind::kPacked, kPackedCount), 1, /*packed=*/true);
  ASSERT_TRUE(packed.has_value()) << packed.error();
  ExpectEqual(*alone, *packed, 1e-10, "packed");
}

struct PackedLayout {
  int64_t data = 1, context = 1, tensor = 1, pipeline = 1, microbatches = 1;
};

TEST_P(PackedRows, EveryLayoutEqualsOneDevice) {
  ir::JobRequest job = JobOf(GetParam(), client::RowKind::kPacked, 8);
  job.parallel.data = job.parallel.context = job.parallel.tensor = job.parallel.pipeline = 1;
  job.parallel.microbatches = 1;
  const auto expected = Trained(job, 1, true);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  std::vector<PackedLayout> layouts = {
      {2, 1, 1, 1, 2}, {1, 1, 2, 1, 1}, {1, 1, 1, 2, 4}, {1, 2, 1, 1, 1}, {2, 2, 1, 2, 2}};
  if (kSanitizedBuild) layouts = {{2, 2, 1, 1, 1}};
  for (const PackedLayout& layout : layouts) {
    job.parallel.data = layout.data;
    job.parallel.context = layout.context;
    job.parallel.tensor = layout.tensor;
    job.parallel.pipeline = layout.pipeline;
    job.parallel.microbatches = layout.microbatches;
    const std::string name =
        fmt::format("data={} context={} tensor={} pipeline={} microbatches={}", layout.data,
                    layout.context, layout.tensor, layout.pipeline, layout.microbatches);
    const auto actual = Trained(
        job, static_cast<int>(layout.data * layout.context * layout.tensor * layout.pipeline),
        true);
    ASSERT_TRUE(actual.has_value()) << name << ": " << actual.error();
    ExpectEqual(*expected, *actual, 1e-10, name);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PackedRows, ::testing::Values("gpt2", "llama"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace meshwright::testing
