// State, gradients and activations in the memory of the host and on a disk: what is trained is the
// same bit for bit, and every memory is used as the plan says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/philox.h"
#include "planner/host_update.h"
#include "planner/zero_levels.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/saved_states.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

constexpr int kTierVocabulary = 64;

struct TierCase {
  const char* name;
  LayoutCase degrees = {};
  int64_t zero = 0;
  const char* schedule = "1f1b";
  ir::DType compute = ir::DType::kF32;
  planner::ZeroGroups groups = {};
};

const TierCase kTierCases[] = {
    {"one device"},
    {"microbatches", {1, 1, 1, 2}},
    {"data=2", {2, 1, 1, 1}},
    {"data=2 zero=1", {2, 1, 1, 1}, 1},
    {"data=2 zero=2 microbatches", {2, 1, 1, 2}, 2},
    {"data=2 zero=3", {2, 1, 1, 1}, 3},
    {"tensor=2", {1, 2, 1, 1}},
    {"pipeline=2", {1, 1, 2, 4}},
    {"pipeline=2 zb-v", {1, 1, 2, 4}, 0, "zb-v"},
    {"data=2 tensor=2 pipeline=2 zero=1", {2, 2, 2, 2}, 1},
    {"pipeline=2 shared vocabulary", {1, 1, 2, 4}, 0, "1f1b-vocab"},
    {"pipeline=2 interleaved", {1, 1, 2, 4}, 0, "interleaved"},
    {"data=4 in groups of 2 zero=3", {4, 1, 1, 2}, 3, "1f1b", ir::DType::kF32, {2, 0, 0}},
    {"tensor=3 padded", {1, 3, 1, 1}},
    {"bf16", {}, 0, "1f1b", ir::DType::kBF16},
    {"f16", {}, 0, "1f1b", ir::DType::kF16},
};

// Where things are.
struct Memories {
  const char* name;
  const char* optimizer = "device";
  const char* weights = "device";
  const char* gradients = "device";
  const char* activations = "device";
  int64_t chunk_bytes = 40'000;  // 1: each tensor by itself
  int64_t host_update = 0;       // percent of the state
};

constexpr Memories kNear = {"on the device"};
constexpr Memories kStateOnHost = {"state on the host", "host", "host"};
constexpr Memories kAllOnDisk = {"state on the disk", "disk", "disk", "host", "host"};
constexpr Memories kMemories[] = {
    {"optimizer on the host", "host"},
    {"state on the host, one by one", "host", "host", "device", "device", 1},
    {"activations on the host", "device", "device", "device", "host", 1},
    {"gradients on the host", "device", "device", "host", "device", 4096},
    {"all on the host", "host", "host", "host", "host"},
    {"all far, one by one", "disk", "host", "host", "host", 1},
    kAllOnDisk,
    {"the host renews all", "host", "device", "device", "device", 40'000, 100},
    {"the host renews half, all on the host", "host", "host", "host", "host", 4096, 50},
};

ir::JobRequest TierJob(const TierCase& c, const Memories& memories) {
  TinyOptions options;
  options.layers = 4;
  options.batch = 8;
  options.vocabulary = kTierVocabulary;
  options.dtype = c.compute == ir::DType::kF32 ? ir::DType::kF64 : ir::DType::kF32;
  ir::JobRequest job = WithLayout(MakeTinyJob(options), c.degrees);
  job.parallel.zero = c.zero;
  job.parallel.schedule = c.schedule;
  job.parallel.chunks = 0;
  job.parallel.zero_shard = c.groups.state;
  job.parallel.zero_gradients = c.groups.gradients;
  job.parallel.zero_weights = c.groups.weights;
  job.train.compute_dtype = c.compute;
  if (c.compute == ir::DType::kF16) job.train.loss_scale = 1024;
  job.parallel.optimizer_memory = memories.optimizer;
  job.parallel.weights_memory = memories.weights;
  job.parallel.gradients_memory = memories.gradients;
  job.parallel.activations_memory = memories.activations;
  job.parallel.offload_chunk_bytes = memories.chunk_bytes;
  job.parallel.host_update = memories.host_update;
  return job;
}

TEST(Tiers, TrainTheSameModelBitForBit) {
  for (const TierCase& c : kTierCases) {
    if (kSanitizedBuild && (c.degrees.devices() > 2 || c.zero == 1 || c.zero == 3)) continue;
    const int devices = c.degrees.devices();
    const auto device = RunJob(TierJob(c, kNear), devices, kTierVocabulary);
    ASSERT_TRUE(device.has_value()) << c.name << ": " << device.error();
    for (const Memories& memories : kMemories) {
      const bool variant =
          memories.chunk_bytes == 1 || memories.activations == std::string("device");
      if (kSanitizedBuild && variant) continue;
      const std::string what = fmt::format("{}, {}", c.name, memories.name);
      const auto far = RunJob(TierJob(c, memories), devices, kTierVocabulary);
      ASSERT_TRUE(far.has_value()) << what << ": " << far.error();
      ExpectEqual(*device, *far, 0, what);
      const auto groups = planner::UpdateGroupsOf(far->plan.Main()[0]);
      const bool on_host = std::any_of(groups.begin(), groups.end(),
                                       [](const auto& group) { return group.on_host; });
      EXPECT_EQ(on_host, memories.host_update > 0) << what;
    }
  }
}

// Everything that a worker takes is what the plan says, in each memory; and all of the state, four
// times what the device has.
TEST(Tiers, TakeWhatThePlanSays) {
  TinyOptions options;
  options.layers = 16;
  options.batch = 4;
  options.vocabulary = kTierVocabulary;
  options.dtype = ir::DType::kF64;
  ir::JobRequest job = WithLayout(MakeTinyJob(options), {1, 1, 1, 1});
  const auto near = RunJob(job, 1, kTierVocabulary);
  ASSERT_TRUE(near.has_value()) << near.error();
  job.parallel.optimizer_memory = "disk";
  job.parallel.weights_memory = job.parallel.gradients_memory = "host";
  job.parallel.activations_memory = "host";
  job.parallel.offload_chunk_bytes = 1;
  SyntheticTokens tokens(kTierVocabulary);
  const auto cluster = VirtualCluster::Start(job, 1, &tokens);
  ASSERT_TRUE(cluster.has_value()) << cluster.error();
  const auto far = RunOn(**cluster);
  ASSERT_TRUE(far.has_value()) << far.error();
  ExpectEqual(*near, *far, 0, "all far");
  const planner::DeviceMemory& memory = (*cluster)->plan().memory[0];
  const worker::DeviceStats stats = (*cluster)->runtime().Stats()[0];
  int64_t held = 0;
  for (const auto& [kind, bytes] : stats.memory_bytes) held += bytes;
  EXPECT_EQ(stats.disk_bytes, memory.disk.total_bytes);
  EXPECT_EQ(stats.host_bytes, memory.host.total_bytes);
  EXPECT_EQ(held, memory.total_bytes);
  int64_t state = 0;
  for (const auto kind : {ir::MemoryKind::kWeights, ir::MemoryKind::kOptimizer}) {
    state += near->plan.memory[0].bytes.at(kind);
  }
  EXPECT_GE(state, 4 * memory.total_bytes) << "the device has " << memory.total_bytes;
}

// The limit is what the plan says.
TEST(Tiers, StayWithinTheDevicesMemory) {
  TierCase c{"one device"};
  ir::JobRequest job = TierJob(c, kMemories[0]);
  job.parallel.offload_chunk_bytes = 4096;
  const auto plan = planner::MakePlan(job, mesh::Topology::Local(1));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const planner::DeviceMemory& memory = plan->memory[0];
  const auto fits = RunJob(job, 1, kTierVocabulary, memory.total_bytes);
  ASSERT_TRUE(fits.has_value()) << fits.error();
  // A device has no more than its plan says, and runs nothing that takes more.
  planner::Plan wrong = *plan;
  --wrong.memory[0].total_bytes;
  SyntheticTokens tokens(kTierVocabulary);
  const auto less = VirtualCluster::StartPlan(wrong, job.train.seed, &tokens, ops::Backend::kCpu);
  ASSERT_FALSE(less.has_value());
  EXPECT_EQ(less.error().code(), StatusCode::kResourceExhausted) << less.error();
  const auto refused = RunJob(TierJob(c, kNear), 1, kTierVocabulary, memory.total_bytes);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("parallelism.optimizer_memory = \"host\""),
            std::string::npos)
      << refused.error();
}

// State goes from one memory to the other by a checkpoint.
TEST(Tiers, CheckpointsLoadIntoEitherMemory) {
  SavedStates states;
  SyntheticTokens tokens(kTierVocabulary);
  const TierCase cases[] = {
      {"one"}, {"data=2 zero=2", {2, 1, 1, 1}, 2}, {"pipeline=2", {1, 1, 2, 2}}};
  const std::pair<Memories, Memories> ways[] = {
      {kNear, kStateOnHost}, {kStateOnHost, kAllOnDisk}, {kAllOnDisk, kNear}};
  for (const auto& [here, there] : ways) {
    for (const TierCase& from : cases) {
      if (kSanitizedBuild && from.zero == 0) continue;
      const std::string folder = fmt::format("{} {}", from.name, here.name);
      const auto saved =
          VirtualCluster::Start(TierJob(from, here), from.degrees.devices(), &tokens);
      ASSERT_TRUE(saved.has_value()) << folder << ": " << saved.error();
      ASSERT_TRUE((*saved)->Train(0, 2).has_value()) << folder;
      const Status stored = states.Save(**saved, 2, folder);
      ASSERT_TRUE(stored.ok()) << folder << ": " << stored;
      const auto undisturbed = TrainOn(**saved, 2, 3);
      ASSERT_TRUE(undisturbed.has_value()) << folder << ": " << undisturbed.error();
      for (const TierCase& to : cases) {
        const std::string pair = fmt::format("{} from {}", to.name, folder);
        const auto loaded =
            VirtualCluster::Start(TierJob(to, there), to.degrees.devices(), &tokens);
        ASSERT_TRUE(loaded.has_value()) << pair << ": " << loaded.error();
        const Status taken = states.Load(**loaded, 2, folder);
        ASSERT_TRUE(taken.ok()) << pair << ": " << taken;
        const auto trained = TrainOn(**loaded, 2, 3);
        ASSERT_TRUE(trained.has_value()) << pair << ": " << trained.error();
        ExpectSameTraining(*undisturbed, *trained, &from == &to, pair);
      }
    }
  }
}

// ---- drawn pairs of layouts ----

struct DrawnLayout {
  TierCase layout;
  Memories memories;
  std::optional<bool> overlap = std::nullopt;
};

constexpr Memories kRenewed = {"the host renews", "host", "device", "device", "device", 4096, 100};
constexpr Memories kHalfRenewed = {
    "the host renews half", "host", "host", "host", "host", 4096, 50};

const DrawnLayout kDrawnLayouts[] = {
    {{"one"}, kNear},
    {{"one in microbatches", {1, 1, 1, 2}}, kAllOnDisk},
    {{"data=2", {2, 1, 1, 1}}, kNear, true},
    {{"data=2 zero=1", {2, 1, 1, 1}, 1}, kStateOnHost, true},
    {{"data=2 zero=2", {2, 1, 1, 2}, 2}, kRenewed},
    {{"data=2 zero=3", {2, 1, 1, 1}, 3}, kAllOnDisk},
    {{"state in pairs", {4, 1, 1, 2}, 3, "1f1b", ir::DType::kF32, {2, 0, 0}}, kStateOnHost},
    {{"three levels", {4, 1, 1, 1}, 3, "1f1b", ir::DType::kF32, {4, 2, 1}}, kNear, true},
    {{"gradients in pairs", {4, 1, 1, 2}, 2, "1f1b", ir::DType::kF32, {4, 2, 0}}, kHalfRenewed},
    {{"tensor=2", {1, 2, 1, 1}}, kAllOnDisk, true},
    {{"tensor=3 padded", {1, 3, 1, 1}}, kStateOnHost},
    {{"pipeline=2", {1, 1, 2, 4}}, kHalfRenewed},
    {{"pipeline=2 shared vocabulary", {1, 1, 2, 4}, 0, "1f1b-vocab"}, kStateOnHost},
    {{"pipeline=2 interleaved", {1, 1, 2, 4}, 0, "interleaved"}, kRenewed},
    {{"pipeline=2 zb-v", {1, 1, 2, 4}, 0, "zb-v"}, kAllOnDisk},
    {{"data=2 tensor=2 pipeline=2", {2, 2, 2, 2}, 1}, kStateOnHost},
};

// A layout whose state behind two steps is saved, and how it goes on.
struct SavedLayout {
  std::unique_ptr<VirtualCluster> cluster;
  Trained undisturbed;
};

Result<SavedLayout> TrainAndSave(const DrawnLayout& drawn, ops::FeedSource& tokens,
                                 SavedStates& states) {
  ir::JobRequest job = TierJob(drawn.layout, drawn.memories);
  job.parallel.overlap = drawn.overlap;
  SavedLayout saved;
  MW_ASSIGN_OR_RETURN(saved.cluster,
                      VirtualCluster::Start(job, drawn.layout.degrees.devices(), &tokens));
  MW_TRY(saved.cluster->Train(0, 2));
  MW_TRY(states.Save(*saved.cluster, 2, drawn.layout.name));
  MW_ASSIGN_OR_RETURN(saved.undisturbed, TrainOn(*saved.cluster, 2, 2));
  return saved;
}

TEST(Tiers, DrawnPairsOfLayoutsLoadEachOthersState) {
  constexpr uint64_t kSeed = 24;
  const uint64_t pairs = kSanitizedBuild ? 3 : 50;
  SavedStates states;
  SyntheticTokens tokens(kTierVocabulary);
  std::map<size_t, SavedLayout> layouts;  // by their place in the list
  for (uint64_t pair = 0; pair < pairs; ++pair) {
    const size_t from = PhiloxBits(kSeed, 0, pair, 0) % std::size(kDrawnLayouts);
    const size_t to = PhiloxBits(kSeed, 0, pair, 1) % std::size(kDrawnLayouts);
    const std::string what =
        fmt::format("seed {} pair {}: {} from {}", kSeed, pair, kDrawnLayouts[to].layout.name,
                    kDrawnLayouts[from].layout.name);
    for (const size_t each : {from, to}) {
      if (layouts.contains(each)) continue;
      auto saved = TrainAndSave(kDrawnLayouts[each], tokens, states);
      ASSERT_TRUE(saved.has_value()) << what << ": " << saved.error();
      layouts[each] = *std::move(saved);
    }
    const Status taken = states.Load(*layouts[to].cluster, 2, kDrawnLayouts[from].layout.name);
    ASSERT_TRUE(taken.ok()) << what << ": " << taken;
    const auto trained = TrainOn(*layouts[to].cluster, 2, 2);
    ASSERT_TRUE(trained.has_value()) << what << ": " << trained.error();
    ExpectSameTraining(layouts[from].undisturbed, *trained, from == to, what);
  }
  EXPECT_GE(layouts.size(), kSanitizedBuild ? 2u : 12u) << "seed " << kSeed;
}

}  // namespace
}  // namespace meshwright::testing
