// Communication oracles: calls and bytes of a training step against closed forms.
#include <gtest/gtest.h>

#include <algorithm>

#include "client/trainer.h"
#include "models/mixture.h"
#include "tests/virtual/tiny_models.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

using collective::Counters;
using collective::Kind;

struct Step {
  std::map<std::pair<std::string, Kind>, Counters> traffic;
  planner::Plan plan;
};

// Traffic of exactly one training step.
Result<Step> OneStep(const ir::JobRequest& job, int devices, int vocabulary) {
  SyntheticTokens tokens(vocabulary);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<VirtualCluster> cluster,
                      VirtualCluster::Start(job, devices, &tokens));
  const auto before = cluster->Traffic();
  MW_TRY(cluster->Train(0, 1));
  Step step;
  step.traffic = cluster->Traffic();
  for (auto& [key, counters] : step.traffic) {
    const auto it = before.find(key);
    if (it == before.end()) continue;
    counters.calls -= it->second.calls;
    counters.bytes -= it->second.bytes;
  }
  step.plan = cluster->plan();
  return step;
}

int64_t WeightBytes(const planner::Plan& plan) {
  int64_t bytes = 0;
  for (const planner::ParamInfo& param : plan.params) bytes += param.type.bytes();
  return bytes;
}

// Of the keys of a layer, whole.
int64_t KeyBytes(const planner::Plan& plan, const TinyOptions& options) {
  for (const planner::ParamInfo& param : plan.params) {
    if (param.name.find("k_proj") == std::string::npos) continue;
    return options.batch * options.sequence * param.type.bytes() / param.type.dims[0];
  }
  ADD_FAILURE() << "no keys";
  return 0;
}

TEST(Traffic, DataParallelReducesEveryGradientOnceInOneBucket) {
  TinyOptions options;
  options.dtype = ir::DType::kF32;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = 4;
  const auto step = OneStep(job, 4, 61);
  ASSERT_TRUE(step.has_value()) << step.error();
  const Counters& reduce = step->traffic.at({"data", Kind::kAllReduce});
  // One bucket holds all gradients; loss and count are two scalars in a bucket with them or of
  // their own. Totals over the group: 2 (q-1) n bytes.
  const int64_t gradients = 2 * 3 * WeightBytes(step->plan);
  EXPECT_GE(reduce.bytes, gradients);
  EXPECT_LE(reduce.bytes, gradients + 2 * 3 * 16);
  EXPECT_EQ(reduce.calls, 4);
}

TEST(Traffic, SmallBucketsReduceTheSameBytesInMoreCalls) {
  TinyOptions options;
  options.dtype = ir::DType::kF32;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = 2;
  job.parallel.bucket_bytes = 1;
  const auto step = OneStep(job, 2, 61);
  ASSERT_TRUE(step.has_value()) << step.error();
  const Counters& reduce = step->traffic.at({"data", Kind::kAllReduce});
  // One per gradient, loss and count on each of the two devices.
  EXPECT_EQ(reduce.calls, 2 * (static_cast<int64_t>(step->plan.params.size()) + 2));
  EXPECT_GE(reduce.bytes, 2 * WeightBytes(step->plan));
  EXPECT_LE(reduce.bytes, 2 * WeightBytes(step->plan) + 2 * 16);
}

// Megatron's count: one all-reduce per attention and per FFN block, forward and backward: 4 per
// layer.
TEST(Traffic, TensorParallelDoesFourAllReducesPerLayer) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options;
    options.family = family;
    options.dtype = ir::DType::kF32;
    options.vocabulary = 3;  // padding would be a third of it: embedding and head are replicated
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.data = 1;
    job.parallel.tensor = 2;
    const auto step = OneStep(job, 2, 3);
    ASSERT_TRUE(step.has_value()) << step.error();
    const Counters& reduce = step->traffic.at({"tensor", Kind::kAllReduce});
    const int64_t activation = options.batch * options.sequence * 32 * 4;
    const int64_t blocks = 4 * options.layers;
    // Plus one scalar: the squares of the split gradients.
    EXPECT_EQ(reduce.calls, 2 * (blocks + 1)) << family;
    EXPECT_EQ(reduce.bytes, 2 * (blocks * activation + 4)) << family;
    EXPECT_FALSE(step->traffic.contains({"tensor", Kind::kAllGather})) << family;
  }
}

// X[32, 16] W1[16, 48] and, with the hidden split, W2[48, 24]: W1 by columns costs one all-reduce
// of dX, W2 by rows one of Y, totals 2 (p-1) S_X and 2 (p-1) S_Y.
// S_X = 512 gives its golden column volumes 1024, 3072, 7168 elements.
TEST(Traffic, OneColumnAndOneRowLinearMoveTheirClosedForms) {
  const std::map<int64_t, int64_t> golden_column = {{2, 1024}, {4, 3072}, {8, 7168}};
  for (const auto& [p, column] : golden_column) {
    client::TrainerFunctions functions;
    functions.loss = [](client::Builder& b, const client::Batch& batch) {
      const client::LinearOptions no_bias{.bias = false};
      const ValueId x = b.Embedding(batch.at("tokens"), "embed", 3, 16);
      const ValueId hidden = b.Gelu(b.Linear(x, "up", 48, no_bias));
      const ValueId y = b.Gelu(b.Linear(hidden, "down", 24, no_bias));
      return b.CrossEntropy(b.Linear(y, "head", 3, no_bias), batch.at("labels"));
    };
    ir::OptimizerSpec optimizer;
    optimizer.max_norm = 0;
    auto job = client::JobBuilder("linear").Batch(8, 4).Optimizer(optimizer).Build(functions);
    ASSERT_TRUE(job.has_value()) << job.error();
    job->parallel.data = 1;
    job->parallel.tensor = p;
    const auto step = OneStep(*job, static_cast<int>(p), 3);
    ASSERT_TRUE(step.has_value()) << step.error();
    const Counters& reduce = step->traffic.at({"tensor", Kind::kAllReduce});
    const int64_t row = 2 * (p - 1) * 32 * 24;
    EXPECT_EQ(column, 2 * (p - 1) * 32 * 16);
    // The norm of the gradients is reported: one scalar more.
    EXPECT_EQ(reduce.calls, p * (2 + 1)) << p;
    EXPECT_EQ(reduce.bytes, 4 * (column + row + 2 * (p - 1))) << p;
    for (const auto& [key, counters] : step->traffic) {
      EXPECT_TRUE(counters.bytes == 0 || key.second == Kind::kAllReduce) << key.first;
    }
  }
}

// Of each layer a device has keys and values of n bytes. Round the ring go both, forward and again
// backward, c - 1 times, and their gradients behind them, once more: home.
TEST(Traffic, ARingMovesBlocksOfKeysAndTheirGradients) {
  for (const int64_t c : {2, 4}) {
    TinyOptions options;
    options.family = "llama";
    options.dtype = ir::DType::kF32;
    options.sequence = 16;
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.data = 1;
    job.parallel.context = c;
    job.parallel.context_attention = "ring";
    const auto step = OneStep(job, static_cast<int>(c), 61);
    ASSERT_TRUE(step.has_value()) << step.error();
    const Counters& shifts = step->traffic.at({"context", Kind::kRingShift});
    const int64_t n = KeyBytes(step->plan, options) / c;
    const int64_t of_layer = 2 * (c - 1) + 2 * (c - 1) + 2 * c;
    EXPECT_EQ(shifts.calls, c * options.layers * of_layer) << c;
    EXPECT_EQ(shifts.bytes, c * options.layers * of_layer * n) << c;
    EXPECT_FALSE(step->traffic.contains({"context", Kind::kAllGather})) << c;
  }
}

// Of a window that ends k blocks before, blocks move on k times, and their gradients come back from
// there in one step.
TEST(Traffic, ARingEndsWhereTheWindowDoes) {
  for (const auto& [window, k] : {std::pair<int64_t, int64_t>{1, 0}, {5, 1}, {6, 2}}) {
    TinyOptions options;
    options.family = "llama";
    options.dtype = ir::DType::kF32;
    options.sequence = 16;
    options.attention_window = window;
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.data = 1;
    job.parallel.context = 4;
    job.parallel.context_attention = "ring";
    const auto step = OneStep(job, 4, 61);
    ASSERT_TRUE(step.has_value()) << step.error();
    const auto shifts = step->traffic.find({"context", Kind::kRingShift});
    const int64_t n = KeyBytes(step->plan, options) / 4;
    const int64_t of_layer = k == 0 ? 0 : 2 * k + 2 * k + 2 * (k + 1);
    const Counters counted = shifts == step->traffic.end() ? Counters() : shifts->second;
    EXPECT_EQ(counted.calls, 4 * options.layers * of_layer) << window;
    EXPECT_EQ(counted.bytes, 4 * options.layers * of_layer * n) << window;
  }
}

// Gathered, they come once, and stay for the backward; their gradients are summed where they
// belong.
TEST(Traffic, GatheredKeysComeOnceAndTheirGradientsGoHome) {
  for (const int64_t c : {2, 4}) {
    TinyOptions options;
    options.family = "llama";
    options.dtype = ir::DType::kF32;
    options.sequence = 16;
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.data = 1;
    job.parallel.context = c;
    job.parallel.context_attention = "gather";
    const auto step = OneStep(job, static_cast<int>(c), 61);
    ASSERT_TRUE(step.has_value()) << step.error();
    const int64_t n = KeyBytes(step->plan, options) / c;
    const Counters& gathers = step->traffic.at({"context", Kind::kAllGather});
    EXPECT_EQ(gathers.calls, c * options.layers * 2) << c;
    EXPECT_EQ(gathers.bytes, c * (c - 1) * options.layers * 2 * n) << c;
    const Counters& scatters = step->traffic.at({"context", Kind::kReduceScatter});
    EXPECT_EQ(scatters.calls, c * options.layers * 2) << c;
    EXPECT_EQ(scatters.bytes, c * (c - 1) * options.layers * 2 * n) << c;
    EXPECT_FALSE(step->traffic.contains({"context", Kind::kRingShift})) << c;
  }
}

// Of a layer q, k and v change from tokens to heads, o and its gradient back and forth, the three
// gradients back. With more devices than heads of keys these go as copies.
TEST(Traffic, SharedHeadsTakeEightAllToAllsOfALayer) {
  for (const int64_t c : {2, 4, 16}) {
    TinyOptions options;
    options.family = "llama";
    options.dtype = ir::DType::kF32;
    options.sequence = 16;
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.data = 1;
    job.parallel.context = c;
    job.parallel.context_attention = "ulysses";
    const auto step = OneStep(job, static_cast<int>(c), 61);
    ASSERT_TRUE(step.has_value()) << step.error();
    const int64_t keys = KeyBytes(step->plan, options);  // of 8 heads; there are 16 of queries
    const int64_t copies = c == 16 ? 2 : 1;
    const Counters& moved = step->traffic.at({"context", Kind::kAllToAll});
    EXPECT_EQ(moved.calls, c * options.layers * 8) << c;
    EXPECT_EQ(moved.bytes, options.layers * 4 * (2 + copies) * keys / c * (c - 1)) << c;
    EXPECT_FALSE(step->traffic.contains({"context", Kind::kAllGather})) << c;
    EXPECT_FALSE(step->traffic.contains({"context", Kind::kRingShift})) << c;
  }
}

// Four devices as two groups of two: within one heads are shared, between the two keys go round, of
// half of the heads and twice the tokens.
TEST(Traffic, NestedHeadsAndRingsMoveBothClosedForms) {
  TinyOptions options;
  options.family = "llama";
  options.dtype = ir::DType::kF32;
  options.sequence = 16;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = 1;
  job.parallel.context = 4;
  job.parallel.context_attention = "nested";
  const auto step = OneStep(job, 4, 61);
  ASSERT_TRUE(step.has_value()) << step.error();
  const int64_t keys = KeyBytes(step->plan, options);
  const Counters& moved = step->traffic.at({"context2", Kind::kAllToAll});
  EXPECT_EQ(moved.calls, 4 * options.layers * 8);
  EXPECT_EQ(moved.bytes, options.layers * 4 * (2 + 1) * keys / 2);
  const Counters& shifts = step->traffic.at({"context", Kind::kRingShift});
  const int64_t of_layer = 2 + 2 + 2 * 2;
  EXPECT_EQ(shifts.calls, 4 * options.layers * of_layer);
  EXPECT_EQ(shifts.bytes, options.layers * of_layer * keys);
}

// Slots of a row are moved to the ranks of their experts and back, forward and backward, in the
// type of products; how many each expert has, once.
void ExpectAllToAllsOfExperts(int64_t ranks, ir::DType compute) {
  TinyOptions options;
  options.family = "mixtral";
  options.dtype = ir::DType::kF32;
  ir::JobRequest job = MakeTinyJob(options);
  job.train.compute_dtype = compute;
  job.parallel.data = ranks;
  job.parallel.expert = ranks;
  const auto step = OneStep(job, static_cast<int>(ranks), 61);
  ASSERT_TRUE(step.has_value()) << step.error();
  const Counters& moved = step->traffic.at({"expert", Kind::kAllToAll});
  EXPECT_EQ(moved.calls, ranks * options.layers * (4 + 1)) << ranks;
  // Of a token two choices: of one expert of a rank, or of all that it has.
  const int64_t capacity = options.sequence * std::min<int64_t>(2, options.experts / ranks);
  // Of a rank: those of all ranks.
  const int64_t slots = options.batch * capacity * 32 * ir::DTypeBytes(compute);
  const int64_t counts = options.batch / ranks * options.experts * 4;
  EXPECT_EQ(moved.bytes, options.layers * (ranks - 1) * (4 * slots + counts)) << ranks;
}

TEST(Traffic, ExpertsTakeFourAllToAllsOfALayer) {
  for (const int64_t ranks : {2, 4}) {
    for (const ir::DType compute : {ir::DType::kF32, ir::DType::kBF16}) {
      ExpectAllToAllsOfExperts(ranks, compute);
    }
  }
}

// With bounded slots as many of a row go to each rank as the bound says.
TEST(Traffic, BoundedSlotsMoveTheirFactorTimesTheMean) {
  TinyOptions options;
  options.family = "mixtral";
  options.experts = 8;
  options.layers = 2;
  options.dtype = ir::DType::kF32;
  options.mixture = [](models::MixtureConfig& config) { config.experts.slots_factor = 3; };
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = 4;
  job.parallel.expert = 4;
  const auto step = OneStep(job, 4, 61);
  ASSERT_TRUE(step.has_value()) << step.error();
  const int64_t capacity = 3 * options.sequence * 2 / 4;  // of 2 x sequence that may come
  const int64_t slots = options.batch * capacity * 32 * 4;
  const int64_t counts = options.batch / 4 * options.experts * 4;
  EXPECT_EQ(step->traffic.at({"expert", Kind::kAllToAll}).bytes,
            options.layers * 3 * (4 * slots + counts));
}

TEST(Traffic, SequenceParallelMovesTheSameBytesByGatherAndScatter) {
  TinyOptions options;
  options.dtype = ir::DType::kF32;
  options.vocabulary = 64;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = 1;
  job.parallel.tensor = 2;
  job.parallel.sequence_parallel = true;
  const auto step = OneStep(job, 2, 64);
  ASSERT_TRUE(step.has_value()) << step.error();
  const int64_t activation = options.batch * options.sequence * 32 * 4;
  // Per layer 2 blocks x (forward and backward); one more scatter after the embedding and gather
  // before the head, and back.
  EXPECT_EQ(step->traffic.at({"tensor", Kind::kReduceScatter}).bytes,
            (4 * options.layers + 2) * activation);
  EXPECT_GE(step->traffic.at({"tensor", Kind::kAllGather}).bytes,
            (4 * options.layers + 2) * activation);
}

// Alpa's defect: a tensor replicated over t sending devices must not be sent t times to each of t
// receivers.
TEST(Traffic, PipelineSendsEachBoundaryElementOnce) {
  TinyOptions options;
  options.family = "llama";
  options.tied = false;
  options.dtype = ir::DType::kF32;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = 1;
  job.parallel.tensor = 2;
  job.parallel.pipeline = 2;
  job.parallel.microbatches = 4;
  const auto step = OneStep(job, 4, 61);
  ASSERT_TRUE(step.has_value()) << step.error();
  const int64_t activation = options.batch * options.sequence * 32 * 4;
  const Counters& send = step->traffic.at({"pipeline", Kind::kSendRecv});
  EXPECT_GE(send.bytes, 2 * activation);        // one activation forward, one gradient back
  EXPECT_LE(send.bytes, 2 * activation + 256);  // and a few scalars of the update
}

// A tied table crosses once as a gradient and once as a weight. Over `tensor`
// a row of padding crosses with it.
TEST(Traffic, TiedEmbeddingSendsItsGradientOnceEachWay) {
  for (const int tensor : {1, 2}) {
    TinyOptions options;
    options.dtype = ir::DType::kF32;
    ir::JobRequest job = MakeTinyJob(options);
    job.parallel.data = 1;
    job.parallel.tensor = tensor;
    job.parallel.pipeline = 2;
    job.parallel.microbatches = 1;
    const auto step = OneStep(job, 2 * tensor, 61);
    ASSERT_TRUE(step.has_value()) << step.error();
    const int64_t activation = options.batch * options.sequence * 32 * 4;
    const int64_t table = (tensor == 1 ? 61 : 62) * 32 * 4;
    const Counters& send = step->traffic.at({"pipeline", Kind::kSendRecv});
    EXPECT_GE(send.bytes, 2 * activation + 2 * table) << "tensor=" << tensor;
    EXPECT_LE(send.bytes, 2 * activation + 2 * table + 256) << "tensor=" << tensor;
  }
}

TEST(Traffic, OneDeviceIsSilent) {
  TinyOptions options;
  options.dtype = ir::DType::kF32;
  const auto step = OneStep(MakeTinyJob(options), 1, 61);
  ASSERT_TRUE(step.has_value()) << step.error();
  for (const auto& [key, counters] : step->traffic) EXPECT_EQ(counters.bytes, 0) << key.first;
}

}  // namespace
}  // namespace meshwright::testing
