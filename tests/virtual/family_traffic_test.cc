// What devices of a family say to each other on the axis tensor: one all-reduce behind attention
// and one behind the MLP, or one for both where they stand side by side, and as many backward, but
// for two norms side by side: each wants its gradient whole.
#include <gtest/gtest.h>

#include "client/trainer.h"
#include "models/registry.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

using collective::Counters;
using collective::Kind;

// Padding would be a third of it: embedding and head are whole on every device.
constexpr int64_t kFamilyVocabulary = 3;
constexpr int64_t kFamilyRows = 4;
constexpr int64_t kFamilyTokens = 8;
constexpr int64_t kFamilyWidth = 64;

struct FamilyTraffic {
  const char* name;
  int64_t forward = 2;  // reductions of a layer
  int64_t backward = 2;
  int64_t rows = 0;  // of a layer: sums of squares over all heads, a number for each token
};

models::Model FamilyModel(const std::string& name) {
  models::ModelSpec spec;
  spec.name = name;
  spec.vocabulary = kFamilyVocabulary;
  spec.layers = 2;
  if (name == "bert") spec.mask_token = kFamilyVocabulary - 1;
  const auto model = models::MakeModel(spec);
  EXPECT_TRUE(model.has_value()) << model.error();
  return model.value_or(models::Model());
}

// A step of a family on two devices that share every weight: reductions, and whether anything was
// gathered.
struct TensorStep {
  int64_t calls = 0;
  int64_t bytes = 0;
  bool gathers = false;
};

void TakeTensorStep(const models::Model& model, TensorStep& taken) {
  ir::TrainSpec train;
  train.global_batch = kFamilyRows;
  train.sequence = kFamilyTokens;
  auto job = client::JobBuilder("family").Train(train).Build(model.functions);
  ASSERT_TRUE(job.has_value()) << job.error();
  job->parallel.data = 1;
  job->parallel.tensor = 2;
  job->parallel.pipeline = 1;
  job->parallel.microbatches = 1;
  job->parallel.bucket_bytes = int64_t{1} << 30;
  SyntheticTokens tokens(kFamilyVocabulary);
  const auto cluster = VirtualCluster::Start(*job, 2, &tokens);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const Counters before = (*cluster)->Traffic()[{"tensor", Kind::kAllReduce}];
  ASSERT_TRUE((*cluster)->Train(0, 1).has_value());
  const auto traffic = (*cluster)->Traffic();
  const Counters after = traffic.at({"tensor", Kind::kAllReduce});
  taken = {after.calls - before.calls, after.bytes - before.bytes,
           traffic.contains({"tensor", Kind::kAllGather})};
}

// Beside the blocks: the squares of the split gradients, and gradients of weights that all heads
// share.
void ExpectBlocks(const TensorStep& taken, int64_t blocks, int64_t rows) {
  const int64_t activation = kFamilyRows * kFamilyTokens * kFamilyWidth * 4;
  EXPECT_EQ(taken.calls / 2, blocks + rows + 1);
  EXPECT_GE(taken.bytes, 2 * blocks * activation);
  EXPECT_LT(taken.bytes, 2 * (blocks * activation + activation));
  EXPECT_FALSE(taken.gathers);
}

class FamiliesOnTensor : public ::testing::TestWithParam<FamilyTraffic> {};

TEST_P(FamiliesOnTensor, ReduceOncePerBlockAndDirection) {
  const models::Model model = FamilyModel(GetParam().name);
  TensorStep taken;
  ASSERT_NO_FATAL_FAILURE(TakeTensorStep(model, taken));
  const int64_t blocks = (GetParam().forward + GetParam().backward) * model.layers;
  ExpectBlocks(taken, blocks, GetParam().rows * model.layers);
}

// Two blocks of an encoder's layer, three of a decoder's; backward what the decoder's layers say of
// the encoder's output is added up before it is reduced, once.
TEST(EncoderDecoderOnTensor, ReducesTheEncodersOutputOnce) {
  for (const char* name : {"t5", "bart"}) {
    SCOPED_TRACE(name);
    const models::Model model = FamilyModel(name);
    TensorStep taken;
    ASSERT_NO_FATAL_FAILURE(TakeTensorStep(model, taken));
    ExpectBlocks(taken, 2 * (2 * 2 + 2 * 3) + 1, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesOnTensor,
                         ::testing::Values(FamilyTraffic{"gpt2"}, FamilyTraffic{"llama"},
                                           FamilyTraffic{"mistral"}, FamilyTraffic{"qwen2"},
                                           FamilyTraffic{"qwen3"}, FamilyTraffic{"phi3"},
                                           FamilyTraffic{"gemma2"}, FamilyTraffic{"gemma3"},
                                           FamilyTraffic{"olmo2", 2, 2, 2}, FamilyTraffic{"opt"},
                                           FamilyTraffic{"gpt-neox", 1, 2},
                                           FamilyTraffic{"gptj", 1, 1}, FamilyTraffic{"phi", 1, 1},
                                           FamilyTraffic{"bloom"}, FamilyTraffic{"bert"}),
                         [](const auto& row) {
                           std::string name = row.param.name;
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name;
                         });

}  // namespace
}  // namespace meshwright::testing
