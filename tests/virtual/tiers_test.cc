// The optimizer's state in the memory of the host: what is trained is the same bit for bit, on CPUs
// and on GPUs, and the device's memory is what the plan says.
#include <fmt/format.h>
#include <gtest/gtest.h>

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
};

const TierCase kTierCases[] = {
    {"one device"},
    {"data=2", {2, 1, 1, 1}},
    {"data=2 zero=1", {2, 1, 1, 1}, 1},
    {"data=2 zero=2 microbatches", {2, 1, 1, 2}, 2},
    {"data=2 zero=3", {2, 1, 1, 1}, 3},
    {"tensor=2", {1, 2, 1, 1}},
    {"pipeline=2", {1, 1, 2, 4}},
    {"pipeline=2 zb-v", {1, 1, 2, 4}, 0, "zb-v"},
    {"data=2 tensor=2 pipeline=2 zero=1", {2, 2, 2, 2}, 1},
    {"bf16", {}, 0, "1f1b", ir::DType::kBF16},
};

// What is on the host.
enum class Moved { kNothing, kOptimizer, kAll };

ir::JobRequest TierJob(const TierCase& c, Moved moved, int64_t chunk_bytes = 4096) {
  TinyOptions options;
  options.layers = 4;
  options.batch = 8;
  options.vocabulary = kTierVocabulary;
  options.dtype = c.compute == ir::DType::kBF16 ? ir::DType::kF32 : ir::DType::kF64;
  ir::JobRequest job = WithLayout(MakeTinyJob(options), c.degrees);
  job.parallel.zero = c.zero;
  job.parallel.schedule = c.schedule;
  job.parallel.chunks = 0;
  job.train.compute_dtype = c.compute;
  if (moved != Moved::kNothing) job.parallel.optimizer_memory = "host";
  if (moved == Moved::kAll) job.parallel.weights_memory = "host";
  job.parallel.offload_chunk_bytes = chunk_bytes;
  return job;
}

TEST(Tiers, TrainTheSameModelBitForBit) {
  for (const TierCase& c : kTierCases) {
    if (kSanitizedBuild && (c.degrees.devices() > 2 || c.zero == 1 || c.zero == 3)) continue;
    const int devices = c.degrees.devices();
    const auto device = RunJob(TierJob(c, Moved::kNothing), devices, kTierVocabulary);
    ASSERT_TRUE(device.has_value()) << c.name << ": " << device.error();
    for (const Moved moved : {Moved::kOptimizer, Moved::kAll}) {
      for (const int64_t chunk_bytes : {int64_t{1}, int64_t{40'000}}) {
        if (kSanitizedBuild && chunk_bytes == 1) continue;
        const std::string what = fmt::format("{}, {} kinds on the host, chunks of {}", c.name,
                                             static_cast<int>(moved), chunk_bytes);
        const auto host = RunJob(TierJob(c, moved, chunk_bytes), devices, kTierVocabulary);
        ASSERT_TRUE(host.has_value()) << what << ": " << host.error();
        EXPECT_EQ(host->plan.memory[0].host_bytes.size(), static_cast<size_t>(moved)) << what;
        ExpectEqual(*device, *host, 0, what);
      }
    }
  }
}

// The limit is what the plan says.
TEST(Tiers, StayWithinTheDevicesMemory) {
  TierCase c{"one device"};
  ir::JobRequest job = TierJob(c, Moved::kOptimizer);
  const auto plan = planner::MakePlan(job, mesh::Topology::Local(1));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  const planner::DeviceMemory& memory = plan->memory[0];
  const auto fits = RunJob(job, 1, kTierVocabulary, memory.total_bytes);
  ASSERT_TRUE(fits.has_value()) << fits.error();
  const auto refused = RunJob(TierJob(c, Moved::kNothing), 1, kTierVocabulary, memory.total_bytes);
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
  for (const Moved from_host : {Moved::kNothing, Moved::kAll}) {
    for (const TierCase& from : cases) {
      const std::string folder = fmt::format("{} {}", from.name, static_cast<int>(from_host));
      const auto saved =
          VirtualCluster::Start(TierJob(from, from_host), from.degrees.devices(), &tokens);
      ASSERT_TRUE(saved.has_value()) << folder << ": " << saved.error();
      ASSERT_TRUE((*saved)->Train(0, 2).has_value()) << folder;
      const Status stored = states.Save(**saved, 2, folder);
      ASSERT_TRUE(stored.ok()) << folder << ": " << stored;
      const auto undisturbed = TrainOn(**saved, 2, 3);
      ASSERT_TRUE(undisturbed.has_value()) << folder << ": " << undisturbed.error();
      for (const TierCase& to : cases) {
        const std::string pair = fmt::format("{} from {}", to.name, folder);
        const Moved other = from_host == Moved::kAll ? Moved::kOptimizer : Moved::kAll;
        const auto loaded =
            VirtualCluster::Start(TierJob(to, other), to.degrees.devices(), &tokens);
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

}  // namespace
}  // namespace meshwright::testing
