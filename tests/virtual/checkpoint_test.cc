// A checkpoint of any layout loads into any other: what is saved is the state, not who held it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/philox.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/saved_states.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

constexpr int64_t kSavedSteps = 2;
constexpr int64_t kFurtherSteps = 5;
constexpr int kCheckpointVocabulary = 64;

struct CheckpointCase {
  const char* name;
  int devices = 1;
  LayoutCase degrees = {};
  int64_t zero = 0;
  const char* schedule = "1f1b";
  int64_t chunks = 0;
  bool sequence_parallel = false;
  const char* stage_meshes = "";
  int64_t shard = 0;  // groups of replicas (planner/zero_levels.h)
  int64_t gradients = 0;
  int64_t weights = 0;
};

const CheckpointCase kCheckpointCases[] = {
    {"one device"},
    {"data=4", 4, {4, 1, 1, 1}},
    {"tensor=4", 4, {1, 4, 1, 1}},
    {"pipeline=4", 4, {1, 1, 4, 4}},
    {"data=2 tensor=2", 4, {2, 2, 1, 1}, 0, "1f1b", 0, true},
    {"data=2 pipeline=2", 4, {2, 1, 2, 2}},
    {"tensor=2 pipeline=2 zb-h1", 4, {1, 2, 2, 4}, 0, "zb-h1"},
    {"data=4 zero=1", 4, {4, 1, 1, 1}, 1},
    {"data=4 zero=3", 4, {4, 1, 1, 2}, 3},
    {"data=2 tensor=2 pipeline=2 zero=2", 8, {2, 2, 2, 4}, 2},
    {"pipeline=2 in two chunks", 2, {1, 1, 2, 4}, 0, "interleaved", 2},
    {"unequal stages", 3, {1, 1, 1, 2}, 1, "1f1b", 0, false, "2x1,1x1"},
    {"data=4 zero=3 in groups of 2", 4, {4, 1, 1, 2}, 3, "1f1b", 0, false, "", 2},
    {"data=4 zero=3 weights in pairs", 4, {4, 1, 1, 1}, 3, "1f1b", 0, false, "", 4, 4, 2},
    {"data=8 zero=3 by levels", 8, {8, 1, 1, 2}, 3, "1f1b", 0, false, "", 8, 4, 2},
    {"data=4 pipeline=2 zero=2 by levels", 8, {4, 1, 2, 2}, 2, "1f1b", 0, false, "", 4, 2},
};

ir::JobRequest JobOf(const CheckpointCase& c) {
  TinyOptions options;
  options.layers = 4;
  options.vocabulary = kCheckpointVocabulary;
  options.dropout = 0.1;
  ir::JobRequest job = MakeTinyJob(options);
  if (c.stage_meshes[0] != '\0') {
    job.parallel = ir::OpenParallel();
    job.parallel.stage_meshes = c.stage_meshes;
    job.parallel.microbatches = c.degrees.microbatches;
  } else {
    job = WithLayout(job, c.degrees);
  }
  job.parallel.zero = c.zero;
  job.parallel.zero_shard = c.shard;
  job.parallel.zero_gradients = c.gradients;
  job.parallel.zero_weights = c.weights;
  job.parallel.schedule = c.schedule;
  job.parallel.chunks = c.chunks;
  job.parallel.sequence_parallel = c.sequence_parallel;
  return job;
}

TEST(CheckpointPairs, EveryLayoutGoesOnFromEveryOther) {
  SavedStates states;
  SyntheticTokens tokens(kCheckpointVocabulary);
  std::vector<CheckpointCase> cases(std::begin(kCheckpointCases), std::end(kCheckpointCases));
  if (kSanitizedBuild) cases = {kCheckpointCases[0], kCheckpointCases[9], kCheckpointCases[11]};
  std::vector<Trained> undisturbed;
  for (const CheckpointCase& c : cases) {
    const auto cluster = VirtualCluster::Start(JobOf(c), c.devices, &tokens);
    ASSERT_TRUE(cluster.has_value()) << c.name << ": " << cluster.error();
    ASSERT_TRUE((*cluster)->Train(0, kSavedSteps).has_value()) << c.name;
    const Status saved = states.Save(**cluster, kSavedSteps, c.name);
    ASSERT_TRUE(saved.ok()) << c.name << ": " << saved;
    auto trained = TrainOn(**cluster, kSavedSteps, kFurtherSteps);
    ASSERT_TRUE(trained.has_value()) << c.name << ": " << trained.error();
    undisturbed.push_back(std::move(*trained));
  }
  for (size_t to = 0; to < cases.size(); ++to) {
    const auto cluster =
        VirtualCluster::Start(JobOf(cases[to]), cases[to].devices, &tokens).value();
    for (size_t from = 0; from < cases.size(); ++from) {
      const std::string pair = fmt::format("{} from {}", cases[to].name, cases[from].name);
      const Status loaded = states.Load(*cluster, kSavedSteps, cases[from].name);
      ASSERT_TRUE(loaded.ok()) << pair << ": " << loaded;
      const Trained trained = TrainOn(*cluster, kSavedSteps, kFurtherSteps).value();
      ExpectSameTraining(undisturbed[from], trained, from == to, pair);
    }
  }
}

TEST(CheckpointPairs, StateThatTheCheckpointLacksIsNamed) {
  SavedStates states;
  SyntheticTokens tokens(kCheckpointVocabulary);
  TinyOptions options;
  options.layers = 2;
  options.vocabulary = kCheckpointVocabulary;
  const auto small = VirtualCluster::Start(MakeTinyJob(options), 1, &tokens).value();
  ASSERT_TRUE(states.Save(*small, 0, "small").ok());
  options.layers = 3;
  const auto deeper = VirtualCluster::Start(MakeTinyJob(options), 1, &tokens).value();
  const Status status = states.Load(*deeper, 0, "small");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("h.2."), std::string::npos) << status;
  options.layers = 2;
  options.vocabulary = 32;
  const auto narrower = VirtualCluster::Start(MakeTinyJob(options), 1, &tokens).value();
  EXPECT_EQ(states.Load(*narrower, 0, "small").code(), StatusCode::kInvalidArgument);
}

// ---- Experts, and rows that are shared token by token ----

struct AxisCase {
  int64_t data, expert, context, tensor, pipeline, zero;
  int devices() const { return static_cast<int>(data * context * tensor * pipeline); }
  std::string name() const {
    return fmt::format("data={} expert={} context={} tensor={} pipeline={} zero={}", data, expert,
                       context, tensor, pipeline, zero);
  }
};

const AxisCase kAxisCases[] = {
    {1, 1, 1, 1, 1, 0}, {2, 2, 1, 1, 1, 0}, {2, 2, 1, 1, 1, 3}, {4, 2, 1, 1, 1, 0},
    {4, 4, 1, 1, 1, 1}, {4, 2, 1, 1, 1, 2}, {4, 4, 1, 1, 1, 3}, {1, 1, 2, 1, 1, 0},
    {1, 1, 4, 1, 1, 0}, {2, 1, 2, 1, 1, 3}, {2, 2, 2, 1, 1, 0}, {2, 2, 2, 1, 1, 2},
    {2, 2, 1, 2, 1, 0}, {2, 2, 1, 2, 1, 3}, {1, 1, 2, 2, 1, 0}, {2, 2, 1, 1, 2, 0},
    {4, 2, 1, 1, 2, 1}, {4, 4, 1, 1, 2, 3}, {2, 2, 2, 1, 2, 0}, {2, 2, 2, 2, 1, 1},
    {2, 1, 2, 1, 2, 2}, {1, 1, 2, 2, 2, 0}, {2, 2, 1, 2, 2, 3}, {4, 2, 2, 1, 1, 3},
};

ir::JobRequest JobOf(const AxisCase& c) {
  TinyOptions options;
  options.family = "mixtral";
  options.layers = 2;
  options.batch = 8;
  options.sequence = 16;
  options.vocabulary = kCheckpointVocabulary;
  ir::JobRequest job = MakeTinyJob(options);
  job.parallel.data = c.data;
  job.parallel.expert = c.expert;
  job.parallel.context = c.context;
  job.parallel.tensor = c.tensor;
  job.parallel.pipeline = c.pipeline;
  job.parallel.microbatches = c.pipeline == 1 ? 1 : 2;
  job.parallel.zero = c.zero;
  return job;
}

TEST(CheckpointPairs, LayoutsWithExpertsAndContextGoOnFromDrawnOthers) {
  constexpr uint64_t kSeed = 23;
  const auto many = static_cast<uint64_t>(std::size(kAxisCases));
  const int pairs = kSanitizedBuild ? 6 : 100;
  SavedStates states;
  SyntheticTokens tokens(kCheckpointVocabulary);
  std::map<size_t, Trained> undisturbed;
  for (int i = 0; i < pairs && !::testing::Test::HasFailure(); ++i) {
    // Every layout is once the one that loads what it has saved itself.
    const auto number = static_cast<uint64_t>(i);
    const size_t from = PhiloxBits(kSeed, 0, 0, number) % many;
    const size_t to = number < many ? from : PhiloxBits(kSeed, 1, 0, number) % many;
    const AxisCase& saves = kAxisCases[from];
    const AxisCase& loads = kAxisCases[to];
    const std::string pair = fmt::format("{} from {} (seed {})", loads.name(), saves.name(), kSeed);
    if (!undisturbed.contains(from)) {
      const auto cluster = VirtualCluster::Start(JobOf(saves), saves.devices(), &tokens);
      ASSERT_TRUE(cluster.has_value()) << saves.name() << ": " << cluster.error();
      ASSERT_TRUE((*cluster)->Train(0, kSavedSteps).has_value()) << saves.name();
      const Status saved = states.Save(**cluster, kSavedSteps, saves.name());
      ASSERT_TRUE(saved.ok()) << saves.name() << ": " << saved;
      auto trained = TrainOn(**cluster, kSavedSteps, kFurtherSteps);
      ASSERT_TRUE(trained.has_value()) << saves.name() << ": " << trained.error();
      undisturbed[from] = std::move(*trained);
    }
    const auto cluster = VirtualCluster::Start(JobOf(loads), loads.devices(), &tokens).value();
    const Status loaded = states.Load(*cluster, kSavedSteps, saves.name());
    ASSERT_TRUE(loaded.ok()) << pair << ": " << loaded;
    const auto trained = TrainOn(*cluster, kSavedSteps, kFurtherSteps);
    ASSERT_TRUE(trained.has_value()) << pair << ": " << trained.error();
    ExpectSameTraining(undisturbed.at(from), *trained, from == to, pair);
  }
}

}  // namespace
}  // namespace meshwright::testing
