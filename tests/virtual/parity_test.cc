// Layout never changes the result: every factorisation of 1, 2, 4 and 8 devices trains the same
// model as one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {
namespace {

struct Degrees {
  int data, tensor, pipeline;
};

std::vector<Degrees> Factorisations(int devices) {
  std::vector<Degrees> result;
  for (int data = 1; data <= devices; ++data) {
    for (int tensor = 1; data * tensor <= devices; ++tensor) {
      if (devices % (data * tensor) == 0)
        result.push_back({data, tensor, devices / (data * tensor)});
    }
  }
  return result;
}

void SetLayout(ir::JobRequest& job, const Degrees& degrees, int microbatches,
               const std::string& schedule) {
  job.parallel.data = degrees.data;
  job.parallel.tensor = degrees.tensor;
  job.parallel.pipeline = degrees.pipeline;
  job.parallel.microbatches = microbatches;
  job.parallel.schedule = schedule;
}

// Sanitized builds run one layout, which splits and sends everything there is, with a layer per
// stage.
bool RunsHere(const Degrees& degrees, int microbatches, const std::string& schedule) {
  if (!kSanitizedBuild) return true;
  return degrees.tensor == 2 && degrees.pipeline == 2 && microbatches == 4 && schedule == "1f1b";
}

// Runs every layout of `devices` and compares with one device.
void Sweep(TinyOptions options, int devices, double tolerance, bool sequence_parallel = false) {
  if (kSanitizedBuild) options.layers = 2;
  ir::JobRequest job = MakeTinyJob(options);
  SetLayout(job, {1, 1, 1}, 1, "1f1b");
  const auto expected = RunJob(job, 1, static_cast<int>(options.vocabulary));
  ASSERT_TRUE(expected.has_value()) << expected.error();
  job.parallel.sequence_parallel = sequence_parallel;
  int layouts = 0;
  for (const Degrees& degrees : Factorisations(devices)) {
    for (int microbatches : {1, 4}) {
      for (const char* schedule : {"gpipe", "1f1b"}) {
        // Without stages, or with one microbatch, both schedules give the same programs.
        if ((degrees.pipeline == 1 || microbatches == 1) && std::string(schedule) == "gpipe")
          continue;
        if (!RunsHere(degrees, microbatches, schedule)) continue;
        ++layouts;
        SetLayout(job, degrees, microbatches, schedule);
        const std::string layout =
            fmt::format("data={} tensor={} pipeline={} microbatches={} {}", degrees.data,
                        degrees.tensor, degrees.pipeline, microbatches, schedule);
        const auto actual = RunJob(job, devices, static_cast<int>(options.vocabulary));
        ASSERT_TRUE(actual.has_value()) << layout << ": " << actual.error();
        ExpectEqual(*expected, *actual, tolerance, layout);
      }
    }
  }
  EXPECT_GT(layouts, 0);
}

class Parity : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

std::vector<int> DeviceCounts() {
  if (kSanitizedBuild) return {8};
  return {1, 2, 4, 8};
}

TEST_P(Parity, EveryLayoutEqualsOneDeviceInF64) {
  TinyOptions options;
  options.family = std::get<0>(GetParam());
  Sweep(options, std::get<1>(GetParam()), 1e-10);
}

INSTANTIATE_TEST_SUITE_P(Models, Parity,
                         ::testing::Combine(::testing::Values("gpt2", "llama"),
                                            ::testing::ValuesIn(DeviceCounts())),
                         [](const auto& param_info) {
                           return std::get<0>(param_info.param) + "On" +
                                  std::to_string(std::get<1>(param_info.param));
                         });

TEST(ParityVariants, SplitVocabularyEqualsOneDevice) {
  TinyOptions options;
  options.vocabulary = 64;
  Sweep(options, 4, 1e-10);
}

TEST(ParityVariants, UntiedHeadEqualsOneDevice) {
  TinyOptions options;
  options.family = "llama";
  options.vocabulary = 64;
  options.tied = false;
  Sweep(options, 4, 1e-10);
}

TEST(ParityVariants, SequenceParallelEqualsOneDevice) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options;
    options.family = family;
    options.vocabulary = 64;
    Sweep(options, 4, 1e-10, /*sequence_parallel=*/true);
  }
}

TEST(ParityVariants, SequenceParallelWithPrimeVocabularyEqualsOneDevice) {
  TinyOptions options;
  Sweep(options, 4, 1e-10, /*sequence_parallel=*/true);
}

TEST(ParityVariants, DropoutMasksDoNotDependOnTheLayout) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options;
    options.family = family;
    options.dropout = 0.2;
    Sweep(options, 4, 1e-10);
  }
}

// Stages that hold several parts, and backwards that leave the gradients of weights for later: the
// same model. Folded schedules tie embedding and head on one stage.
TEST(ParityVariants, EveryScheduleEqualsOneDevice) {
  struct Schedule {
    const char* name;
    int chunks, pipeline, tensor, data, microbatches;
  };
  const Schedule schedules[] = {{"interleaved", 2, 2, 1, 1, 4}, {"interleaved", 2, 2, 2, 2, 4},
                                {"interleaved", 4, 2, 1, 1, 3}, {"interleaved", 2, 4, 1, 1, 6},
                                {"interleaved", 1, 4, 1, 1, 4}, {"zb-h1", 1, 2, 2, 2, 4},
                                {"zb-h1", 1, 4, 1, 1, 6},       {"zb-v", 2, 2, 2, 2, 4},
                                {"zb-v", 2, 4, 1, 1, 6},        {"zb-h2", 1, 2, 2, 2, 4},
                                {"zb-h2", 1, 4, 1, 1, 8},       {"v-half", 2, 2, 2, 2, 3},
                                {"v-half", 2, 4, 1, 1, 6},      {"v-min", 2, 2, 2, 2, 4},
                                {"v-min", 2, 4, 1, 1, 6}};
  for (const char* family : {"gpt2", "llama"}) {
    for (const bool tied : {true, false}) {
      TinyOptions options;
      options.family = family;
      options.tied = tied;
      if (kSanitizedBuild && tied != (options.family == "gpt2")) continue;
      options.batch = 48;
      options.dropout = 0.1;
      const ir::JobRequest job = MakeTinyJob(options);
      const auto expected = RunJob(WithLayout(job, {}), 1, 61);
      ASSERT_TRUE(expected.has_value()) << expected.error();
      for (const Schedule& s : schedules) {
        if (kSanitizedBuild && s.tensor == 1) continue;
        if (LeavesOut(2)) continue;
        ir::JobRequest staged = WithLayout(job, {s.data, s.tensor, s.pipeline, s.microbatches});
        staged.parallel.schedule = s.name;
        staged.parallel.chunks = s.chunks;
        const std::string layout = fmt::format("{} {} chunks={} {}", family, s.name, s.chunks,
                                               LayoutCase{s.data, s.tensor, s.pipeline}.ToString());
        const auto actual = RunJob(staged, s.data * s.tensor * s.pipeline, 61);
        ASSERT_TRUE(actual.has_value()) << layout << ": " << actual.error();
        ExpectEqual(*expected, *actual, 1e-10, layout);
      }
    }
  }
}

TEST(ParityVariants, PinnedLayersOfPartsAreTaken) {
  TinyOptions options;
  options.layers = 5;
  const ir::JobRequest job = MakeTinyJob(options);
  const auto expected = RunJob(WithLayout(job, {}), 1, 61);
  ir::JobRequest uneven = WithLayout(job, {1, 1, 2, 4});
  uneven.parallel.part_layers = "4,1";
  const auto actual = RunJob(uneven, 2, 61);
  ASSERT_TRUE(expected.has_value() && actual.has_value());
  ExpectEqual(*expected, *actual, 1e-10, "layers=4,1");
  EXPECT_EQ(actual->plan.stages[0].layers, (std::vector<std::pair<int, int>>{{0, 3}}));
  EXPECT_EQ(actual->plan.stages[1].layers, (std::vector<std::pair<int, int>>{{4, 4}}));
  for (const char* bad : {"4", "4,2", "4,x", "5,0"}) {
    uneven.parallel.part_layers = bad;
    const auto plan = planner::MakePlan(uneven, mesh::Topology::Local(2));
    ASSERT_FALSE(plan.has_value()) << bad;
    EXPECT_NE(plan.error().message().find("part_layers"), std::string::npos) << plan.error();
  }
}

TEST(ParityVariants, F32LayoutsAgreeWithinRounding) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options;
    options.family = family;
    options.dtype = ir::DType::kF32;
    options.layers = 4;
    // Adam divides by |gradient| + eps: where a gradient is all rounding, so is the step, unless
    // eps is above the rounding of f32 gradients.
    options.adam_eps = 1e-3;
    options.lr = 1e-3;
    Sweep(options, 4, 2e-5);
    if (kSanitizedBuild) continue;
    Sweep(options, 1, 2e-5);
    Sweep(options, 2, 2e-5);
    options.layers = 8;
    Sweep(options, 8, 2e-5);
  }
}

// In f64 a fused node runs its steps by the kernels of their ops; what is left is the order in
// which rows are added to a table's gradient, and in f32 the order of column sums.
TEST(ParityVariants, FusingChangesNothingButRounding) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options;
    options.family = family;
    options.layers = 2;
    options.dropout = 0.1;
    options.adam_eps = 1e-3;
    for (const auto& [dtype, tolerance] :
         {std::pair(ir::DType::kF64, 1e-14), std::pair(ir::DType::kF32, 1e-5)}) {
      options.dtype = dtype;
      ir::JobRequest job = MakeTinyJob(options);
      SetLayout(job, {2, 1, 1}, 2, "1f1b");
      const auto fused = RunJob(job, 2, 61);
      job.train.compile = false;
      const auto plain = RunJob(job, 2, 61);
      ASSERT_TRUE(fused.has_value()) << fused.error();
      ASSERT_TRUE(plain.has_value()) << plain.error();
      ExpectEqual(*plain, *fused, tolerance, family);
    }
  }
}

// Where memory is short the backward computes some activations again: the same bits.
TEST(ParityVariants, RecomputingChangesNothing) {
  for (const char* family : {"gpt2", "llama"}) {
    TinyOptions options;
    options.family = family;
    options.layers = 2;
    options.dropout = 0.1;
    ir::JobRequest job = MakeTinyJob(options);
    SetLayout(job, {2, 2, 2}, 4, "1f1b");
    const auto plan = planner::MakePlan(job, mesh::Topology::Local(8));
    ASSERT_TRUE(plan.has_value()) << plan.error();
    int64_t most = 0;
    for (const planner::DeviceMemory& memory : plan->memory) {
      most = std::max(most, memory.total_bytes);
    }
    const auto kept = RunJob(job, 8, 61, most);
    const auto recomputed = RunJob(job, 8, 61, most - 1);
    ASSERT_TRUE(kept.has_value()) << kept.error();
    ASSERT_TRUE(recomputed.has_value()) << recomputed.error();
    ExpectEqual(*kept, *recomputed, 0, family);
    job.train.compile = false;
    EXPECT_FALSE(RunJob(job, 8, 61, most / 2).has_value()) << "as it is written";
  }
}

TEST(ParityVariants, DocumentsEqualOneDevice) {
  for (const char* family : {"gpt2", "llama"}) {
    if (LeavesOut(2)) continue;
    TinyOptions options;
    options.family = family;
    options.layers = 4;
    options.vocabulary = 7;  // a separator in every second row or so
    const auto whole = RunJob(MakeTinyJob(options), 1, 7);
    options.document_separator = 1;
    const auto documents = RunJob(MakeTinyJob(options), 1, 7);
    ASSERT_TRUE(whole.has_value() && documents.has_value());
    EXPECT_GT(std::abs(whole->losses[0] - documents->losses[0]), 1e-6) << "nothing was hidden";
    Sweep(options, 4, 1e-10);
  }
}

TEST(ParityVariants, SameLayoutTwiceIsBitwiseEqual) {
  TinyOptions options;
  options.dtype = ir::DType::kF32;
  options.dropout = 0.1;
  ir::JobRequest job = MakeTinyJob(options);
  SetLayout(job, {2, 2, 2}, 4, "1f1b");
  const auto first = RunJob(job, 8, 61);
  const auto second = RunJob(job, 8, 61);
  ASSERT_TRUE(first.has_value()) << first.error();
  ASSERT_TRUE(second.has_value()) << second.error();
  EXPECT_EQ(first->losses, second->losses);
  EXPECT_EQ(first->tensors, second->tensors);
}

// With plain SGD, no decay and no clipping, weights are a sum of gradients: w2 = w0 - g0 - g1. The
// other cases compare gradients by Adam's first moment.
TEST(ParityVariants, GradientsEqualOneDevice) {
  for (const auto& [dtype, tolerance] :
       {std::pair(ir::DType::kF64, 1e-10), std::pair(ir::DType::kF32, 1e-5)}) {
    for (const char* family : {"gpt2", "llama"}) {
      TinyOptions options;
      options.family = family;
      options.dtype = dtype;
      if (kSanitizedBuild) options.layers = 2;
      ir::JobRequest job = MakeTinyJob(options);
      job.optimizer.name = "sgd";
      job.optimizer.lr = 1.0;
      job.optimizer.momentum = 0;
      job.optimizer.weight_decay = 0;
      job.optimizer.max_norm = 0;
      SetLayout(job, {1, 1, 1}, 1, "1f1b");
      const auto expected = RunJob(job, 1, 61);
      ASSERT_TRUE(expected.has_value()) << expected.error();
      for (const Degrees& degrees : Factorisations(8)) {
        if (!RunsHere(degrees, 4, "1f1b")) continue;
        SetLayout(job, degrees, 4, "1f1b");
        const auto actual = RunJob(job, 8, 61);
        ASSERT_TRUE(actual.has_value()) << actual.error();
        ExpectEqual(*expected, *actual, tolerance,
                    fmt::format("{} data={} tensor={} pipeline={}", family, degrees.data,
                                degrees.tensor, degrees.pipeline));
      }
    }
  }
}

}  // namespace
}  // namespace meshwright::testing
