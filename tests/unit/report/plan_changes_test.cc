#include "report/plan_changes.h"
#include "tests/unit/report/planned_job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <tuple>

#include "mesh/device_profile.h"
#include "search/find_layout.h"
#include "search/least_memory.h"
#include "tests/scale.h"
#include "tests/still_clock.h"

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

FittingChanges Find(const config::JobConfig& config, const mesh::Topology& topology) {
  return FindFittingChanges(config, topology, search::SearchTime(30'000, 30'000, kStill));
}

// The first that says so; null: none does.
const FittingChange* Says(const FittingChanges& changes, const std::string& words) {
  const auto at = std::find_if(
      changes.fitting.begin(), changes.fitting.end(),
      [&](const FittingChange& change) { return change.text.find(words) != std::string::npos; });
  return at == changes.fitting.end() ? nullptr : &*at;
}

// Whether the job fits devices of so much, without a word about what else would help.
bool Fits(const config::JobConfig& config, int devices, int64_t bytes) {
  const auto prepared = config::PrepareJob(config);
  return prepared.has_value() &&
         search::FindPlan(prepared->request, Devices(devices, bytes), {}, kStill).has_value();
}

TEST(PossibleChanges, GoFromCheapToDear) {
  const auto changes =
      PossibleChanges(SmallJob({"parallelism.tensor_parallel_degree=1"}), Devices(2, 1 << 20));
  ASSERT_FALSE(changes.empty());
  EXPECT_TRUE(std::is_sorted(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tuple(a.kind, a.amount) < std::tuple(b.kind, b.amount);
  }));
  EXPECT_EQ(changes.front().kind, ChangeKind::kPin);
  EXPECT_EQ(changes.back().kind, ChangeKind::kHosts);
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

TEST(WithMemory, IsSaidOfEachSizeThatDevicesHave) {
  mesh::Topology topology = Devices(3, 2 << 20);
  topology.devices[1].memory_bytes = 6 << 20;
  topology.devices[2].memory_bytes = 0;  // unknown
  const auto twice = WithMemory(SmallJob({}), topology, 2);
  ASSERT_TRUE(twice.has_value());
  EXPECT_NE(twice->text.find("--memory-mib 4 and 12"), std::string::npos) << twice->text;
  EXPECT_EQ(twice->topology.devices[1].memory_bytes, 12 << 20);
  EXPECT_EQ(twice->topology.devices[2].memory_bytes, 0);
  EXPECT_FALSE(WithMemory(SmallJob({}), Devices(1, 0), 2).has_value()) << "all are unknown";
}

// A cluster file says what a card has, of which plans leave some.
TEST(WithMemory, NamesTheWholeCard) {
  mesh::Topology topology = Devices(1, 0);
  topology.devices[0].profile = mesh::KnownDeviceProfiles().at("a100-80g");
  const int64_t usable = topology.devices[0].profile->usable_bytes();
  topology.devices[0].memory_bytes = usable;
  const auto more = WithMemory(SmallJob({}), topology, 1.5);
  ASSERT_TRUE(more.has_value());
  EXPECT_EQ(more->topology.devices[0].memory_bytes, usable / 2 * 3);
  EXPECT_NE(more->text.find(fmt::format("{:.2f} GiB", (1.5 * 76) + 4)), std::string::npos)
      << more->text;
}

TEST(FindFittingChanges, APinThatIsInTheWayIsTakenBackFirst) {
  // The rows of a batch are not divided by 3.
  const auto changes =
      Find(SmallJob({"parallelism.data_parallel_replicate_degree=3"}), Devices(3, 0));
  ASSERT_FALSE(changes.fitting.empty());
  EXPECT_EQ(changes.fitting.front().text,
            "set parallelism.data_parallel_replicate_degree = \"auto\"");
  EXPECT_GT(changes.fitting.front().step_s, 0);
}

// What is offered fits, and a twentieth less does not.
TEST(FindFittingChanges, TheLeastMemoryIsFoundByBisection) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  const config::JobConfig config = SmallJob({"parallelism.tensor_parallel_degree=1"});
  // Weights, gradients and optimizer of a device alone need more than this.
  const mesh::Topology tight = Devices(1, 2 << 20);
  ASSERT_FALSE(Fits(config, 1, 2 << 20));
  const auto changes = Find(config, tight);
  const FittingChange* const memory = Says(changes, "--memory-mib ");
  ASSERT_NE(memory, nullptr) << FormatChanges(changes);
  const int64_t mib = std::stoll(memory->text.substr(memory->text.rfind(' ') + 1));
  EXPECT_TRUE(Fits(config, 1, mib << 20)) << memory->text;
  EXPECT_FALSE(Fits(config, 1, ((mib - 1) << 20) * 19 / 20)) << memory->text;
}

// What fits with the state in the host's memory is offered with the time of its step, before
// anything is given up, and by the fewest kinds.
TEST(FindFittingChanges, FartherMemoriesAreOfferedWithTheirPrice) {
  const config::JobConfig config = SmallJob({"parallelism.tensor_parallel_degree=1"});
  const auto prepared = config::PrepareJob(config);
  ASSERT_TRUE(prepared.has_value()) << prepared.error();
  const auto near = search::FindPlan(prepared->request, Devices(1, 0), {}, kStill);
  ir::JobRequest far = prepared->request;
  far.parallel.optimizer_memory = "host";
  const auto moved = search::FindPlan(far, Devices(1, 0), {}, kStill);
  ASSERT_TRUE(near.has_value() && moved.has_value());
  const int64_t room = moved->plan.memory[0].total_bytes;
  ASSERT_LT(room, near->plan.memory[0].total_bytes);
  const auto possible = PossibleChanges(config, Devices(1, room));
  EXPECT_EQ(std::count_if(possible.begin(), possible.end(),
                          [](const Change& change) { return change.family == "host"; }),
            4);
  const auto changes = Find(config, Devices(1, room));
  const FittingChange* const offer = Says(changes, "optimizer_memory");
  ASSERT_NE(offer, nullptr) << FormatChanges(changes);
  EXPECT_EQ(offer->text, "set parallelism.optimizer_memory = \"host\"");
  EXPECT_GT(offer->step_s, 0);
  EXPECT_EQ(changes.why_no_tier, "");
}

// State that has no room on a disk may have some in the memory of the host.
TEST(FindFittingChanges, TheHostIsOfferedWhereADiskIsMissingOrTooSmall) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  const config::JobConfig config =
      SmallJob({"parallelism.optimizer_memory=disk", "parallelism.weights_memory=disk",
                "parallelism.gradients_memory=host", "parallelism.activations_memory=host"});
  mesh::Topology devices = Devices(1, 0);
  devices.devices[0].disk = mesh::Disk::kNoFolder;
  const auto folderless = Find(config, devices);
  const char* const both =
      "set parallelism.optimizer_memory = \"host\", parallelism.weights_memory = \"host\"";
  EXPECT_NE(Says(folderless, both), nullptr) << FormatChanges(folderless);
  EXPECT_EQ(folderless.why_no_tier, "");

  // Room for the weights.
  devices.devices[0].disk = mesh::Disk::kPerhaps;
  devices.devices[0].disk_bytes = 3 << 19;
  const auto small = Find(config, devices);
  const FittingChange* const offer = Says(small, "set parallelism.optimizer_memory = \"host\"");
  ASSERT_NE(offer, nullptr) << FormatChanges(small);
  EXPECT_EQ(offer->text.find("weights_memory"), std::string::npos) << offer->text;
}

// Layouts whose devices are too small, too, are not what is to be mended.
TEST(FindPlan, SaysThatTheDiskIsTooSmallWhereDevicesOfALayoutHaveRoom) {
  const config::JobConfig config =
      SmallJob({"parallelism.optimizer_memory=disk", "parallelism.weights_memory=disk",
                "parallelism.gradients_memory=host", "parallelism.activations_memory=host",
                "parallelism.offload_chunk_bytes=65536"});
  const auto prepared = config::PrepareJob(config);
  ASSERT_TRUE(prepared.has_value()) << prepared.error();
  const auto plan_of = [&](const mesh::Topology& topology) {
    return search::FindPlan(prepared->request, topology, {}, kStill);
  };
  const auto roomy = plan_of(Devices(1, 0));
  ASSERT_TRUE(roomy.has_value()) << roomy.error();
  mesh::Topology tight = Devices(1, roomy->plan.memory[0].total_bytes);
  ASSERT_TRUE(plan_of(tight).has_value());
  tight.devices[0].disk_bytes = 1 << 16;
  const auto refused = plan_of(tight);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("the room on the disk is too small"), std::string::npos)
      << refused.error();
}

// Where the farthest memories do not help, it is said what is wrong with them.
TEST(FindFittingChanges, SaysWhyNoFartherMemoryHelps) {
  const auto changes =
      Find(SmallJob({"parallelism.tensor_parallel_degree=1"}), Devices(1, 64 << 10));
  EXPECT_EQ(Says(changes, "_memory = "), nullptr) << FormatChanges(changes);
  EXPECT_NE(changes.why_no_tier, "");
  EXPECT_NE(FormatChanges(changes).find("farther memories do not: "), std::string::npos);
}

// Every look at it is a sixtieth of a second later.
class HastyClock final : public Clock {
 public:
  int64_t NowNs() const override { return 16'666'667 * now_++; }
  int64_t UnixMs() const override { return NowNs() / 1'000'000; }

 private:
  mutable std::atomic<int64_t> now_ = 0;
};

// Fewer tokens leave weights and optimizer as they are: no time is lost on them. And all of it ends
// with the time.
TEST(FindFittingChanges, MoreHostsAreFoundWhereTheStateAloneIsTooLarge) {
  if (kSanitizedBuild) GTEST_SKIP() << "searches many layouts: left to the plain build";
  const config::JobConfig config = SmallJob(
      {"parallelism.tensor_parallel_degree=auto", "parallelism.pipeline_parallel_degree=auto",
       "parallelism.pipeline_parallel_schedule=auto", "parallelism.zero_stage=auto"});
  const auto prepared = config::PrepareJob(config);
  ASSERT_TRUE(prepared.has_value()) << prepared.error();
  const int64_t third = search::LeastStateBytes(prepared->request) / 3;
  const HastyClock clock;
  const auto changes =
      FindFittingChanges(config, Devices(1, third), search::SearchTime(30'000, 30'000, clock));
  EXPECT_NE(Says(changes, "--memory-mib "), nullptr) << FormatChanges(changes);
  EXPECT_NE(Says(changes, "4 times the hosts"), nullptr) << FormatChanges(changes);
  EXPECT_LE(clock.NowMs(), 45'000);
}

TEST(FormatChanges, SaysWhatEachTakes) {
  EXPECT_EQ(FormatChanges({{{"set x = 1", 0.5, "data=2"}}, {}}),
            "any one of these makes it fit:\n"
            "  set x = 1\n"
            "    step 500 ms, data=2\n");
  EXPECT_NE(FormatChanges({}).find("no single change"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::report
