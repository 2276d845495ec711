// Products of a tensor group in chunks: the same bits, the same bytes in more calls, on layouts of
// one tensor axis; and one chunk is sent while another is computed.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "client/trainer.h"
#include "mesh/topology.h"
#include "planner/forecast.h"
#include "planner/layout.h"
#include "tests/scale.h"
#include "tests/virtual/awaited.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kStreamVocabulary = 64;

struct StreamCase {
  const char* name;
  LayoutCase degrees;
  bool sequence_parallel = false;
  const char* family = "gpt2";
  const char* recompute = "none";
  const char* schedule = "1f1b";
  int zero = 0;
  ir::DType dtype = ir::DType::kF64;
  double dropout = 0;
  const char* meshes = "";
};

const std::vector<StreamCase> kStreamCases = {
    {"gpt2", {1, 2, 1, 1}},
    {"llama", {2, 2, 1, 2}, false, "llama"},
    {"sequence", {1, 4, 1, 1}, true},
    {"llama_sequence", {1, 2, 1, 2}, true, "llama", "gathers"},
    {"selective", {2, 2, 1, 1}, true, "gpt2", "selective", "1f1b", 1},
    {"full", {1, 2, 1, 1}, false, "llama", "full"},
    {"stages", {1, 2, 2, 4}, true, "gpt2", "none", "zb-h1"},
    {"mixtral", {1, 2, 1, 1}, true, "mixtral"},
    {"f32", {1, 2, 1, 1}, true, "llama", "none", "1f1b", 0, ir::DType::kF32},
    {"dropout", {1, 2, 1, 1}, true, "gpt2", "full", "1f1b", 0, ir::DType::kF64, 0.1},
    {"unequal", {2, 1, 2, 2}, false, "gpt2", "none", "1f1b", 0, ir::DType::kF64, 0, "2x1,1x2"},
};

ir::JobRequest StreamJob(const StreamCase& c, int64_t chunks) {
  TinyOptions options;
  options.family = c.family;
  options.layers = 2;
  options.batch = 8;
  options.sequence = 16;
  options.vocabulary = kStreamVocabulary;
  options.dtype = c.dtype;
  options.dropout = c.dropout;
  options.adam_eps = 1e-3;
  ir::JobRequest job = WithLayout(MakeTinyJob(options), c.degrees);
  if (*c.meshes != 0) {
    job.parallel.data = 0;
    job.parallel.tensor = 0;
    job.parallel.stage_meshes = c.meshes;
  }
  job.parallel.sequence_parallel = c.sequence_parallel;
  job.parallel.schedule = c.schedule;
  job.parallel.zero = c.zero;
  job.parallel.recompute = c.recompute;
  job.parallel.tensor_chunks = chunks;
  return job;
}

using StreamTraffic = std::map<std::pair<std::string, collective::Kind>, collective::Counters>;

struct StreamRun {
  RunResult result;
  StreamTraffic traffic;
};

Result<StreamRun> RunStreams(const ir::JobRequest& job, int devices) {
  MW_ASSIGN_OR_RETURN(planner::Plan plan, planner::MakePlan(job, mesh::Topology::Local(devices)));
  SyntheticTokens tokens(kStreamVocabulary);
  MW_ASSIGN_OR_RETURN(
      const std::unique_ptr<VirtualCluster> cluster,
      VirtualCluster::StartPlan(std::move(plan), job.train.seed, &tokens, ops::Backend::kCpu));
  StreamRun run;
  MW_ASSIGN_OR_RETURN(run.result, RunOn(*cluster));
  run.traffic = cluster->Traffic();
  return run;
}

std::map<std::string, collective::Counters> ByAxes(const StreamTraffic& traffic) {
  std::map<std::string, collective::Counters> sums;
  for (const auto& [key, counters] : traffic) {
    sums[key.first].bytes += counters.bytes;
    sums[key.first].calls += counters.calls;
  }
  return sums;
}

class StreamedProducts : public ::testing::TestWithParam<StreamCase> {};

TEST_P(StreamedProducts, AreEqualBitByBit) {
  const StreamCase& c = GetParam();
  const auto whole = RunStreams(StreamJob(c, 1), c.degrees.devices());
  ASSERT_TRUE(whole.has_value()) << whole.error();
  EXPECT_EQ(whole->result.plan.layout.tensor_chunks, 1);
  for (const int64_t chunks : {2, 4}) {
    if (chunks == 4 && kSanitizedBuild) continue;
    SCOPED_TRACE(fmt::format("{} chunks", chunks));
    const auto cut = RunStreams(StreamJob(c, chunks), c.degrees.devices());
    ASSERT_TRUE(cut.has_value()) << cut.error();
    EXPECT_EQ(cut->result.plan.layout.tensor_chunks, chunks);
    EXPECT_EQ(whole->result.losses, cut->result.losses);
    EXPECT_EQ(whole->result.norms, cut->result.norms);
    EXPECT_EQ(whole->result.tensors, cut->result.tensors);
    const auto before = ByAxes(whole->traffic);
    const auto after = ByAxes(cut->traffic);
    ASSERT_EQ(before.size(), after.size());
    for (const auto& [axes, counters] : before) {
      EXPECT_EQ(counters.bytes, after.at(axes).bytes) << axes;
    }
    EXPECT_GT(after.at("tensor").calls, before.at("tensor").calls);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StreamedProducts, ::testing::ValuesIn(kStreamCases),
                         [](const auto& of) { return std::string(of.param.name); });

// A device's first gathers are those of the first product. Whoever has made the second of them
// waits until some product is made: in their turn, products would come behind that.
class ProductsBesideGathers final : public ops::NodeObserver {
 public:
  explicit ProductsBesideGathers(int devices) : devices_(devices) {}

  void OnNode(const ir::Graph& graph, NodeId node, double) override {
    const ir::Op op = graph.node(node).op;
    if (op == ir::Op::kEinsum || BeginsWithProduct(graph.node(node))) made_.Happen();
    if (op != ir::Op::kAllGather) return;
    // A gather ends on no device before all have begun it.
    const int gathered = ++gathered_;
    if (gathered > devices_ && gathered <= 2 * devices_) made_.Await();
  }
  bool late() const { return made_.late(); }

 private:
  static bool BeginsWithProduct(const ir::Node& node) {
    return node.op == ir::Op::kFused && node.attrs.Strs("body")[0].starts_with("einsum");
  }

  const int devices_;
  std::atomic<int> gathered_ = 0;
  Awaited made_;  // a product
};

TEST(StreamedProductsBeside, ASecondChunkIsGatheredWhileTheFirstIsComputed) {
  ir::JobRequest job =
      StreamJob({.name = "", .degrees = {1, 2, 1, 1}, .sequence_parallel = true}, 2);
  job.parallel.overlap = true;
  auto plan = planner::MakePlan(job, mesh::Topology::Local(2));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  ASSERT_EQ(plan->layout.tensor_chunks, 2);
  SyntheticTokens tokens(kStreamVocabulary);
  ProductsBesideGathers observer(2);
  const auto cluster = VirtualCluster::StartPlan(*std::move(plan), job.train.seed, &tokens,
                                                 ops::Backend::kCpu, {}, &observer);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  ASSERT_TRUE((*cluster)->Train(0, 1).has_value());
  EXPECT_FALSE(observer.late());
}

// ---- what plans say ----

// So wide that chunks are worth their copies.
ir::JobRequest WideJob(int64_t chunks, bool overlap) {
  client::TrainerFunctions functions;
  functions.loss = [](client::Builder& b, const client::Batch& batch) {
    const client::LinearOptions no_bias{.bias = false};
    ValueId x = b.Embedding(batch.at("tokens"), "embed", 64, 512);
    for (int layer = 0; layer < 2; ++layer) {
      b.SetLayer(layer);
      const ValueId hidden = b.Linear(b.RmsNorm(x, fmt::format("norm{}", layer)),
                                      fmt::format("up{}", layer), 2048, no_bias);
      x = b.AddTo(x, b.Linear(b.Gelu(hidden), fmt::format("down{}", layer), 512, no_bias));
    }
    return b.CrossEntropy(b.Linear(x, "head", 64, no_bias), batch.at("labels"));
  };
  ir::JobRequest job = client::JobBuilder("wide").Batch(16, 128).Build(functions).value();
  job.parallel = {};
  job.parallel.data = 1;
  job.parallel.tensor = 2;
  job.parallel.sequence_parallel = true;
  job.parallel.recompute = "none";
  job.parallel.tensor_chunks = chunks;
  job.parallel.overlap = overlap;
  return job;
}

mesh::Topology WithTwoCoresEach(int devices) {
  mesh::Topology topology = mesh::Topology::Local(devices);
  topology.hosts[topology.devices[0].host].cores = 2 * devices;
  topology.links.host = {1e-6, 1e-8};
  return topology;
}

// Where collectives run beside kernels the forecast hides what is sent while another chunk is
// computed, and auto is as fast as the fastest.
TEST(StreamedProductsOfPlans, AreForecastToHideWhatTheySendAndAutoTakesTheFastest) {
  const mesh::Topology topology = WithTwoCoresEach(2);
  const auto forecast_of = [&](int64_t chunks, bool overlap) {
    const auto plan = planner::MakePlan(WideJob(chunks, overlap), topology);
    EXPECT_TRUE(plan.has_value()) << plan.error();
    const auto forecast = planner::ForecastStep(*plan, topology);
    EXPECT_TRUE(forecast.has_value()) << forecast.error();
    return std::pair(*forecast, plan->layout.tensor_chunks);
  };
  const planner::Forecast whole = forecast_of(1, true).first;
  const planner::Forecast cut = forecast_of(2, true).first;
  EXPECT_GT(cut.hidden_s, whole.hidden_s);
  const auto [open, chosen] = forecast_of(0, true);
  double best = whole.step_s;
  for (const int64_t chunks : {2, 4, 8}) {
    best = std::min(best, forecast_of(chunks, true).first.step_s);
  }
  EXPECT_GT(chosen, 1);
  EXPECT_LE(open.step_s, 1.02 * best) << chosen << " chunks";
  // In their turn there is nothing to hide.
  EXPECT_EQ(forecast_of(0, false).second, 1);
}

// Chunks that nobody asked for are left out where they do not fit, and a note says so.
TEST(StreamedProductsOfPlans, AreLeftOutWhereTheyDoNotFit) {
  mesh::Topology topology = WithTwoCoresEach(2);
  ir::JobRequest job = WideJob(0, true);
  const auto room = planner::MakePlan(job, topology);
  ASSERT_TRUE(room.has_value()) << room.error();
  ASSERT_GT(room->layout.tensor_chunks, 1);
  job.parallel.tensor_chunks = 1;
  const auto whole = planner::MakePlan(job, topology);
  ASSERT_TRUE(whole.has_value()) << whole.error();
  ASSERT_LT(whole->memory[0].total_bytes, room->memory[0].total_bytes);
  job.parallel.tensor_chunks = 0;
  for (mesh::Device& device : topology.devices) {
    device.memory_bytes = room->memory[0].total_bytes - 1;
  }
  const auto tight = planner::MakePlan(job, topology);
  ASSERT_TRUE(tight.has_value()) << tight.error();
  EXPECT_EQ(tight->layout.tensor_chunks, 1);
  EXPECT_EQ(tight->memory[0].total_bytes, whole->memory[0].total_bytes);
  EXPECT_THAT(tight->notes, ::testing::Contains(HasSubstr("which would be faster: they do not")));
}

// Copies between memories have the threads that would make collectives.
TEST(StreamedProductsOfPlans, AreNotForTheirOwnSakeWhereStateIsOnTheHost) {
  ir::JobRequest job =
      StreamJob({.name = "", .degrees = {1, 2, 1, 1}, .sequence_parallel = true}, 0);
  job.parallel.overlap = true;
  job.parallel.optimizer_memory = "host";
  const auto plan = planner::MakePlan(job, WithTwoCoresEach(2));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  EXPECT_EQ(plan->layout.tensor_chunks, 1);
}

TEST(StreamedProductsOfPlans, SayWhatIsInChunks) {
  const auto notes_of = [](const ir::JobRequest& job) {
    const auto plan = planner::MakePlan(job, mesh::Topology::Local(2));
    EXPECT_TRUE(plan.has_value()) << plan.error();
    return plan.has_value() ? fmt::format("{}", fmt::join(plan->notes, "\n")) : std::string();
  };
  const StreamCase c{.name = "", .degrees = {1, 2, 1, 1}};
  EXPECT_THAT(notes_of(StreamJob(c, 2)), HasSubstr("in 2 chunks: which only costs here"));
  EXPECT_THAT(notes_of(StreamJob(c, 7)), HasSubstr("tensor_parallel_chunks = 7 cuts nothing"));
  EXPECT_THAT(notes_of(StreamJob(c, 1)), Not(HasSubstr("chunks")));
}

}  // namespace
}  // namespace meshwright::testing
