// Blocks whose residuals are added elsewhere than in GPT-2 need no more reductions than it: one per
// block and direction, or one for both blocks where they run side by side. And they train as on one
// device.
#include <gtest/gtest.h>

#include <functional>

#include "client/trainer.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

using client::Builder;
using collective::Counters;
using collective::Kind;

// Padding would be a third of it: embedding and head are whole on every device.
constexpr int kBlockVocabulary = 3;
constexpr int64_t kBlockWidth = 16;
constexpr int64_t kBlockLayers = 2;
constexpr int64_t kBlockRows = 4;
constexpr int64_t kBlockTokens = 8;

// Separate projections of queries, keys and values: three contributions to the gradient of x.
ValueId BlockAttention(Builder& b, ValueId x, const std::string& name) {
  const auto heads = [&](const char* which) {
    const ValueId flat = b.Param(name + which, {kBlockWidth, 4, kBlockWidth / 4});
    return b.Einsum("bsd,dhe->bshe", x, flat);
  };
  const ValueId o = b.Attention(heads(".q"), heads(".k"), heads(".v"));
  return b.Einsum("bshe,hed->bsd", o, b.Param(name + ".o", {4, kBlockWidth / 4, kBlockWidth}));
}

// With a bias behind the product that is summed over devices.
ValueId FeedForward(Builder& b, ValueId x, const std::string& name) {
  return b.Linear(b.Gelu(b.Linear(x, name + ".up", 4 * kBlockWidth)), name + ".down", kBlockWidth);
}

using BlockLayer = std::function<ValueId(Builder&, ValueId, const std::string&)>;

ValueId PreNorm(Builder& b, ValueId x, const std::string& name) {
  x = b.AddTo(x, BlockAttention(b, b.LayerNorm(x, name + ".ln1"), name + ".attn"));
  return b.AddTo(x, FeedForward(b, b.LayerNorm(x, name + ".ln2"), name + ".ffn"));
}

ValueId PostNorm(Builder& b, ValueId x, const std::string& name) {
  x = b.LayerNorm(b.AddTo(x, BlockAttention(b, x, name + ".attn")), name + ".ln1");
  return b.LayerNorm(b.AddTo(x, FeedForward(b, x, name + ".ffn")), name + ".ln2");
}

ValueId SideBySide(Builder& b, ValueId x, const std::string& name) {
  const ValueId normed = b.LayerNorm(x, name + ".ln");
  const ValueId with_attention = b.AddTo(x, BlockAttention(b, normed, name + ".attn"));
  return b.AddTo(with_attention, FeedForward(b, normed, name + ".ffn"));
}

ir::JobRequest JobOfBlocks(const BlockLayer& layer) {
  client::TrainerFunctions functions;
  functions.loss = [&](Builder& b, const client::Batch& batch) {
    ValueId x = b.Embedding(batch.at("tokens"), "embed", kBlockVocabulary, kBlockWidth);
    for (int64_t i = 0; i < kBlockLayers; ++i) {
      b.SetLayer(static_cast<int>(i));
      x = layer(b, x, "h" + std::to_string(i));
    }
    return b.CrossEntropy(b.Linear(x, "head", kBlockVocabulary), batch.at("labels"));
  };
  auto job = client::JobBuilder("blocks")
                 .Batch(kBlockRows, kBlockTokens)
                 .DType(ir::DType::kF64)
                 .Build(functions);
  EXPECT_TRUE(job.has_value()) << job.error();
  job->parallel.data = 1;
  return *job;
}

struct RanBlocks {
  std::map<std::string, LogicalTensor> weights;
  Counters reduced;  // over the tensor group, in one step, of a device; scalars left out
};

Result<RanBlocks> RunBlocks(ir::JobRequest job, int tensor, bool sequence_parallel = false) {
  job.parallel.tensor = tensor;
  job.parallel.sequence_parallel = sequence_parallel;
  SyntheticTokens tokens(kBlockVocabulary);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<VirtualCluster> cluster,
                      VirtualCluster::Start(job, tensor, &tokens));
  MW_TRY(cluster->Train(0, 2));
  RanBlocks ran;
  const auto before = cluster->Traffic();
  MW_TRY(cluster->Train(2, 1));
  for (const auto& [key, counters] : cluster->Traffic()) {
    if (key.first != "tensor") continue;
    const auto it = before.find(key);
    const Counters past = it == before.end() ? Counters() : it->second;
    ran.reduced.calls += (counters.calls - past.calls) / tensor;
  }
  ran.reduced.calls -= 1;  // the squares of the split gradients
  MW_ASSIGN_OR_RETURN(ran.weights, cluster->Gather());
  return ran;
}

void ExpectReductions(const BlockLayer& layer, int64_t per_layer) {
  const ir::JobRequest job = JobOfBlocks(layer);
  const auto one = RunBlocks(job, 1);
  ASSERT_TRUE(one.has_value()) << one.error();
  for (const int tensor : {2, 4}) {
    const auto many = RunBlocks(job, tensor);
    ASSERT_TRUE(many.has_value()) << many.error();
    EXPECT_EQ(many->reduced.calls, per_layer * kBlockLayers) << "tensor=" << tensor;
    std::string where;
    EXPECT_LE(LargestDifference(one->weights, many->weights, &where), 1e-9) << where;
  }
  const auto sequence = RunBlocks(job, 2, true);
  ASSERT_TRUE(sequence.has_value()) << sequence.error();
  std::string where;
  EXPECT_LE(LargestDifference(one->weights, sequence->weights, &where), 1e-9) << where;
}

TEST(ResidualTraffic, PreNormReducesTwiceForwardAndTwiceBackward) { ExpectReductions(PreNorm, 4); }

TEST(ResidualTraffic, PostNormReducesTwiceForwardAndTwiceBackward) {
  ExpectReductions(PostNorm, 4);
}

TEST(ResidualTraffic, BlocksSideBySideReduceOnceForwardAndOnceBackward) {
  ExpectReductions(SideBySide, 2);
}

}  // namespace
}  // namespace meshwright::testing
