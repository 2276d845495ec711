// Jobs whose shardings are searched (parallelism.shardings = "search") train the model of one
// device, are forecast to be no slower than by the rules, and communicate what was priced.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "planner/forecast.h"
#include "search/find_layout.h"
#include "search/find_shardings.h"
#include "tests/fake_clock.h"
#include "tests/scale.h"
#include "tests/still_clock.h"
#include "tests/virtual/tiny_models.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

constexpr int kPlannedSteps = 2;

struct Outcome {
  std::vector<double> numbers;  // loss and norm of every step, validation
  std::map<std::string, LogicalTensor> tensors;
  std::map<std::pair<std::string, collective::Kind>, collective::Counters> traffic;  // of steps
};

Result<Outcome> TrainPlan(planner::Plan plan, const ir::JobRequest& job, int vocabulary) {
  SyntheticTokens tokens(vocabulary);
  MW_ASSIGN_OR_RETURN(
      const std::unique_ptr<VirtualCluster> cluster,
      VirtualCluster::StartPlan(std::move(plan), job.train.seed, &tokens, ops::Backend::kCpu));
  const auto before = cluster->Traffic();
  MW_ASSIGN_OR_RETURN(const std::vector<worker::StepReport> reports,
                      cluster->Train(0, kPlannedSteps));
  Outcome outcome;
  outcome.traffic = cluster->Traffic();
  for (auto& [key, counters] : outcome.traffic) {
    const auto it = before.find(key);
    if (it == before.end()) continue;
    counters.calls -= it->second.calls;
    counters.bytes -= it->second.bytes;
  }
  for (const worker::StepReport& report : reports) {
    outcome.numbers.push_back(report.values.at("loss"));
    outcome.numbers.push_back(report.values.at("grad_norm"));
  }
  MW_ASSIGN_OR_RETURN(const double validation, cluster->Validate(2));
  outcome.numbers.push_back(validation);
  MW_ASSIGN_OR_RETURN(outcome.tensors, cluster->Gather());
  return outcome;
}

void ExpectEqualOutcomes(const Outcome& expected, const Outcome& actual, const std::string& name) {
  for (size_t i = 0; i < expected.numbers.size(); ++i) {
    EXPECT_NEAR(actual.numbers[i] / expected.numbers[i], 1, 1e-10) << name << " number " << i;
  }
  std::string where;
  EXPECT_LE(LargestDifference(expected.tensors, actual.tensors, &where), 1e-10)
      << name << " " << where;
}

// Links of which the search makes something else than of others.
struct Links {
  const char* name;
  mesh::LinkCost host;
};

const Links kLinks[] = {{"fast links", {1e-8, 1e-12}}, {"slow links", {1e-6, 1e-7}}};

mesh::Topology TopologyWith(int devices, const mesh::LinkCost& link, int64_t memory_bytes = 0) {
  mesh::Topology topology = mesh::Topology::Local(devices);
  topology.links.host = link;
  for (mesh::Device& device : topology.devices) device.memory_bytes = memory_bytes;
  return topology;
}

double ForecastSeconds(const planner::Plan& plan, const mesh::Topology& topology) {
  const auto forecast = planner::ForecastStep(plan, topology);
  EXPECT_TRUE(forecast.has_value());
  return forecast.has_value() ? forecast->step_s : 0;
}

TinyOptions TinyGpt2() {
  TinyOptions options;
  options.vocabulary = 64;
  options.layers = 4;
  options.dropout = 0.1;
  return options;
}

struct Degrees {
  int64_t data, tensor, pipeline, microbatches;
  const char* schedule = "1f1b";
  int64_t zero = 0;
  int64_t expert = 1;  // of data
  int64_t context = 1;
  const char* attention = "auto";
};

class SearchPlan : public ::testing::Test {
 protected:
  void Train(const ir::JobRequest& job, int vocabulary) {
    const auto single = planner::MakePlan(OnOneDevice(job), mesh::Topology::Local(1));
    ASSERT_TRUE(single.has_value()) << single.error();
    auto outcome = TrainPlan(*single, job, vocabulary);
    ASSERT_TRUE(outcome.has_value()) << outcome.error();
    expected_ = std::move(*outcome);
  }

  static ir::JobRequest OnOneDevice(ir::JobRequest job) {
    job.parallel = {};
    return job;
  }

  static ir::JobRequest With(ir::JobRequest job, const Degrees& degrees) {
    job.parallel.data = degrees.data;
    job.parallel.tensor = degrees.tensor;
    job.parallel.pipeline = degrees.pipeline;
    job.parallel.microbatches = degrees.microbatches;
    job.parallel.schedule = degrees.schedule;
    job.parallel.zero = degrees.zero;
    job.parallel.expert = degrees.expert;
    job.parallel.context = degrees.context;
    job.parallel.context_attention = degrees.attention;
    job.parallel.shardings = "search";
    return job;
  }

  // Both what FindPlan says and what the search finds, faster or not, are the model of one device.
  void ExpectParity(const ir::JobRequest& job, const mesh::Topology& topology,
                    const std::string& name, int vocabulary) {
    ir::JobRequest by_rules = job;
    by_rules.parallel.shardings = "rules";
    const auto found_by_rules = search::FindPlan(by_rules, topology, {}, kStill);
    ASSERT_TRUE(found_by_rules.has_value()) << name << ": " << found_by_rules.error();
    const auto found = search::FindPlan(job, topology, {}, kStill);
    ASSERT_TRUE(found.has_value()) << name << ": " << found.error();
    const planner::Plan* const rules = &found_by_rules->plan;
    const planner::Plan* const plan = &found->plan;
    ASSERT_FALSE(plan->notes.empty()) << name;
    EXPECT_NE(plan->notes.back().find("shardings are by"), std::string::npos) << name;
    EXPECT_EQ(plan->notes.back().find("no answer"), std::string::npos)
        << name << ": " << plan->notes.back();
    EXPECT_LE(ForecastSeconds(*plan, topology), ForecastSeconds(*rules, topology)) << name;
    const auto chooser = search::MakeShardingChooser(job, topology, {}, kStill);
    const auto searched =
        planner::MakePlanOf(job, topology, rules->layout, planner::PlanScope::kAllDevices, chooser);
    ASSERT_TRUE(searched.has_value()) << name << ": " << searched.error();
    for (const planner::Plan& each : {*plan, *searched}) {
      const auto outcome = TrainPlan(each, job, vocabulary);
      ASSERT_TRUE(outcome.has_value()) << name << ": " << outcome.error();
      ExpectEqualOutcomes(expected_, *outcome, name);
    }
  }

  Outcome expected_;
};

TEST_F(SearchPlan, PinnedDegreesOfGpt2EqualOneDevice) {
  const ir::JobRequest job = MakeTinyJob(TinyGpt2());
  Train(job, 64);
  const Degrees cases[] = {{2, 1, 1, 1},          {1, 2, 1, 2},
                           {2, 2, 1, 4},          {2, 2, 1, 2, "1f1b", 3},
                           {2, 2, 2, 4, "zb-h1"}, {2, 1, 2, 4, "interleaved", 1}};
  for (const Degrees& degrees : cases) {
    for (const Links& links : kLinks) {
      if (LeavesOut(9)) continue;
      const auto devices = static_cast<int>(degrees.data * degrees.tensor * degrees.pipeline);
      ExpectParity(With(job, degrees), TopologyWith(devices, links.host),
                   fmt::format("{} {}x{}x{} {}", links.name, degrees.data, degrees.tensor,
                               degrees.pipeline, degrees.schedule),
                   64);
    }
  }
}

TEST_F(SearchPlan, SharedExpertsEqualOneDevice) {
  TinyOptions options;
  options.family = "mixtral";
  options.vocabulary = 64;
  options.layers = 2;
  options.batch = 16;
  const ir::JobRequest job = MakeTinyJob(options);
  Train(job, 64);
  const Degrees cases[] = {{4, 1, 1, 2, "1f1b", 0, 2},
                           {2, 2, 1, 1, "1f1b", 0, 2},
                           {4, 1, 1, 1, "1f1b", 3, 2},
                           {2, 1, 2, 2, "zb-h1", 1, 2}};
  for (const Degrees& degrees : cases) {
    if (LeavesOut(4)) continue;
    const auto devices = static_cast<int>(degrees.data * degrees.tensor * degrees.pipeline);
    ExpectParity(With(job, degrees), TopologyWith(devices, {1e-7, 1e-10}),
                 fmt::format("{}x{}x{} zero={}", degrees.data, degrees.tensor, degrees.pipeline,
                             degrees.zero),
                 64);
  }
}

TEST_F(SearchPlan, SharedRowsEqualOneDevice) {
  TinyOptions options;
  options.family = "llama";
  options.vocabulary = 64;
  options.layers = 2;
  options.batch = 8;
  options.sequence = 16;
  const ir::JobRequest job = MakeTinyJob(options);
  Train(job, 64);
  const Degrees cases[] = {{1, 1, 1, 2, "1f1b", 0, 1, 2, "ring"},
                           {1, 2, 1, 1, "1f1b", 0, 1, 2, "ring"},
                           {1, 2, 1, 1, "1f1b", 0, 1, 2, "ulysses"},
                           {2, 1, 1, 1, "1f1b", 1, 1, 2, "gather"},
                           {1, 1, 2, 2, "1f1b", 0, 1, 2, "auto"}};
  for (const Degrees& degrees : cases) {
    if (LeavesOut(5)) continue;
    const auto devices =
        static_cast<int>(degrees.data * degrees.context * degrees.tensor * degrees.pipeline);
    ExpectParity(With(job, degrees), TopologyWith(devices, {1e-7, 1e-10}),
                 fmt::format("{} {}x{}x{}", degrees.attention, degrees.data, degrees.tensor,
                             degrees.pipeline),
                 64);
  }
}

// 2D and 3D tensor parallelism: what a grid splits is the model of one device, too.
TEST_F(SearchPlan, GridsOfTheTensorGroupEqualOneDevice) {
  const ir::JobRequest job = MakeTinyJob(TinyGpt2());
  Train(job, 64);
  struct Grid {
    Degrees degrees;
    const char* axes;
  };
  const Grid grids[] = {{{1, 4, 1, 2}, "2x2"},
                        {{2, 4, 1, 1, "1f1b", 1}, "2x2"},
                        {{1, 4, 2, 2}, "2x2"},
                        {{1, 8, 1, 1}, "2x2x2"}};
  for (const Grid& grid : grids) {
    if (LeavesOut(4)) continue;
    ir::JobRequest on_grid = With(job, grid.degrees);
    on_grid.parallel.tensor_axes = grid.axes;
    const auto devices =
        static_cast<int>(grid.degrees.data * grid.degrees.tensor * grid.degrees.pipeline);
    const mesh::Topology topology = TopologyWith(devices, {1e-8, 1e-12});
    const auto found = search::FindPlan(on_grid, topology, {}, FakeClock());
    ASSERT_TRUE(found.has_value()) << grid.axes << ": " << found.error();
    bool splits_both = false;
    for (const planner::ParamInfo& param : found->plan.params) {
      splits_both =
          splits_both || (param.sharding.UsesAxis("tensor") && param.sharding.UsesAxis("tensor2"));
    }
    EXPECT_TRUE(splits_both) << grid.axes;
    const auto outcome = TrainPlan(found->plan, on_grid, 64);
    ASSERT_TRUE(outcome.has_value()) << grid.axes << ": " << outcome.error();
    ExpectEqualOutcomes(expected_, *outcome, found->plan.layout.ToString());
  }
}

TEST_F(SearchPlan, GridsThatCannotBeAreRefused) {
  ir::JobRequest job = With(MakeTinyJob(TinyGpt2()), {1, 4, 1, 2});
  const auto refusal = [&] {
    const auto found = search::FindPlan(job, TopologyWith(4, {1e-8, 1e-12}), {}, FakeClock());
    return found.has_value() ? std::string() : found.error().message();
  };
  for (const char* axes : {"2x", "2x3", "4x2", "1x1x2x2"}) {
    job.parallel.tensor_axes = axes;
    EXPECT_NE(refusal().find("tensor_axes"), std::string::npos) << axes << ": " << refusal();
  }
  job.parallel.tensor_axes = "2x2";
  job.parallel.shardings = "rules";
  EXPECT_NE(refusal().find("use shardings = \"search\""), std::string::npos) << refusal();
}

TEST_F(SearchPlan, OpenDegreesOfLlamaEqualOneDevice) {
  TinyOptions options;
  options.family = "llama";
  options.vocabulary = 64;
  options.tied = false;
  options.layers = 2;
  ir::JobRequest job = MakeTinyJob(options);
  Train(job, 64);
  for (const int devices : {2, 4, 8}) {
    for (const Links& links : kLinks) {
      if (LeavesOut(9)) continue;
      ir::JobRequest open = job;
      open.parallel.tensor = 0;
      open.parallel.pipeline = 0;
      open.parallel.schedule = "auto";
      open.parallel.zero = -1;
      open.parallel.shardings = "search";
      ExpectParity(open, TopologyWith(devices, links.host),
                   fmt::format("{} {}", links.name, devices), 64);
    }
  }
}

// ZeRO-3 as the search prices it: per microbatch a gather of every split weight in the forward and
// another in the backward that reads it.
TEST_F(SearchPlan, SplitWeightsAreGatheredOncePerReadingPhase) {
  ir::JobRequest job = With(MakeTinyJob(TinyGpt2()), {4, 1, 1, 2, "1f1b", 3});
  job.train.compile = false;
  const mesh::Topology topology = TopologyWith(4, {1e-6, 1e-9});
  planner::Layout layout;
  layout.degrees[planner::Axis::kData] = 4;
  layout.microbatches = 2;
  layout.zero = 3;
  const auto chooser = search::MakeShardingChooser(job, topology, {}, kStill);
  const auto plan =
      planner::MakePlanOf(job, topology, layout, planner::PlanScope::kAllDevices, chooser);
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const auto graph = planner::MakeStepGraph(job);
  ASSERT_TRUE(graph.has_value()) << graph.error();
  int64_t gathers = 0;
  for (const planner::ParamInfo& param : plan->params) {
    if (!param.sharding.UsesAxis("data")) continue;
    std::set<ir::Phase> readers;
    for (const ir::Node& node : graph->nodes) {
      for (const ValueId input : node.inputs) {
        const ir::Node& producer = graph->producer(input);
        if (producer.op != ir::Op::kParam || producer.attrs.Str("name") != param.name) continue;
        if (node.phase != ir::Phase::kUpdate) readers.insert(node.phase);
      }
    }
    gathers += static_cast<int64_t>(readers.size());
  }
  EXPECT_GT(gathers, 20);
  std::map<std::string, int64_t> planned;  // by piece
  for (const ir::Executable& executable : plan->Of("step")[0].executables) {
    for (const ir::Node& node : executable.graph->nodes) {
      if (node.op == ir::Op::kAllGather) ++planned[executable.graph->name];
    }
  }
  EXPECT_EQ(planned["s0/f"] + planned["s0/b"], gathers);
  const auto outcome = TrainPlan(*plan, job, 64);
  ASSERT_TRUE(outcome.has_value()) << outcome.error();
  const int64_t per_step = layout.microbatches * gathers + planned["s0/u0"];
  EXPECT_EQ(outcome->traffic.at({"data", collective::Kind::kAllGather}).calls,
            kPlannedSteps * layout.data() * per_step);
}

}  // namespace
}  // namespace meshwright::testing
