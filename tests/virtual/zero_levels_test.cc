// ZeRO by level, and float32 weights that are split with the optimizer's state: groups of replicas
// train as one device does, hold what the closed forms say, and move what they say over each level.
#include "planner/zero_levels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "planner/zero.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

using collective::Kind;

constexpr int kLevelVocabulary = 64;

struct LevelCase {
  LayoutCase degrees;
  int zero = 0;
  planner::ZeroGroups groups = {};
  const char* schedule = "1f1b";
  std::string ToString() const {
    return fmt::format("{} zero={} groups={}/{}/{} {}", degrees.ToString(), zero, groups.state,
                       groups.gradients, groups.weights, schedule);
  }
};

ir::JobRequest WithLevels(const ir::JobRequest& job, const LevelCase& c) {
  ir::JobRequest result = WithLayout(job, c.degrees);
  result.parallel.zero = c.zero;
  result.parallel.schedule = c.schedule;
  result.parallel.chunks = 0;
  result.parallel.zero_shard = c.groups.state;
  result.parallel.zero_gradients = c.groups.gradients;
  result.parallel.zero_weights = c.groups.weights;
  return result;
}

const LevelCase kLevelCases[] = {
    {{4, 1, 1, 1}, 1, {2, 0, 0}},          {{4, 1, 1, 2}, 2, {2, 0, 0}},
    {{4, 1, 1, 2}, 3, {2, 0, 0}},          {{4, 1, 1, 2}, 2, {0, 2, 0}},
    {{4, 1, 1, 1}, 3, {0, 0, 2}},          {{4, 1, 1, 2}, 3, {4, 2, 1}},
    {{8, 1, 1, 2}, 3, {8, 4, 2}},          {{8, 1, 1, 1}, 3, {4, 4, 2}},
    {{8, 1, 1, 2}, 2, {4, 2, 0}},          {{8, 1, 1, 1}, 1, {4, 0, 0}},
    {{4, 2, 1, 2}, 3, {2, 0, 0}},          {{4, 2, 1, 1}, 3, {4, 2, 2}},
    {{4, 1, 2, 4}, 3, {4, 2, 0}},          {{4, 1, 2, 2}, 2, {2, 0, 0}},
    {{4, 1, 2, 4}, 3, {2, 0, 0}, "zb-h1"}, {{4, 2, 2, 2}, 3, {4, 2, 2}},
};

class ZeroLevels : public ::testing::TestWithParam<const char*> {};

TEST_P(ZeroLevels, GroupsEqualOneDevice) {
  TinyOptions options;
  options.family = GetParam();
  options.layers = 2;
  options.vocabulary = kLevelVocabulary;
  options.dropout = 0.1;
  const ir::JobRequest job = MakeTinyJob(options);
  const auto expected = RunJob(WithLevels(job, {}), 1, kLevelVocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  size_t number = 0;
  for (const LevelCase& c : kLevelCases) {
    if (kSanitizedBuild && number++ % 6 != 5) continue;
    const auto actual = RunJob(WithLevels(job, c), c.degrees.devices(), kLevelVocabulary);
    ASSERT_TRUE(actual.has_value()) << c.ToString() << ": " << actual.error();
    ExpectEqual(*expected, *actual, 1e-10, c.ToString());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ZeroLevels, ::testing::Values("gpt2", "llama"),
                         [](const auto& param_info) { return param_info.param; });

// Of four replicas two share experts: groups are of the two that hold the same ones.
TEST(ZeroLevelsOfExperts, GroupsHoldTheSameExperts) {
  TinyOptions options;
  options.family = "mixtral";
  options.layers = 2;
  options.vocabulary = kLevelVocabulary;
  ir::JobRequest job = MakeTinyJob(options);
  const auto expected = RunJob(WithLevels(job, {}), 1, kLevelVocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  job.parallel.expert = 2;
  const LevelCase c = {{8, 1, 1, 2}, 3, {4, 2, 2}};
  const auto actual = RunJob(WithLevels(job, c), 8, kLevelVocabulary);
  ASSERT_TRUE(actual.has_value()) << actual.error();
  ExpectEqual(*expected, *actual, 1e-10, c.ToString());
  job.parallel.expert = 4;
  const auto refused = planner::MakePlan(WithLevels(job, c), mesh::Topology::Local(8));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("2 replicas that hold the same experts"),
            std::string::npos)
      << refused.error();
}

// ---- what is held and moved ----

ir::JobRequest LevelJob(ir::DType compute = ir::DType::kF32) {
  TinyOptions options;
  options.dtype = ir::DType::kF32;
  options.vocabulary = kLevelVocabulary;
  options.layers = 2;
  options.adam_eps = 1e-3;
  ir::JobRequest job = MakeTinyJob(options);
  job.train.compute_dtype = compute;
  return job;
}

bool SplitOverReplicas(const planner::ParamInfo& param) {
  return std::any_of(param.sharding.dims.begin(), param.sharding.dims.end(), [](const auto& axes) {
    return std::any_of(axes.begin(), axes.end(),
                       [](const std::string& axis) { return axis.starts_with(planner::kData); });
  });
}

// Bytes of float32 weights: those that only the optimizer has as they are, others that are split,
// and what stays whole; how many of the first and second.
struct LevelWeights {
  int64_t masters = 0, others = 0, whole = 0;
  int64_t master_count = 0, other_count = 0;
};

// `split`: of a plan of stage 1 in mixed precision.
LevelWeights LevelWeightsOf(const planner::Plan& split) {
  LevelWeights weights;
  for (const planner::ParamInfo& param : split.params) {
    const int64_t bytes = param.type.bytes();
    if (bytes < planner::kZeroMinBytes) {
      weights.whole += bytes;
    } else if (SplitOverReplicas(param)) {
      weights.masters += bytes;
      ++weights.master_count;
    } else {
      weights.others += bytes;
      ++weights.other_count;
    }
  }
  return weights;
}

LevelWeights MixedWeights() {
  const auto plan = planner::MakePlan(WithLevels(LevelJob(ir::DType::kBF16), {{4, 1, 1, 1}, 1}),
                                      mesh::Topology::Local(4));
  EXPECT_TRUE(plan.has_value()) << plan.error();
  return LevelWeightsOf(*plan);
}

TEST(ZeroMasters, WeightsThatAreReadAsCopiesAreSplitFromStageOne) {
  const LevelWeights n = MixedWeights();
  // Per layer four matrices; embeddings are read in float32.
  EXPECT_EQ(n.master_count, 2 * 4);
  EXPECT_GE(n.other_count, 1);
  const LevelCase cases[] = {{{4, 1, 1, 2}, 1},
                             {{4, 1, 1, 2}, 2},
                             {{4, 1, 1, 2}, 3},
                             {{8, 1, 1, 2}, 3, {8, 4, 2}},
                             {{8, 1, 1, 2}, 2, {4, 2, 0}}};
  for (const LevelCase& c : cases) {
    const int devices = c.degrees.devices();
    const auto plan = planner::MakePlan(WithLevels(LevelJob(ir::DType::kBF16), c),
                                        mesh::Topology::Local(devices));
    ASSERT_TRUE(plan.has_value()) << c.ToString() << ": " << plan.error();
    const auto degree = [&](planner::ZeroKind kind) {
      return planner::ZeroDegree(plan->layout, kind);
    };
    const int64_t state = degree(planner::ZeroKind::kOptimizer);
    const int64_t read = degree(planner::ZeroKind::kWeights);
    const int64_t persistent = n.masters / state + n.others / read + n.whole;
    for (size_t device = 0; device < plan->memory.size(); ++device) {
      int64_t held = 0;
      for (const ir::Slot& slot : plan->Main()[device].slots) {
        const bool weight = slot.persistent && slot.kind == ir::MemoryKind::kWeights;
        held += weight ? slot.type.bytes() : 0;
      }
      EXPECT_EQ(held, persistent) << c.ToString();
      EXPECT_EQ(plan->memory[device].bytes.at(ir::MemoryKind::kOptimizer),
                2 * ((n.masters + n.others) / state + n.whole))
          << c.ToString();
      // Copies of biases and of the table that the head reads are there as well.
      const int64_t weights = plan->memory[device].bytes.at(ir::MemoryKind::kWeights);
      EXPECT_GE(weights, persistent + n.masters / 2 / read) << c.ToString();
      EXPECT_LE(weights, persistent + (n.masters + n.others + n.whole) / 2 / read + n.whole / 2)
          << c.ToString();
    }
  }
}

// What makes copies reads blocks alone: a float32 weight is whole nowhere.
TEST(ZeroMasters, AreWholeNowhere) {
  for (const int zero : {1, 2, 3}) {
    const auto plan = planner::MakePlan(
        WithLevels(LevelJob(ir::DType::kBF16), {{4, 1, 1, 2}, zero}), mesh::Topology::Local(4));
    ASSERT_TRUE(plan.has_value()) << plan.error();
    std::map<std::string, int64_t> largest;  // of masters, in elements: their blocks
    for (const planner::ParamInfo& param : plan->params) {
      const bool is_master = param.type.bytes() >= planner::kZeroMinBytes &&
                             param.name.find("wte") == std::string::npos &&
                             param.name.find("wpe") == std::string::npos;
      if (is_master) largest[param.name] = param.type.elements() / 4;
    }
    int64_t gathers = 0;
    for (const ir::Executable& executable : plan->Main()[0].executables) {
      const ir::Graph& graph = *executable.graph;
      const bool once = graph.name == "s0/z";
      for (const ir::Node& node : graph.nodes) {
        if (node.op == ir::Op::kInput && largest.contains(node.attrs.Str("name"))) {
          EXPECT_EQ(graph.type(node.outputs[0]).elements(), largest.at(node.attrs.Str("name")));
        }
        const bool gather = node.op == ir::Op::kAllGather;
        if (gather && once) {
          EXPECT_EQ(graph.type(node.outputs[0]).dtype, ir::DType::kBF16);
          ++gathers;
        }
      }
    }
    EXPECT_EQ(gathers, zero < 3 ? 8 : 0) << zero;
  }
}

// Replicas whose masters are whole (stage 0) sum up two summands, as those with blocks do.
TEST(ZeroMasters, LossesAreThoseOfWholeOnesBitByBit) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options;
    options.family = family;
    options.dtype = ir::DType::kF32;
    options.layers = 2;
    ir::JobRequest job = MakeTinyJob(options);
    job.train.compute_dtype = ir::DType::kBF16;
    job.optimizer.max_norm = 0;  // a norm is a sum in another order
    const auto losses = [&](int zero) {
      SyntheticTokens tokens(61);
      const auto cluster =
          VirtualCluster::Start(WithLevels(job, {{2, 1, 1, 1}, zero}), 2, &tokens).value();
      std::vector<double> all;
      const auto reports = cluster->Train(0, 4);
      EXPECT_TRUE(reports.has_value()) << reports.error();
      for (const worker::StepReport& report : reports.value()) {
        all.push_back(report.values.at("loss"));
      }
      const auto validation = cluster->Validate(2);
      EXPECT_TRUE(validation.has_value()) << validation.error();
      all.push_back(validation.value_or(0));
      return all;
    };
    const std::vector<double> whole = losses(0);
    for (const int zero : {1, 2, 3}) EXPECT_EQ(losses(zero), whole) << family << " " << zero;
  }
}

using LevelTraffic = std::map<std::pair<std::string, Kind>, collective::Counters>;

// Of one step, and what devices allocate is what the plan says.
LevelTraffic StepTraffic(const ir::JobRequest& job, int devices) {
  SyntheticTokens tokens(kLevelVocabulary);
  const auto cluster = VirtualCluster::Start(job, devices, &tokens);
  EXPECT_TRUE(cluster.has_value()) << cluster.error();
  if (!cluster.has_value()) return {};
  const LevelTraffic before = (*cluster)->Traffic();
  EXPECT_TRUE((*cluster)->Train(0, 1).has_value());
  LevelTraffic traffic = (*cluster)->Traffic();
  for (auto& [key, counters] : traffic) {
    const auto it = before.find(key);
    if (it == before.end()) continue;
    counters.calls -= it->second.calls;
    counters.bytes -= it->second.bytes;
  }
  for (const worker::DeviceStats& stats : (*cluster)->runtime().Stats()) {
    int64_t allocated = 0;
    for (const auto& [kind, bytes] : stats.memory_bytes) allocated += bytes;
    EXPECT_EQ((*cluster)->plan().memory[static_cast<size_t>(stats.rank)].total_bytes, allocated);
  }
  return traffic;
}

// Stage 1 and 2: float32 weights move as their copies, half as wide, once per step.
TEST(ZeroMasters, GathersMoveCopies) {
  const LevelWeights n = MixedWeights();
  constexpr int64_t kReplicas = 4;
  constexpr int64_t kMicrobatches = 2;
  for (const int zero : {1, 2, 3}) {
    const LevelCase c = {{kReplicas, 1, 1, kMicrobatches}, zero};
    LevelTraffic traffic = StepTraffic(WithLevels(LevelJob(ir::DType::kBF16), c), kReplicas);
    const auto& gathers = traffic[{"data", Kind::kAllGather}];
    const auto& scatters = traffic[{"data", Kind::kReduceScatter}];
    EXPECT_EQ(scatters.bytes,
              (zero >= 2 ? kMicrobatches : 1) * (kReplicas - 1) * (n.masters + n.others));
    if (zero == 3) {
      const int64_t once = (kReplicas - 1) * n.masters / 2;
      EXPECT_GE(gathers.bytes, 2 * kMicrobatches * once);
      EXPECT_LE(gathers.bytes,
                2 * kMicrobatches * (once + (kReplicas - 1) * (n.others + n.others / 2)));
      continue;
    }
    EXPECT_EQ(gathers.bytes, (kReplicas - 1) * (n.masters / 2 + n.others)) << zero;
    EXPECT_EQ(gathers.calls, kReplicas * (n.master_count + n.other_count)) << zero;
  }
}

// Totals over all groups of q of D replicas, of n bytes: D/q (q-1) n.
int64_t OverGroups(int64_t replicas, int64_t q, int64_t bytes) {
  return replicas / q * (q - 1) * bytes;
}

struct MovedOver {
  const char* axes;
  Kind kind;
  int64_t bytes;
};

void ExpectMoved(const LevelCase& c, const LevelTraffic& traffic,
                 const std::vector<MovedOver>& expected) {
  for (const MovedOver& moved : expected) {
    const auto it = traffic.find({moved.axes, moved.kind});
    EXPECT_EQ(it == traffic.end() ? 0 : it->second.bytes, moved.bytes)
        << c.ToString() << " over " << moved.axes << ", kind " << static_cast<int>(moved.kind);
  }
}

// Eight replicas, the state over groups of four, gradients over two of these: data=2 between
// groups, data2=2 between pairs, data3=2 within a pair.
TEST(ZeroLevelTraffic, MovesItsClosedFormsOverEachAxis) {
  constexpr int64_t kAll = 8;
  constexpr int64_t kMicrobatches = 2;
  const LevelWeights of_mixed = MixedWeights();
  const int64_t n = of_mixed.masters + of_mixed.others;
  const LevelCase two = {{kAll, 1, 1, kMicrobatches}, 2, {4, 2, 0}};
  ExpectMoved(two, StepTraffic(WithLevels(LevelJob(), two), kAll),
              {{"data3", Kind::kReduceScatter, kMicrobatches * OverGroups(kAll, 2, n)},
               {"data2", Kind::kReduceScatter, OverGroups(kAll, 2, n / 2)},
               {"data", Kind::kAllReduce, 2 * OverGroups(kAll, 2, n / 4)},
               {"data3,data2", Kind::kAllGather, OverGroups(kAll, 4, n)},
               {"data", Kind::kAllGather, 0},
               {"data", Kind::kReduceScatter, 0}});
  const LevelCase one = {{kAll, 1, 1, kMicrobatches}, 1, {4, 0, 0}};
  ExpectMoved(one, StepTraffic(WithLevels(LevelJob(), one), kAll),
              {{"data2", Kind::kReduceScatter, OverGroups(kAll, 4, n)},
               {"data", Kind::kAllReduce, 2 * OverGroups(kAll, 2, n / 4)},
               {"data2", Kind::kAllGather, OverGroups(kAll, 4, n)}});
}

// Weights over pairs: between pairs they move once per step, within one for each microbatch.
TEST(ZeroLevelTraffic, WeightsOfPairsAreGatheredWithinThem) {
  constexpr int64_t kAll = 8;
  constexpr int64_t kMicrobatches = 2;
  const LevelWeights n = MixedWeights();
  for (const ir::DType compute : {ir::DType::kF32, ir::DType::kBF16}) {
    const bool mixed = compute == ir::DType::kBF16;
    const int64_t read = mixed ? n.masters / 2 + n.others : n.masters + n.others;
    const LevelCase c = {{kAll, 1, 1, kMicrobatches}, 3, {0, 2, 0}};
    LevelTraffic traffic = StepTraffic(WithLevels(LevelJob(compute), c), kAll);
    ExpectMoved(c, traffic,
                {{"data", Kind::kAllGather, OverGroups(kAll, 4, read / 2)},
                 {"data", Kind::kReduceScatter, OverGroups(kAll, 4, (n.masters + n.others) / 2)},
                 {"data2", Kind::kReduceScatter,
                  kMicrobatches * OverGroups(kAll, 2, n.masters + n.others)}});
    const int64_t within = traffic[{"data2", Kind::kAllGather}].bytes;
    const int64_t least = OverGroups(kAll, 2, mixed ? n.masters / 2 : n.masters);
    EXPECT_GE(within, 2 * kMicrobatches * least) << mixed;
    EXPECT_LE(within, 2 * kMicrobatches * OverGroups(kAll, 2, read + n.others / 2)) << mixed;
  }
}

TEST(ZeroLevelPlans, SayWhichAxesSplitWhat) {
  const LevelCase c = {{8, 1, 1, 2}, 3, {8, 4, 2}};
  const auto plan = planner::MakePlan(WithLevels(LevelJob(), c), mesh::Topology::Local(8));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const std::string text = planner::FormatPlan(*plan, false);
  EXPECT_NE(text.find("Split over replicas: optimizer over data3,data2,data (8), gradients over "
                      "data3,data2 (4), weights over data3 (2)."),
            std::string::npos)
      << text.substr(0, 2000);
}

}  // namespace
}  // namespace meshwright::testing
