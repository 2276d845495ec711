// Tokens on their way to experts: once to each host and then within it, or in one step; all rows at
// once, or in chunks. Every way trains the model of one device; bytes and calls are closed forms.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "mesh/topology.h"
#include "models/mixture.h"
#include "planner/expert_ways.h"
#include "planner/forecast.h"
#include "planner/layout.h"
#include "tests/scale.h"
#include "tests/virtual/awaited.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

using collective::Counters;
using collective::Kind;

constexpr int kWaysVocabulary = 61;

mesh::Topology Hosts(int hosts, int devices, mesh::LinkCost network = {20e-6, 5e-9}) {
  mesh::Topology topology;
  topology.links.network = network;
  for (int host = 0; host < hosts; ++host) {
    for (int i = 0; i < devices; ++i) {
      mesh::Device device;
      device.host = fmt::format("host{}", host);
      device.worker = fmt::format("worker{}", host);
      device.local_index = i;
      topology.devices.push_back(device);
    }
  }
  return topology;
}

TinyOptions WaysOptions() {
  TinyOptions options;
  options.family = "mixtral";
  options.layers = 2;
  options.batch = 16;
  options.sequence = 8;
  options.experts = 8;
  options.mixture = [](models::MixtureConfig& config) { config.experts.chosen = 3; };
  return options;
}

struct WayCase {
  const char* name;
  int hosts = 2, devices = 2;  // of each
  int data = 4, expert = 4, context = 1, tensor = 1, pipeline = 1, microbatches = 1;
  int zero = 0;
  const char* recompute = "none";
  double capacity_factor = 0, slots_factor = 0;
  const char* dispatch = "two-level";
  int chunks = 1;
  const char* router = "";
};
std::ostream& operator<<(std::ostream& out, const WayCase& c) { return out << c.name; }

ir::JobRequest WayJobOf(const WayCase& c, TinyOptions options = WaysOptions()) {
  options.capacity_factor = c.capacity_factor;
  const auto base = options.mixture;
  options.mixture = [base, &c](models::MixtureConfig& config) {
    if (base) base(config);
    config.experts.slots_factor = c.slots_factor;
    if (std::string(c.router) == "gpt-oss") {
      config.experts.router = client::SoftmaxOfTop{.bias = true};
      config.expert_bias = true;
      config.glu_limit = 0.05;
    }
  };
  if (c.slots_factor > 0) options.lr = 1e-5;
  ir::JobRequest job = MakeTinyJob(options);
  ir::ParallelSpec& pins = job.parallel;
  pins.data = c.data;
  pins.expert = c.expert;
  pins.context = c.context;
  pins.tensor = c.tensor;
  pins.pipeline = c.pipeline;
  pins.microbatches = c.microbatches;
  pins.zero = c.zero;
  pins.recompute = c.recompute;
  pins.expert_dispatch = c.dispatch;
  pins.expert_chunks = c.chunks;
  return job;
}

Result<RunResult> RunOnHosts(const ir::JobRequest& job, const mesh::Topology& topology) {
  MW_ASSIGN_OR_RETURN(planner::Plan plan, planner::MakePlan(job, topology));
  SyntheticTokens tokens(kWaysVocabulary);
  MW_ASSIGN_OR_RETURN(
      const std::unique_ptr<VirtualCluster> cluster,
      VirtualCluster::StartPlan(std::move(plan), job.train.seed, &tokens, ops::Backend::kCpu));
  return RunOn(*cluster);
}

ir::JobRequest OnOneDevice(ir::JobRequest job) {
  ir::ParallelSpec one;
  one.data = 1;
  job.parallel = one;
  return job;
}

class ExpertWays : public ::testing::TestWithParam<WayCase> {};

TEST_P(ExpertWays, EqualOneDeviceInF64) {
  const WayCase& c = GetParam();
  const ir::JobRequest job = WayJobOf(c);
  const auto expected = RunJob(OnOneDevice(job), 1, kWaysVocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  const auto actual = RunOnHosts(job, Hosts(c.hosts, c.devices));
  ASSERT_TRUE(actual.has_value()) << actual.error();
  const bool two = std::string(c.dispatch) == "two-level";
  EXPECT_EQ(actual->plan.layout.expert_hosts > 1, two);
  EXPECT_EQ(actual->plan.layout.expert_chunks, c.chunks);
  ExpectEqual(*expected, *actual, 1e-10, c.name);
}

const std::vector<WayCase> kWayCases = {
    {.name = "two_by_two"},
    {.name = "two_by_four", .hosts = 2, .devices = 4, .data = 8, .expert = 8},
    {.name = "four_by_two", .hosts = 4, .devices = 2, .data = 8, .expert = 8},
    {.name = "a_device_a_host", .hosts = 2, .devices = 1, .data = 2, .expert = 2},
    {.name = "capacity", .capacity_factor = 1},
    {.name = "little_capacity",
     .hosts = 2,
     .devices = 4,
     .data = 8,
     .expert = 8,
     .capacity_factor = 0.5},
    {.name = "bounded_slots", .slots_factor = 2.5},
    {.name = "microbatches_zero_recompute", .microbatches = 2, .zero = 3, .recompute = "full"},
    {.name = "groups_of_ranks", .hosts = 4, .devices = 2, .data = 8, .expert = 4, .zero = 1},
    {.name = "tensor", .hosts = 2, .devices = 4, .data = 4, .expert = 4, .tensor = 2},
    {.name = "context", .hosts = 2, .devices = 4, .data = 4, .expert = 4, .context = 2},
    {.name = "pipeline",
     .hosts = 4,
     .devices = 2,
     .data = 4,
     .expert = 4,
     .pipeline = 2,
     .microbatches = 2},
    {.name = "biases_of_experts", .router = "gpt-oss"},
    {.name = "chunks", .hosts = 1, .devices = 4, .dispatch = "flat", .chunks = 2},
    {.name = "four_chunks_of_two_steps", .chunks = 4},
    {.name = "chunks_capacity_zero",
     .microbatches = 2,
     .zero = 2,
     .recompute = "selective",
     .capacity_factor = 1,
     .dispatch = "flat",
     .chunks = 2},
    {.name = "chunks_biases", .chunks = 2, .router = "gpt-oss"},
};

std::vector<WayCase> WayCases() {
  if (!kSanitizedBuild) return kWayCases;
  return {kWayCases[0], kWayCases[14]};
}

INSTANTIATE_TEST_SUITE_P(Ways, ExpertWays, ::testing::ValuesIn(WayCases()),
                         [](const auto& of) { return std::string(of.param.name); });

// ---- bytes and calls ----

// Of one step, per axis.
struct OneStep {
  planner::Plan plan;
  std::map<std::pair<std::string, Kind>, Counters> traffic;
  Counters MovedOver(const std::string& axis) const {
    const auto it = traffic.find({axis, Kind::kAllToAll});
    return it == traffic.end() ? Counters() : it->second;
  }
};

Result<OneStep> StepOnHosts(const ir::JobRequest& job, const mesh::Topology& topology) {
  OneStep step;
  MW_ASSIGN_OR_RETURN(step.plan, planner::MakePlan(job, topology));
  SyntheticTokens tokens(kWaysVocabulary);
  MW_ASSIGN_OR_RETURN(
      const std::unique_ptr<VirtualCluster> cluster,
      VirtualCluster::StartPlan(step.plan, job.train.seed, &tokens, ops::Backend::kCpu));
  const auto before = cluster->Traffic();
  MW_TRY(cluster->Train(0, 1));
  step.traffic = cluster->Traffic();
  for (auto& [key, counters] : step.traffic) {
    const auto it = before.find(key);
    if (it == before.end()) continue;
    counters.calls -= it->second.calls;
    counters.bytes -= it->second.bytes;
  }
  return step;
}

TinyOptions TrafficOptions() {
  TinyOptions options = WaysOptions();
  options.dtype = ir::DType::kF32;
  return options;
}

// Of a layer tokens go to hosts and back, forward and backward, with what they take of experts,
// where its slots are there, and its gradient; slots go to ranks and back. How many each expert has
// takes one step of each kind.
void ExpectBytesOfTwoSteps(const WayCase& c, int64_t chunks) {
  const TinyOptions options = TrafficOptions();
  WayCase way = c;
  way.chunks = static_cast<int>(chunks);
  const auto step = StepOnHosts(WayJobOf(way, options), Hosts(c.hosts, c.devices));
  ASSERT_TRUE(step.has_value()) << step.error();
  const int64_t devices = c.hosts * c.devices;
  const int64_t hosts = c.hosts;
  const int64_t lanes = c.devices;
  const int64_t chosen = 3;
  const int64_t capacity =
      c.capacity_factor > 0
          ? options.experts / devices * (options.sequence * chosen / options.experts)
          : options.sequence * std::min(chosen, options.experts / devices);
  const int64_t places = std::min(options.sequence, lanes * capacity);
  const int64_t counts = options.batch * options.experts * 4;
  const Counters between = step->MovedOver("expert");
  EXPECT_EQ(between.calls, devices * options.layers * (chunks * (4 + 3) + 1));
  EXPECT_EQ(between.bytes,
            options.layers * ((hosts - 1) * options.batch * places * (4 * 32 * 4 + 3 * chosen * 4) +
                              counts * (hosts - 1) / hosts));
  const Counters within = step->MovedOver("expert2");
  EXPECT_EQ(within.calls, devices * options.layers * (chunks * 4 + 1));
  EXPECT_EQ(within.bytes,
            options.layers * (4 * (lanes - 1) * hosts * options.batch * capacity * 32 * 4 +
                              counts * (lanes - 1) / lanes));
  // The plan says the same of its axes, and of its links: between hosts goes what `expert` moves
  // and what replicas sum up.
  const auto forecast = planner::ForecastStep(step->plan, Hosts(c.hosts, c.devices));
  ASSERT_TRUE(forecast.has_value()) << forecast.error();
  // Groups of four are forecast with fewer messages of more bytes.
  if (hosts == 2 && lanes == 2) {
    EXPECT_DOUBLE_EQ(forecast->by_axes.at("expert").bytes, static_cast<double>(between.bytes));
    EXPECT_DOUBLE_EQ(forecast->by_axes.at("expert2").bytes, static_cast<double>(within.bytes));
  }
  const auto of = [&](mesh::LinkClass link) {
    return forecast->bytes_by_link[static_cast<size_t>(link)];
  };
  EXPECT_GE(of(mesh::LinkClass::kNetwork), static_cast<double>(between.bytes));
  EXPECT_GE(of(mesh::LinkClass::kHost), static_cast<double>(within.bytes));
}

TEST(ExpertWayTraffic, ATokenGoesOnceToEachHostAndSlotsStayWithin) {
  ExpectBytesOfTwoSteps({.name = ""}, 1);
  ExpectBytesOfTwoSteps({.name = "", .hosts = 2, .devices = 4, .data = 8, .expert = 8}, 1);
  ExpectBytesOfTwoSteps({.name = "", .capacity_factor = 1}, 1);
}

TEST(ExpertWayTraffic, ChunksMoveTheSameBytesInMoreCalls) {
  ExpectBytesOfTwoSteps({.name = ""}, 2);
}

// ---- which way ----

planner::Layout LayoutOn(const WayCase& c, const mesh::Topology& topology, std::string* notes) {
  const auto plan = planner::MakePlan(WayJobOf(c, TrafficOptions()), topology);
  EXPECT_TRUE(plan.has_value()) << plan.error();
  if (!plan.has_value()) return {};
  for (const std::string& note : plan->notes) {
    if (note.starts_with(planner::kExpertNote)) *notes += note + "\n";
  }
  return plan->layout;
}

// The dearer the network is beside the links of a host, the more it saves to send tokens once.
TEST(ExpertWayChoice, LinksDecideAndThePlanSaysWhy) {
  const WayCase open = {.name = "", .dispatch = "auto"};
  std::string slow, fast, one_host;
  EXPECT_EQ(LayoutOn(open, Hosts(2, 2, {20e-6, 1e-7}), &slow).expert_hosts, 2);
  EXPECT_NE(slow.find("on 2 hosts in two steps (by cost"), std::string::npos) << slow;
  EXPECT_EQ(LayoutOn(open, Hosts(2, 2, {5e-6, 1e-10}), &fast).expert_hosts, 1);
  EXPECT_NE(fast.find("in one step (by cost"), std::string::npos) << fast;
  EXPECT_EQ(LayoutOn(open, Hosts(1, 4), &one_host).expert_hosts, 1);
  EXPECT_EQ(one_host, "");
  const WayCase flat = {.name = "", .dispatch = "flat"};
  EXPECT_EQ(LayoutOn(flat, Hosts(2, 2, {20e-6, 1e-7}), &one_host).expert_hosts, 1);
}

// The way that is chosen is the one whose forecast is shorter.
TEST(ExpertWayChoice, IsWhatTheSimulatorFindsFaster) {
  for (const double s_per_byte : {1e-10, 1e-7}) {
    const mesh::Topology topology = Hosts(2, 2, {20e-6, s_per_byte});
    const auto step_s = [&](const char* dispatch) {
      const auto plan = planner::MakePlan(
          WayJobOf({.name = "", .dispatch = dispatch}, TrafficOptions()), topology);
      EXPECT_TRUE(plan.has_value()) << plan.error();
      const auto forecast = planner::ForecastStep(*plan, topology);
      EXPECT_TRUE(forecast.has_value()) << forecast.error();
      return forecast->step_s;
    };
    EXPECT_DOUBLE_EQ(step_s("auto"), std::min(step_s("flat"), step_s("two-level")));
  }
}

// What costs less and does not fit is no choice.
TEST(ExpertWayChoice, OneStepWhereTwoDoNotFit) {
  mesh::Topology topology = Hosts(2, 2, {20e-6, 1e-7});
  const auto bytes = [&](const char* dispatch) {
    const auto plan =
        planner::MakePlan(WayJobOf({.name = "", .dispatch = dispatch}, TrafficOptions()), topology);
    EXPECT_TRUE(plan.has_value()) << plan.error();
    int64_t most = 0;
    for (const planner::DeviceMemory& memory : plan->memory) {
      most = std::max(most, memory.total_bytes);
    }
    return most;
  };
  const int64_t flat = bytes("flat");
  ASSERT_LT(flat, bytes("two-level"));
  for (mesh::Device& device : topology.devices) device.memory_bytes = flat;
  std::string notes;
  EXPECT_EQ(LayoutOn({.name = "", .dispatch = "auto"}, topology, &notes).expert_hosts, 1);
  EXPECT_NE(notes.find("the job does not fit otherwise"), std::string::npos) << notes;
}

TEST(ExpertWayChoice, PinsThatDoNotFitAreRefusedWithWhatDoes) {
  const auto refused = [&](const WayCase& c, const mesh::Topology& topology) {
    const auto plan = planner::MakePlan(WayJobOf(c, TrafficOptions()), topology);
    return plan.has_value() ? std::string() : plan.error().message();
  };
  EXPECT_NE(refused({.name = ""}, Hosts(1, 4)).find("lie on one host, or unevenly on several"),
            std::string::npos);
  mesh::Topology uneven = Hosts(2, 2);
  uneven.devices[2].host = "host0";
  EXPECT_NE(refused({.name = ""}, uneven).find("use \"flat\" or \"auto\""), std::string::npos);
  EXPECT_NE(refused({.name = "", .chunks = 3}, Hosts(2, 2)).find("does not divide the 4 rows"),
            std::string::npos);
  EXPECT_NE(refused({.name = "", .dispatch = "once"}, Hosts(2, 2)).find("known: auto, flat"),
            std::string::npos);
}

// ---- chunks ----

// Rows are what they are in whichever chunk; gradients of weights are sums in another order.
TEST(ExpertChunks, RowsDoNotSeeThem) {
  const mesh::Topology topology = Hosts(1, 4);
  const WayCase whole = {.name = "", .hosts = 1, .devices = 4, .dispatch = "flat"};
  WayCase cut = whole;
  const auto expected = RunOnHosts(WayJobOf(whole), topology);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const int chunks : {2, 4}) {
    cut.chunks = chunks;
    const auto actual = RunOnHosts(WayJobOf(cut), topology);
    ASSERT_TRUE(actual.has_value()) << actual.error();
    EXPECT_EQ(expected->losses[0], actual->losses[0]) << "before an update";
    ExpectEqual(*expected, *actual, 1e-12, fmt::format("{} chunks", chunks));
  }
}

mesh::Topology WithSpareCores(int devices) {
  mesh::Topology topology = Hosts(1, devices);
  topology.hosts["host0"].cores = 2 * devices;
  topology.links.host = {1e-6, 2e-9};
  return topology;
}

// Where collectives run beside kernels, moves of one chunk are behind products of another: the
// forecast hides some of them, and auto is as fast as the fastest.
TEST(ExpertChunks, AreForecastToHideMovesAndAutoTakesTheFastest) {
  TinyOptions options = TrafficOptions();
  options.batch = 64;
  options.sequence = 64;
  const mesh::Topology topology = WithSpareCores(4);
  const auto forecast_of = [&](int chunks, bool overlap) {
    ir::JobRequest job = WayJobOf({.name = "", .dispatch = "flat", .chunks = chunks}, options);
    job.parallel.overlap = overlap;
    const auto plan = planner::MakePlan(job, topology);
    EXPECT_TRUE(plan.has_value()) << plan.error();
    const auto forecast = planner::ForecastStep(*plan, topology);
    EXPECT_TRUE(forecast.has_value()) << forecast.error();
    return std::pair(*forecast, plan->layout.expert_chunks);
  };
  const planner::Forecast whole = forecast_of(1, true).first;
  const planner::Forecast cut = forecast_of(2, true).first;
  EXPECT_GT(cut.hidden_s, whole.hidden_s);
  const auto [open, chosen] = forecast_of(0, true);
  double best = whole.step_s;
  for (const int chunks : {2, 4, 8}) best = std::min(best, forecast_of(chunks, true).first.step_s);
  EXPECT_LE(open.step_s, 1.02 * best) << chosen << " chunks";
  // In their turn there is nothing to hide.
  EXPECT_EQ(forecast_of(0, false).second, 1);
}

// A second thread makes the moves, and nothing changes.
TEST(ExpertChunks, RunBesideWhatComputesWithTheSameNumbers) {
  const mesh::Topology topology = Hosts(2, 2);
  ir::JobRequest job = WayJobOf({.name = "", .chunks = 2});
  job.parallel.overlap = false;
  const auto in_turn = RunOnHosts(job, topology);
  ASSERT_TRUE(in_turn.has_value()) << in_turn.error();
  job.parallel.overlap = true;
  const auto beside = RunOnHosts(job, topology);
  ASSERT_TRUE(beside.has_value()) << beside.error();
  ExpectEqual(*in_turn, *beside, 1e-12, "beside");
}

// Whoever has moved the second chunk of the first layer waits until some product of experts is
// made: in their turn, the products of a device would come behind that.
class ProductsBesideMoves final : public ops::NodeObserver {
 public:
  explicit ProductsBesideMoves(int devices) : devices_(devices) {}

  void OnNode(const ir::Graph& graph, NodeId node, double) override {
    const ir::Node& at = graph.node(node);
    if (at.op == ir::Op::kGroupedMatmul) made_.Happen();
    if (at.op != ir::Op::kAllToAll || graph.type(at.outputs[0]).rank() != 4) return;
    // A move ends on no device before all have begun it.
    const int moved = ++moved_;
    if (moved > devices_ && moved <= 2 * devices_) made_.Await();
  }
  bool late() const { return made_.late(); }

 private:
  const int devices_;
  std::atomic<int> moved_ = 0;
  Awaited made_;  // a product
};

TEST(ExpertChunks, ASecondOneIsMovedWhileTheFirstIsComputed) {
  ir::JobRequest job = WayJobOf(
      {.name = "", .data = 2, .expert = 2, .dispatch = "flat", .chunks = 2}, TrafficOptions());
  job.parallel.overlap = true;
  auto plan = planner::MakePlan(job, Hosts(1, 2));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  SyntheticTokens tokens(kWaysVocabulary);
  ProductsBesideMoves observer(2);
  const auto cluster = VirtualCluster::StartPlan(*std::move(plan), job.train.seed, &tokens,
                                                 ops::Backend::kCpu, {}, &observer);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  ASSERT_TRUE((*cluster)->Train(0, 1).has_value());
  EXPECT_FALSE(observer.late());
}

}  // namespace
}  // namespace meshwright::testing
