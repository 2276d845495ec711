// ZeRO: replicas that split optimizer state, gradients and weights train the same model, hold what
// the closed forms say and move what they say.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "planner/zero.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

using collective::Counters;
using collective::Kind;
using ::testing::HasSubstr;
using ::testing::Not;

ir::JobRequest WithZero(const ir::JobRequest& job, const LayoutCase& c, int zero) {
  ir::JobRequest result = WithLayout(job, c);
  result.parallel.zero = zero;
  return result;
}

std::vector<LayoutCase> Layouts() {
  if (kSanitizedBuild) return {{2, 2, 2, 4}};
  return {{2, 1, 1, 1}, {4, 1, 1, 2}, {8, 1, 1, 1}, {2, 2, 1, 1}, {2, 1, 2, 4}, {2, 2, 2, 4}};
}

class ZeroParity : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(ZeroParity, EqualsOneDevice) {
  const auto& [family, zero] = GetParam();
  for (const int64_t vocabulary : {61, 64}) {
    TinyOptions options;
    options.family = family;
    options.layers = 2;
    options.vocabulary = vocabulary;
    options.dropout = 0.1;
    const ir::JobRequest job = MakeTinyJob(options);
    const auto expected = RunJob(WithZero(job, {}, 0), 1, static_cast<int>(vocabulary));
    ASSERT_TRUE(expected.has_value()) << expected.error();
    for (const LayoutCase& c : Layouts()) {
      const auto actual = RunJob(WithZero(job, c, zero), c.devices(), static_cast<int>(vocabulary));
      ASSERT_TRUE(actual.has_value()) << c.ToString() << ": " << actual.error();
      ExpectEqual(*expected, *actual, 1e-10, c.ToString());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroParity,
                         ::testing::Combine(::testing::Values("gpt2", "llama"),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& param_info) {
                           return fmt::format("{}Stage{}", std::get<0>(param_info.param),
                                              std::get<1>(param_info.param));
                         });

// Replicas of schedules whose W come late or whose stages hold two parts.
TEST(Zero, EverySchedulesReplicasEqualOneDevice) {
  TinyOptions options;
  options.layers = 4;
  options.batch = 24;
  const ir::JobRequest job = MakeTinyJob(options);
  const auto expected = RunJob(WithZero(job, {}, 0), 1, 61);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const char* schedule : {"interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min"}) {
    for (const int zero : {1, 2, 3}) {
      if (kSanitizedBuild && zero != 2) continue;
      const LayoutCase c{2, 1, 2, 3};
      ir::JobRequest split = WithZero(job, c, zero);
      split.parallel.schedule = schedule;
      split.parallel.chunks = 0;
      const std::string layout = fmt::format("{} zero={} {}", schedule, zero, c.ToString());
      const auto actual = RunJob(split, c.devices(), 61);
      ASSERT_TRUE(actual.has_value()) << layout << ": " << actual.error();
      ExpectEqual(*expected, *actual, 1e-10, layout);
    }
  }
}

TEST(Zero, SgdWithMomentumAndMixedPrecisionEqualPlainReplicas) {
  TinyOptions options;
  options.family = "llama";
  options.layers = 2;
  options.dtype = ir::DType::kF32;
  ir::JobRequest job = MakeTinyJob(options);
  job.train.compute_dtype = ir::DType::kBF16;
  job.optimizer.name = "sgd";
  job.optimizer.momentum = 0.9;
  const LayoutCase c{2, 1, 1, 2};
  const auto plain = RunJob(WithZero(job, c, 0), 2, 61);
  ASSERT_TRUE(plain.has_value()) << plain.error();
  for (const int zero : {1, 2, 3}) {
    const auto split = RunJob(WithZero(job, c, zero), 2, 61);
    ASSERT_TRUE(split.has_value()) << split.error();
    // Sums of two summands round alike in any order; what differs is where microbatches are added.
    ExpectEqual(*plain, *split, 2e-5, fmt::format("zero={}", zero));
  }
}

// Bytes of the weights that ZeRO splits, and of those that stay whole.
struct Split {
  int64_t split_bytes = 0;
  int64_t whole_bytes = 0;
};

Split SplitOf(const planner::Plan& plan) {
  Split split;
  for (const planner::ParamInfo& param : plan.params) {
    const bool small = param.type.bytes() < planner::kZeroMinBytes;
    (small ? split.whole_bytes : split.split_bytes) += param.type.bytes();
  }
  return split;
}

ir::JobRequest F32Job() {
  TinyOptions options;
  options.dtype = ir::DType::kF32;
  options.vocabulary = 64;  // all large weights have a dim that 4 divides
  options.layers = 2;
  return MakeTinyJob(options);
}

TEST(Zero, DevicesHoldTheirShare) {
  const LayoutCase c{4, 1, 1, 2};
  for (const int zero : {0, 1, 2, 3}) {
    const auto plan = planner::MakePlan(WithZero(F32Job(), c, zero), mesh::Topology::Local(4));
    ASSERT_TRUE(plan.has_value()) << plan.error();
    const Split n = SplitOf(*plan);
    const auto share = [&](bool splits) {
      return (splits ? n.split_bytes / c.data : n.split_bytes) + n.whole_bytes;
    };
    for (const planner::DeviceMemory& memory : plan->memory) {
      EXPECT_EQ(memory.bytes.at(ir::MemoryKind::kOptimizer), 2 * share(zero >= 1)) << zero;
      EXPECT_EQ(memory.bytes.at(ir::MemoryKind::kWeights), share(zero >= 3)) << zero;
      // The sums of the loss and of its tokens are gradients, too: two scalars.
      EXPECT_EQ(memory.bytes.at(ir::MemoryKind::kGradients), share(zero >= 2) + 8) << zero;
    }
  }
}

// The last stage has a copy of the embedding for its head; the gradients of both meet in the
// update.
TEST(Zero, WeightsOfTwoStagesAreSplitInBoth) {
  const LayoutCase c{2, 1, 2, 4};
  const auto gradients = [&](int zero, size_t device) {
    const auto plan = planner::MakePlan(WithZero(F32Job(), c, zero), mesh::Topology::Local(4));
    EXPECT_TRUE(plan.has_value()) << plan.error();
    EXPECT_EQ(plan->params.front().stages.size(), 2U) << "not tied";
    return static_cast<double>(plan->memory[device].bytes.at(ir::MemoryKind::kGradients));
  };
  for (const size_t device : {0, 3}) {
    EXPECT_LT(gradients(2, device) / gradients(0, device), 0.56) << device;
  }
}

// Totals over the group of q: reduce-scatter and all-gather (q-1) n each, n the bytes that are
// split; gradients of weights that stay whole are all-reduced.
TEST(Zero, MovesItsClosedForms) {
  const LayoutCase c{4, 1, 1, 2};
  for (const int zero : {1, 2, 3}) {
    const ir::JobRequest job = WithZero(F32Job(), c, zero);
    SyntheticTokens tokens(64);
    const auto cluster = VirtualCluster::Start(job, 4, &tokens);
    ASSERT_TRUE(cluster.has_value()) << cluster.error();
    const auto before = (*cluster)->Traffic();
    ASSERT_TRUE((*cluster)->Train(0, 1).has_value());
    auto traffic = (*cluster)->Traffic();
    const auto bytes = [&](Kind kind) {
      const auto at = before.find({"data", kind});
      return traffic[{"data", kind}].bytes - (at == before.end() ? 0 : at->second.bytes);
    };
    const Split n = SplitOf((*cluster)->plan());
    const int64_t group = (c.data - 1) * n.split_bytes;
    EXPECT_EQ(bytes(Kind::kReduceScatter), (zero >= 2 ? c.microbatches : 1) * group) << zero;
    if (zero < 3) {
      EXPECT_EQ(bytes(Kind::kAllGather), group) << zero;
    } else {
      // The backward reads all weights that the forward reads, but for the table of positions.
      EXPECT_LE(bytes(Kind::kAllGather), 2 * c.microbatches * group) << zero;
      EXPECT_GE(bytes(Kind::kAllGather), 19 * c.microbatches * group / 10) << zero;
    }
    EXPECT_LE(bytes(Kind::kAllReduce), 2 * (c.data - 1) * (n.whole_bytes + 16)) << zero;
    EXPECT_GE(bytes(Kind::kAllReduce), 2 * (c.data - 1) * n.whole_bytes) << zero;
  }
}

TEST(Zero, SaysWhatStaysWhole) {
  TinyOptions options;
  options.layers = 2;
  options.batch = 7 * 3;
  const ir::JobRequest job = MakeTinyJob(options);
  const auto plan = planner::MakePlan(WithZero(job, {7, 1, 1, 1}, 1), mesh::Topology::Local(7));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  std::string notes;
  for (const std::string& note : plan->notes) notes += note + "\n";
  EXPECT_NE(notes.find("whole over data=7: no dim divides"), std::string::npos) << notes;
}

// A weight is small by what a device has of it, and no reason is made up for it.
TEST(Zero, WeightsThatAreSmallOnADeviceStayWhole) {
  TinyOptions options;
  options.layers = 2;
  ir::JobRequest job = WithLayout(MakeTinyJob(options), {2, 4, 1, 1});
  job.parallel.zero = 1;
  std::set<int64_t> sizes = {int64_t{1} << 30};  // of weights
  const auto notes_with = [&](int64_t min_bytes) {
    job.parallel.zero_min_bytes = min_bytes;
    const auto plan = planner::MakePlan(job, mesh::Topology::Local(8));
    EXPECT_TRUE(plan.has_value()) << plan.error();
    std::string notes;
    for (const std::string& note : plan->notes) notes += note + "\n";
    for (const planner::ParamInfo& param : plan->params) {
      sizes.insert(param.type.bytes());
      EXPECT_TRUE(min_bytes < int64_t{1} << 30 || !param.sharding.UsesAxis("data")) << param.name;
    }
    return notes;
  };
  EXPECT_THAT(notes_with(int64_t{1} << 30), HasSubstr("ZeRO 1 splits nothing: of each of the"));
  // Of some of these devices have a quarter, which is less.
  for (const int64_t size : std::set<int64_t>(sizes)) {
    EXPECT_THAT(notes_with(size), Not(HasSubstr("no dim divides"))) << size;
  }
}

}  // namespace
}  // namespace meshwright::testing
