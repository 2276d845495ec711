// Stages on meshes of different sizes train the same model as one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <vector>

#include "planner/layout.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

struct UnequalCase {
  const char* meshes;
  int64_t microbatches = 2;
  int64_t zero = 0;
  bool sequence_parallel = false;
  const char* schedule = "1f1b";
  int64_t chunks = 0;
  const char* part_layers = "";
  bool in_sanitized = false;
  int64_t expert = 1;  // of the replicas, as many as a stage has in common with it
  const char* context_attention = "auto";
};

const UnequalCase kCases[] = {
    {.meshes = "2x1,1x1"},
    {.meshes = "1x1,2x1", .microbatches = 1},
    {.meshes = "1x2,1x1", .part_layers = "3,1"},
    {.meshes = "1x1,1x2", .microbatches = 4, .sequence_parallel = true},
    {.meshes = "2x1,1x2", .zero = 1},
    {.meshes = "1x2,2x1", .zero = 2, .sequence_parallel = true},
    {.meshes = "2x2,1x1", .zero = 3, .in_sanitized = true},
    {.meshes = "4x1,1x2,1x1"},
    {.meshes = "1x1,2x1,1x1", .microbatches = 4, .schedule = "zb-h1"},
    {.meshes = "2x1,1x1", .microbatches = 4, .schedule = "interleaved", .chunks = 2},
    {.meshes = "1x1,1x2", .microbatches = 4, .schedule = "zb-v"},
    {.meshes = "2x1,1x2", .microbatches = 4, .zero = 1, .schedule = "zb-h2"},
    {.meshes = "1x2,2x1", .microbatches = 3, .schedule = "v-half"},
    {.meshes = "1x2,1x1", .schedule = "gpipe"},
    // Common multiples that are no stage's own.
    {.meshes = "3x1,2x1", .microbatches = 1},
    {.meshes = "1x2,1x4,3x1", .microbatches = 1},
};

// Meshes are data x context x tensor, or data x tensor.
const UnequalCase kExpertCases[] = {
    {.meshes = "4x1,2x1", .expert = 2},
    {.meshes = "2x1,4x1", .zero = 1, .in_sanitized = true, .expert = 4},
    {.meshes = "2x2,3x1", .microbatches = 1, .zero = 3, .schedule = "zb-h1", .expert = 2},
    {.meshes = "4x1x1,2x2x1", .expert = 2},
    {.meshes = "1x1,2x2", .microbatches = 4, .schedule = "zb-v", .expert = 2},
};

const UnequalCase kContextCases[] = {
    {.meshes = "1x2x1,2x2x1"},
    {.meshes = "1x2x2,1x2x1", .zero = 1, .context_attention = "ring"},
    {.meshes = "2x2x1,1x2x1", .zero = 3, .in_sanitized = true, .context_attention = "ulysses"},
    {.meshes = "1x2x1,1x4x1", .context_attention = "gather"},
    {.meshes = "1x1x1,1x2x1", .microbatches = 4, .schedule = "zb-h2", .context_attention = "ring"},
};

void ExpectAsOneDevice(const TinyOptions& options, std::span<const UnequalCase> cases) {
  const ir::JobRequest job = MakeTinyJob(options);
  const auto expected = RunJob(WithLayout(job, {}), 1, 61);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const UnequalCase& c : cases) {
    if (kSanitizedBuild && !c.in_sanitized) continue;
    ir::JobRequest unequal = WithLayout(job, {});
    unequal.parallel = ir::OpenParallel();
    unequal.parallel.stage_meshes = c.meshes;
    unequal.parallel.microbatches = c.microbatches;
    unequal.parallel.zero = c.zero;
    unequal.parallel.sequence_parallel = c.sequence_parallel;
    unequal.parallel.schedule = c.schedule;
    unequal.parallel.chunks = c.chunks;
    unequal.parallel.part_layers = c.part_layers;
    unequal.parallel.expert = c.expert;
    unequal.parallel.context_attention = c.context_attention;
    const auto degrees = planner::ParseStageDegrees(c.meshes);
    ASSERT_TRUE(degrees.has_value()) << degrees.error();
    const auto devices = std::accumulate(
        degrees->begin(), degrees->end(), int64_t{0},
        [](int64_t sum, const planner::Degrees& stage) { return sum + stage.device_count(); });
    const std::string layout = fmt::format("{} {} zero={} {}", c.meshes, c.schedule, c.zero,
                                           c.sequence_parallel ? "sequence" : "");
    const auto actual = RunJob(unequal, static_cast<int>(devices), 61);
    ASSERT_TRUE(actual.has_value()) << layout << ": " << actual.error();
    ExpectEqual(*expected, *actual, 1e-10, layout);
    EXPECT_EQ(actual->plan.layout.expert(), c.expert) << layout;
    for (size_t stage = 0; stage < degrees->size(); ++stage) {
      EXPECT_EQ(actual->plan.stages[stage].mesh.device_count(), (*degrees)[stage].device_count());
    }
  }
}

class UnequalStages : public ::testing::TestWithParam<const char*> {};

TEST_P(UnequalStages, TrainTheModelOfOneDevice) {
  TinyOptions options;
  options.family = GetParam();
  options.layers = 4;
  options.batch = 48;
  ExpectAsOneDevice(options, kCases);
}

TEST(UnequalAxes, ReplicasOfEachStageShareExperts) {
  TinyOptions options;
  options.family = "mixtral";
  options.layers = 4;
  options.batch = 24;
  ExpectAsOneDevice(options, kExpertCases);
}

TEST(UnequalAxes, DevicesOfEachStageShareRows) {
  TinyOptions options;
  options.family = "llama";
  options.layers = 2;
  options.batch = 8;
  options.sequence = 16;
  options.document_separator = 3;
  ExpectAsOneDevice(options, kContextCases);
}

// Other systems dropped layers that stages do not divide, and trained a smaller model.
TEST(UnequalLayers, EveryLayerIsOfOneStageAndTrains) {
  struct UnevenCase {
    const char* schedule;
    int stages, chunks, layers;
  };
  const UnevenCase cases[] = {{"1f1b", 4, 1, 7},  {"gpipe", 3, 1, 5}, {"interleaved", 2, 3, 7},
                              {"zb-h2", 3, 1, 7}, {"zb-v", 2, 2, 5},  {"v-half", 3, 2, 7},
                              {"v-min", 2, 2, 6}};
  for (const UnevenCase& c : cases) {
    if (kSanitizedBuild && c.chunks != 2) continue;
    TinyOptions options;
    options.family = c.layers == 7 ? "llama" : "gpt2";
    options.layers = c.layers;
    options.batch = 6;
    const ir::JobRequest job = MakeTinyJob(options);
    const auto expected = RunJob(WithLayout(job, {}), 1, 61);
    ASSERT_TRUE(expected.has_value()) << expected.error();
    ir::JobRequest staged = WithLayout(job, {1, 1, c.stages, 3});
    staged.parallel.schedule = c.schedule;
    staged.parallel.chunks = c.chunks;
    const std::string layout =
        fmt::format("{} {}x{}, {} layers", c.schedule, c.stages, c.chunks, c.layers);
    const auto actual = RunJob(staged, c.stages, 61);
    ASSERT_TRUE(actual.has_value()) << layout << ": " << actual.error();
    ExpectEqual(*expected, *actual, 1e-10, layout);
    std::vector<int> stages_of_layer(static_cast<size_t>(c.layers));
    for (const planner::StageInfo& stage : actual->plan.stages) {
      for (const auto& [first, last] : stage.layers) {
        for (int layer = first; layer <= last; ++layer) {
          ++stages_of_layer[static_cast<size_t>(layer)];
        }
      }
    }
    EXPECT_EQ(stages_of_layer, std::vector<int>(stages_of_layer.size(), 1)) << layout;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, UnequalStages, ::testing::Values("gpt2", "llama"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace meshwright::testing
