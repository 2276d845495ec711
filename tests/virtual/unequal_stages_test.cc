// Stages on meshes of different sizes train the same model as one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

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
    {.meshes = "1x2,1x1", .schedule = "gpipe"},
    // Common multiples that are no stage's own.
    {.meshes = "3x1,2x1", .microbatches = 1},
    {.meshes = "1x2,1x4,3x1", .microbatches = 1},
};

class UnequalStages : public ::testing::TestWithParam<const char*> {};

TEST_P(UnequalStages, TrainTheModelOfOneDevice) {
  TinyOptions options;
  options.family = GetParam();
  options.layers = 4;
  options.batch = 48;
  const ir::JobRequest job = MakeTinyJob(options);
  const auto expected = RunJob(WithLayout(job, {}), 1, 61);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  for (const UnequalCase& c : kCases) {
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
    for (size_t stage = 0; stage < degrees->size(); ++stage) {
      EXPECT_EQ(actual->plan.stages[stage].mesh.device_count(), (*degrees)[stage].device_count());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, UnequalStages, ::testing::Values("gpt2", "llama"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace meshwright::testing
