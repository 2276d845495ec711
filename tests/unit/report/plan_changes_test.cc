#include "report/plan_changes.h"
#include "tests/fake_clock.h"
#include "tests/scale.h"
#include "tests/unit/report/planned_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <tuple>

#include "search/least_memory.h"

namespace meshwright::report {
namespace {

config::JobConfig SmallJob(std::vector<std::string> overrides) {
  overrides.push_back("training.seq_len=64");
  auto config = SmallConfig(overrides, "");
  EXPECT_TRUE(config.has_value()) << config.error();
  return config.has_value() ? *config : config::JobConfig();
}

mesh::Topology Devices(int count, int64_t memory_bytes) {
  mesh::Topology topology = mesh::Topology::Local(count, 1);
  for (mesh::Device& device : topology.devices) device.memory_bytes = memory_bytes;
  return topology;
}

std::vector<FittingChange> FittingChanges(const config::JobConfig& config,
                                          const mesh::Topology& topology) {
  return FindFittingChanges(config, topology, {}, FakeClock());
}

TEST(PossibleChanges, GoFromCheapToDear) {
  const auto changes =
      PossibleChanges(SmallJob({"parallelism.tensor_parallel_degree=1"}), Devices(2, 1 << 20));
  ASSERT_FALSE(changes.empty());
  EXPECT_TRUE(std::is_sorted(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tuple(a.kind, a.amount) < std::tuple(b.kind, b.amount);
  }));
  EXPECT_EQ(changes.front().kind, ChangeKind::kPin);
  EXPECT_EQ(changes.back().kind, ChangeKind::kMemory);
}

TEST(PossibleChanges, MoreHostsAreCopiesUnderOtherNames) {
  for (const Change& change : PossibleChanges(SmallJob({}), Devices(2, 1 << 20))) {
    if (change.family != "hosts" || change.amount != 1) continue;
    ASSERT_EQ(change.topology.devices.size(), 4u);
    EXPECT_NE(change.topology.devices[0].host, change.topology.devices[2].host);
    EXPECT_EQ(change.topology.devices[2].memory_bytes, 1 << 20);
    return;
  }
  FAIL() << "no change doubles the hosts";
}

TEST(PossibleChanges, MemoryIsSaidOfEachSizeThatDevicesHave) {
  mesh::Topology topology = Devices(3, 2 << 20);
  topology.devices[1].memory_bytes = 6 << 20;
  topology.devices[2].memory_bytes = 0;  // unknown
  const auto changes = PossibleChanges(SmallJob({}), topology);
  const auto twice = std::find_if(changes.begin(), changes.end(), [](const Change& change) {
    return change.family == "memory" && change.amount == 1;
  });
  ASSERT_NE(twice, changes.end());
  EXPECT_NE(twice->text.find("--memory-mib 4 and 12"), std::string::npos) << twice->text;
  EXPECT_EQ(twice->topology.devices[1].memory_bytes, 12 << 20);
  EXPECT_EQ(twice->topology.devices[2].memory_bytes, 0);
}

TEST(PossibleChanges, UnknownMemoryIsNotRaised) {
  for (const Change& change : PossibleChanges(SmallJob({}), Devices(1, 0))) {
    EXPECT_NE(change.family, "memory");
  }
}

TEST(FindFittingChanges, APinThatIsInTheWayIsTakenBackFirst) {
  // Four heads are not divided by 3.
  const auto changes =
      FittingChanges(SmallJob({"parallelism.tensor_parallel_degree=3"}), Devices(3, 0));
  ASSERT_FALSE(changes.empty());
  EXPECT_EQ(changes.front().text, "set parallelism.tensor_parallel_degree = \"auto\"");
  EXPECT_GT(changes.front().step_s, 0);
}

TEST(FindFittingChanges, MemoryThatIsTooSmallIsRaisedByTheLeastFactor) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  const std::vector<std::string> open = {
      "parallelism.tensor_parallel_degree=auto", "parallelism.pipeline_parallel_degree=auto",
      "parallelism.pipeline_parallel_schedule=auto", "parallelism.zero_stage=auto"};
  const config::JobConfig config = SmallJob(open);
  // Weights, gradients and optimizer of a device alone need more than this.
  const mesh::Topology tight = Devices(1, 2 << 20);
  const auto prepared = config::PrepareJob(config);
  ASSERT_TRUE(prepared.has_value()) << prepared.error();
  ASSERT_FALSE(search::FindPlan(prepared->request, tight, {}, FakeClock()).has_value());
  const auto changes = FittingChanges(config, tight);
  ASSERT_FALSE(changes.empty());
  EXPECT_LE(changes.size(), 3u);
  const auto memory = std::find_if(changes.begin(), changes.end(), [](const FittingChange& change) {
    return change.text.find("the memory: memory_gib =") != std::string::npos;
  });
  EXPECT_NE(memory, changes.end()) << FormatChanges(changes);
}

// What fits with the state in the host's memory is offered with the time of its step, before
// anything is given up, and by the fewest kinds.
TEST(FindFittingChanges, FartherMemoriesAreOfferedWithTheirPrice) {
  const config::JobConfig config = SmallJob({"parallelism.tensor_parallel_degree=1"});
  const auto prepared = config::PrepareJob(config);
  ASSERT_TRUE(prepared.has_value()) << prepared.error();
  const auto near = search::FindPlan(prepared->request, Devices(1, 0), {}, FakeClock());
  ir::JobRequest far = prepared->request;
  far.parallel.optimizer_memory = "host";
  const auto moved = search::FindPlan(far, Devices(1, 0), {}, FakeClock());
  ASSERT_TRUE(near.has_value() && moved.has_value());
  const int64_t room = moved->plan.memory[0].total_bytes;
  ASSERT_LT(room, near->plan.memory[0].total_bytes);
  const auto possible = PossibleChanges(config, Devices(1, room));
  EXPECT_EQ(std::count_if(possible.begin(), possible.end(),
                          [](const Change& change) { return change.family == "host"; }),
            4);
  const auto changes = FittingChanges(config, Devices(1, room));
  ASSERT_FALSE(changes.empty());
  const auto offer = std::find_if(changes.begin(), changes.end(), [](const FittingChange& change) {
    return change.text.find("optimizer_memory") != std::string::npos;
  });
  ASSERT_NE(offer, changes.end()) << FormatChanges(changes);
  EXPECT_EQ(offer->text, "set parallelism.optimizer_memory = \"host\"");
  EXPECT_GT(offer->step_s, 0);
}

// Every look at it is a fifteenth of a second later.
class HastyClock final : public Clock {
 public:
  int64_t NowNs() const override { return 66'666'667 * now_++; }
  int64_t UnixMs() const override { return NowNs() / 1'000'000; }

 private:
  mutable std::atomic<int64_t> now_ = 0;
};

// Fewer tokens leave weights and optimizer as they are: no time is lost on them.
TEST(FindFittingChanges, MoreHostsAreFoundWhereTheStateAloneIsTooLarge) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  const config::JobConfig config = SmallJob(
      {"parallelism.tensor_parallel_degree=auto", "parallelism.pipeline_parallel_degree=auto",
       "parallelism.pipeline_parallel_schedule=auto", "parallelism.zero_stage=auto"});
  const auto prepared = config::PrepareJob(config);
  ASSERT_TRUE(prepared.has_value()) << prepared.error();
  const int64_t third = search::LeastStateBytes(prepared->request) / 3;
  const auto changes = FindFittingChanges(config, Devices(1, third), {}, HastyClock());
  const auto has = [&](const char* words) {
    return std::any_of(changes.begin(), changes.end(), [&](const FittingChange& change) {
      return change.text.find(words) != std::string::npos;
    });
  };
  EXPECT_TRUE(has("the memory: memory_gib =")) << FormatChanges(changes);
  EXPECT_TRUE(has("4 times the hosts")) << FormatChanges(changes);
}

TEST(FormatChanges, SaysWhatCostMeans) {
  EXPECT_EQ(FormatChanges({{"set x = 1", 0.5, "data=2"}}),
            "it would fit with any of these, the cheapest first (pins cost nothing, then what is "
            "moved to farther memories, then tokens per step given up, then memory added):\n"
            "  set x = 1\n"
            "    step 500 ms, data=2\n");
  EXPECT_NE(FormatChanges({}).find("no single change"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::report
