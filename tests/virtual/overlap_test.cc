// Collectives beside what computes: the same bits, bytes and calls as in their turn, on every kind
// of layout; and gradients are reduced while others are made.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>

#include "base/mutex.h"
#include "ir/text.h"
#include "mesh/topology.h"
#include "planner/cost_model.h"
#include "planner/forecast.h"
#include "tests/scale.h"
#include "tests/virtual/awaited.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

constexpr int kOverlapVocabulary = 64;

struct OverlapCase {
  const char* name;
  LayoutCase degrees;
  int zero = 0;
  int context = 1;
  int expert = 1;
  bool sequence_parallel = false;
  const char* family = "gpt2";
  int devices() const { return degrees.devices() * context; }
};

const std::vector<OverlapCase> kOverlapCases = {
    {"data", {2, 1, 1, 1}},
    {"zero1", {4, 1, 1, 1}, 1},
    {"zero2", {2, 1, 1, 2}, 2},
    {"zero3", {4, 1, 1, 2}, 3},
    {"tensor", {2, 2, 1, 1}},
    {"sequence", {2, 2, 1, 2}, 1, 1, 1, true, "llama"},
    {"pipeline", {2, 1, 2, 4}},
    {"expert", {4, 1, 1, 1}, 0, 1, 2, false, "mixtral"},
    {"context", {2, 1, 1, 1}, 0, 2, 1, false, "llama"},
    {"all", {2, 2, 2, 4}, 2},
};

ir::JobRequest OverlapJob(const OverlapCase& c, bool overlap) {
  TinyOptions options;
  options.family = c.family;
  options.layers = 2;
  options.batch = 8;
  options.sequence = 16;
  options.vocabulary = kOverlapVocabulary;
  options.dtype = ir::DType::kF32;
  options.adam_eps = 1e-3;
  ir::JobRequest job = WithLayout(MakeTinyJob(options), c.degrees);
  job.parallel.zero = c.zero;
  job.parallel.context = c.context;
  job.parallel.expert = c.expert;
  job.parallel.sequence_parallel = c.sequence_parallel;
  job.parallel.bucket_bytes = 1 << 13;
  job.parallel.overlap = overlap;
  return job;
}

// Which threads run kernels and which collectives. In the backward of the first layer, which comes
// last, the device's own thread waits until some gradient is reduced by this op, if there is one.
class ThreadsOfNodes final : public ops::NodeObserver {
 public:
  explicit ThreadsOfNodes(std::optional<ir::Op> awaited = std::nullopt) : awaited_(awaited) {}

  void OnNode(const ir::Graph& graph, NodeId node, double) override {
    const ir::Op op = graph.node(node).op;
    Remember(op);
    // Loss and count are scalars, which the forward has made.
    const bool gradient = graph.type(graph.node(node).outputs[0]).rank() > 0;
    if (op == awaited_ && gradient) reduced_.Happen();
    const ir::Node& at = graph.node(node);
    const bool stops = at.phase == ir::Phase::kBackward && at.layer == 0;
    if (awaited_ && stops) reduced_.Await();
  }

  // Threads that run nothing but collectives.
  size_t beside() const {
    const MutexLock lock(mutex_);
    size_t count = 0;
    for (const std::thread::id& id : collectives_) count += kernels_.contains(id) ? 0 : 1;
    return count;
  }
  bool late() const { return reduced_.late(); }

 private:
  void Remember(ir::Op op) {
    const MutexLock lock(mutex_);
    (planner::IsCollective(op) ? collectives_ : kernels_).insert(std::this_thread::get_id());
  }

  const std::optional<ir::Op> awaited_;
  mutable Mutex mutex_;
  std::set<std::thread::id> kernels_ MW_GUARDED_BY(mutex_);
  std::set<std::thread::id> collectives_ MW_GUARDED_BY(mutex_);
  Awaited reduced_;
};

using TrafficByKind = std::map<std::pair<std::string, collective::Kind>, collective::Counters>;

struct OverlapRun {
  RunResult result;
  TrafficByKind traffic;
  size_t beside = 0;
};

Result<OverlapRun> RunCase(const OverlapCase& c, bool overlap) {
  const ir::JobRequest job = OverlapJob(c, overlap);
  MW_ASSIGN_OR_RETURN(planner::Plan plan,
                      planner::MakePlan(job, mesh::Topology::Local(c.devices())));
  SyntheticTokens tokens(kOverlapVocabulary);
  ThreadsOfNodes threads;
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<VirtualCluster> cluster,
                      VirtualCluster::StartPlan(std::move(plan), job.train.seed, &tokens,
                                                ops::Backend::kCpu, {}, &threads));
  OverlapRun run;
  MW_ASSIGN_OR_RETURN(run.result, RunOn(*cluster));
  run.traffic = cluster->Traffic();
  run.beside = threads.beside();
  return run;
}

class OverlapLayouts : public ::testing::TestWithParam<OverlapCase> {};

TEST_P(OverlapLayouts, AreEqualBitByBit) {
  const OverlapCase& c = GetParam();
  const auto in_turn = RunCase(c, false);
  ASSERT_TRUE(in_turn.has_value()) << in_turn.error();
  const auto beside = RunCase(c, true);
  ASSERT_TRUE(beside.has_value()) << beside.error();
  EXPECT_EQ(in_turn->beside, 0u);
  EXPECT_EQ(beside->beside, static_cast<size_t>(c.devices())) << "a thread for each device";
  EXPECT_EQ(in_turn->result.losses, beside->result.losses);
  EXPECT_EQ(in_turn->result.norms, beside->result.norms);
  EXPECT_EQ(in_turn->result.validation, beside->result.validation);
  EXPECT_EQ(in_turn->result.tensors, beside->result.tensors);
  ASSERT_EQ(in_turn->traffic.size(), beside->traffic.size());
  for (const auto& [key, counters] : in_turn->traffic) {
    const collective::Counters& other = beside->traffic.at(key);
    EXPECT_EQ(counters.bytes, other.bytes) << key.first;
    EXPECT_EQ(counters.calls, other.calls) << key.first;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, OverlapLayouts, ::testing::ValuesIn(kOverlapCases),
                         [](const auto& of) { return std::string(of.param.name); });

// The device's own thread stops in the backward until a gradient is reduced: with collectives in
// their turn it would be for ever.
class OverlapOfGradients : public ::testing::TestWithParam<int> {};

TEST_P(OverlapOfGradients, TheyAreReducedBeforeTheBackwardEnds) {
  ir::JobRequest job = OverlapJob(kOverlapCases[0], true);
  job.parallel.zero = GetParam();
  auto plan = planner::MakePlan(job, mesh::Topology::Local(2));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  SyntheticTokens tokens(kOverlapVocabulary);
  ThreadsOfNodes threads(GetParam() == 0 ? ir::Op::kAllReduce : ir::Op::kReduceScatter);
  auto cluster = VirtualCluster::StartPlan(*std::move(plan), job.train.seed, &tokens,
                                           ops::Backend::kCpu, {}, &threads);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  ASSERT_TRUE((*cluster)->Train(0, 1).has_value());
  EXPECT_FALSE(threads.late());
}

INSTANTIATE_TEST_SUITE_P(Zero, OverlapOfGradients, ::testing::Values(0, 1, 2, 3));

// ---- weights that replicas split ----

// Layer 1 of three stops, in the forward or in the backward, at its first product with a gathered
// weight, until a weight of the layer behind it has been gathered.
class StopsForGathers final : public ops::NodeObserver {
 public:
  explicit StopsForGathers(ir::Phase phase) : phase_(phase) {}

  void OnNode(const ir::Graph& graph, NodeId node, double) override {
    const ir::Node& at = graph.node(node);
    if (at.op == ir::Op::kAllGather) {
      const std::vector<NodeId> readers = graph.Users()[at.outputs[0]];
      if (readers.empty()) return;
      const ir::Node& reader = graph.node(readers[0]);
      if (reader.phase == phase_ && reader.layer == next_layer()) gathered_.Happen();
      return;
    }
    const bool reads = std::any_of(at.inputs.begin(), at.inputs.end(), [&](ValueId input) {
      return graph.producer(input).op == ir::Op::kAllGather;
    });
    if (!reads || at.phase != phase_ || at.layer != 1 || late()) return;
    ++stops_;
    gathered_.Await();
  }

  bool late() const { return gathered_.late(); }
  int stops() const { return stops_; }

 private:
  int next_layer() const { return phase_ == ir::Phase::kForward ? 2 : 0; }

  const ir::Phase phase_;
  std::atomic<int> stops_ = 0;
  Awaited gathered_;
};

// Three layers whose weights two replicas split. What is computed is small beside the weights.
ir::JobRequest GatherJob() {
  TinyOptions options;
  options.layers = 3;
  options.batch = 2;
  options.vocabulary = kOverlapVocabulary;
  options.dtype = ir::DType::kF32;
  ir::JobRequest job = WithLayout(MakeTinyJob(options), {2, 1, 1, 1});
  job.parallel.zero = 3;
  job.parallel.overlap = true;
  return job;
}

class OverlapOfGathers : public ::testing::TestWithParam<ir::Phase> {};

TEST_P(OverlapOfGathers, ALayersWeightsComeWhileTheOneBeforeComputes) {
  auto plan = planner::MakePlan(GatherJob(), mesh::Topology::Local(2));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  SyntheticTokens tokens(kOverlapVocabulary);
  StopsForGathers observer(GetParam());
  auto cluster =
      VirtualCluster::StartPlan(*std::move(plan), 1, &tokens, ops::Backend::kCpu, {}, &observer);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  ASSERT_TRUE((*cluster)->Train(0, 1).has_value());
  EXPECT_GT(observer.stops(), 0) << "no product read a gathered weight";
  EXPECT_FALSE(observer.late());
}

INSTANTIATE_TEST_SUITE_P(Phases, OverlapOfGathers,
                         ::testing::Values(ir::Phase::kForward, ir::Phase::kBackward),
                         [](const auto& of) {
                           return of.param == ir::Phase::kForward ? "Forward" : "Backward";
                         });

// With so much memory in each of two devices, which have cores to spare.
mesh::Topology WithMemory(int64_t bytes) {
  mesh::Topology topology = mesh::Topology::Local(2);
  topology.hosts[topology.devices[0].host].cores = 4;
  for (mesh::Device& device : topology.devices) device.memory_bytes = bytes;
  return topology;
}

// What a layer more of gathered weights costs is in the plan, and what workers allocate; where that
// is not there, gathers come right before their readers, and less is hidden.
TEST(OverlapOfPlans, GathersCountTheirMemoryAndDoWithoutIt) {
  const auto ahead = planner::MakePlan(GatherJob(), WithMemory(0));
  ASSERT_TRUE(ahead.has_value()) << ahead.error();
  const int64_t needs = planner::FullestBytes(ahead->memory);
  const auto fits = planner::MakePlan(GatherJob(), WithMemory(needs));
  ASSERT_TRUE(fits.has_value()) << fits.error();
  EXPECT_EQ(planner::FullestBytes(fits->memory), needs);
  const auto without = planner::MakePlan(GatherJob(), WithMemory(needs - 1));
  ASSERT_TRUE(without.has_value()) << without.error();
  EXPECT_LT(planner::FullestBytes(without->memory), needs);
  EXPECT_EQ(without->notes.size(), ahead->notes.size() + 1) << "it is said";
  // However little more there is than that needs: programs are refused as they are made, too.
  const int64_t least = planner::FullestBytes(without->memory);
  const auto tight = planner::MakePlan(GatherJob(), WithMemory(least));
  ASSERT_TRUE(tight.has_value()) << tight.error();
  EXPECT_EQ(planner::FullestBytes(tight->memory), least);
  const auto long_step = planner::ForecastStep(*without, WithMemory(0));
  const auto short_step = planner::ForecastStep(*ahead, WithMemory(0));
  ASSERT_TRUE(long_step.has_value() && short_step.has_value());
  EXPECT_GT(short_step->hidden_s, long_step->hidden_s);
  EXPECT_LT(short_step->step_s, long_step->step_s);

  std::vector<RunResult> results;
  for (const planner::Plan& plan : {*ahead, *without}) {
    SyntheticTokens tokens(kOverlapVocabulary);
    const auto cluster = VirtualCluster::StartPlan(plan, 1, &tokens, ops::Backend::kCpu);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    for (const worker::DeviceStats& stats : (*cluster)->runtime().Stats()) {
      int64_t held = 0;
      for (const auto& [kind, bytes] : stats.memory_bytes) held += bytes;
      EXPECT_EQ(held, plan.memory[static_cast<size_t>(stats.rank)].total_bytes);
    }
    auto result = RunOn(**cluster);
    ASSERT_TRUE(result.has_value()) << result.error();
    results.push_back(*std::move(result));
  }
  EXPECT_EQ(results[0].losses, results[1].losses);
  EXPECT_EQ(results[0].norms, results[1].norms);
  EXPECT_EQ(results[0].tensors, results[1].tensors);
}

// ---- what plans say ----

mesh::Topology WithCores(int devices, int cores) {
  mesh::Topology topology = mesh::Topology::Local(devices);
  topology.hosts[topology.devices[0].host].cores = cores;
  return topology;
}

ir::OverlapMode ModeOn(const mesh::Topology& topology, std::optional<bool> pinned) {
  ir::JobRequest job = OverlapJob(kOverlapCases[0], true);
  job.parallel.overlap = pinned;
  const auto plan = planner::MakePlan(job, topology);
  EXPECT_TRUE(plan.has_value()) << plan.error();
  return plan->Main()[0].overlap;
}

TEST(OverlapOfPlans, NeedsCoresToSpare) {
  EXPECT_EQ(ModeOn(WithCores(2, 2), std::nullopt), ir::OverlapMode::kByDevice);
  EXPECT_EQ(ModeOn(WithCores(2, 3), std::nullopt), ir::OverlapMode::kOn);
  EXPECT_EQ(ModeOn(WithCores(2, 2), true), ir::OverlapMode::kOn);
  EXPECT_EQ(ModeOn(WithCores(2, 4), false), ir::OverlapMode::kOff);
  EXPECT_EQ(ModeOn(mesh::Topology::Local(2), std::nullopt), ir::OverlapMode::kByDevice)
      << "of cores that nobody knows none is free";
}

planner::Forecast ForecastOf(const OverlapCase& c, int cores, bool overlap) {
  const mesh::Topology topology = WithCores(c.devices(), cores);
  const auto plan = planner::MakePlan(OverlapJob(c, overlap), topology);
  EXPECT_TRUE(plan.has_value()) << plan.error();
  const auto forecast = planner::ForecastStep(*plan, topology);
  EXPECT_TRUE(forecast.has_value()) << forecast.error();
  return *forecast;
}

TEST(OverlapOfPlans, AForecastIsShorterByWhatIsHidden) {
  const OverlapCase& c = kOverlapCases[0];
  const planner::Forecast in_turn = ForecastOf(c, 4, false);
  const planner::Forecast beside = ForecastOf(c, 4, true);
  EXPECT_EQ(in_turn.hidden_s, 0);
  EXPECT_GT(beside.hidden_s, 0.5 * beside.collective_s);
  EXPECT_NEAR(in_turn.step_s - beside.step_s, beside.hidden_s, 1e-9);
  EXPECT_TRUE(in_turn.simulation.beside.empty());
  EXPECT_EQ(beside.simulation.beside.size(), 2u);
  EXPECT_EQ(ForecastOf(c, 2, true).step_s, ForecastOf(c, 2, false).step_s)
      << "threads that take turns on a core save nothing";
}

}  // namespace
}  // namespace meshwright::testing
