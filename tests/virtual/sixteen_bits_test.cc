// What is of 16 bits beside operands of products: gradients that wait for the update, and f16 with
// its loss scale.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/loss_scale.h"
#include "planner/memory.h"
#include "planner/plan.h"
#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/tiny_models.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

constexpr int kVocabulary = 61;

ir::JobRequest HalfJob(const std::string& family, ir::DType compute) {
  TinyOptions options;
  options.family = family;
  options.dtype = ir::DType::kF32;
  options.layers = 2;
  options.adam_eps = 1e-3;
  ir::JobRequest job = MakeTinyJob(options);
  job.train.compute_dtype = compute;
  return job;
}

// Steps of a job on a cluster of its own.
struct SixteenBitRun {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> scales;  // of float16
  std::map<std::string, LogicalTensor> tensors;
};

Result<SixteenBitRun> Train(const ir::JobRequest& job, int devices, int steps) {
  SyntheticTokens tokens(kVocabulary);
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<VirtualCluster> cluster,
                      VirtualCluster::Start(job, devices, &tokens));
  std::vector<worker::StepReport> reports;
  if (steps > 0) {
    MW_ASSIGN_OR_RETURN(reports, cluster->Train(0, steps));
  }
  SixteenBitRun trained;
  for (const worker::StepReport& report : reports) {
    trained.losses.push_back(report.values.at("loss"));
    trained.norms.push_back(report.values.at("grad_norm"));
    const auto scale = report.values.find(ir::kLossScaleOutput);
    if (scale != report.values.end()) trained.scales.push_back(scale->second);
  }
  MW_ASSIGN_OR_RETURN(trained.tensors, cluster->Gather());
  return trained;
}

ir::JobRequest On(ir::JobRequest job, const LayoutCase& layout, int64_t zero) {
  job = WithLayout(std::move(job), layout);
  job.parallel.zero = zero;
  return job;
}

struct HalfLayout {
  LayoutCase layout;
  int64_t zero = 0;
};
constexpr HalfLayout kHalfLayouts[] = {{{1, 1, 1, 4}, 0}, {{2, 1, 1, 2}, 1}, {{2, 1, 1, 2}, 2},
                                       {{1, 2, 1, 1}, 0}, {{1, 1, 2, 4}, 0}, {{2, 1, 2, 2}, 1}};

int64_t GradientBytes(const ir::JobRequest& job) {
  const auto plan = planner::MakePlan(job, mesh::Topology::Local(1));
  EXPECT_TRUE(plan.has_value()) << plan.error();
  return plan.has_value() ? plan->memory[0].bytes.at(ir::MemoryKind::kGradients) : 0;
}

TEST(NarrowGradients, TakeHalfTheBytesAndTrainAlikeOnEveryLayout) {
  for (const char* family : {"gpt2", "llama"}) {
    ir::JobRequest job = HalfJob(family, ir::DType::kBF16);
    const auto wide = Train(On(job, {}, 0), 1, 3);
    ASSERT_TRUE(wide.has_value()) << wide.error();
    const int64_t wide_bytes = GradientBytes(On(job, {1, 1, 1, 4}, 0));
    job.train.gradient_dtype = ir::DType::kBF16;
    const int64_t narrow_bytes = GradientBytes(On(job, {1, 1, 1, 4}, 0));
    // Embeddings, norms and biases are read in f32.
    EXPECT_LT(narrow_bytes, 0.65 * static_cast<double>(wide_bytes)) << family;
    for (const HalfLayout& of : kHalfLayouts) {
      const auto narrow = Train(On(job, of.layout, of.zero), of.layout.devices(), 3);
      ASSERT_TRUE(narrow.has_value()) << of.layout.ToString() << ": " << narrow.error();
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(narrow->losses[i], wide->losses[i], 5e-3) << of.layout.ToString();
        EXPECT_NEAR(narrow->norms[i] / wide->norms[i], 1, 2e-2) << of.layout.ToString();
      }
    }
    if (kSanitizedBuild) break;
  }
}

double Scalar(const SixteenBitRun& trained, const char* name) {
  const auto it = trained.tensors.find(name);
  EXPECT_NE(it, trained.tensors.end()) << name;
  return it == trained.tensors.end() ? 0 : it->second.values.at(0);
}

TEST(LossScale, F16TrainsAsF32OnEveryLayout) {
  ir::JobRequest job = HalfJob("gpt2", ir::DType::kF32);
  const int steps = 4;
  const auto full = Train(On(job, {}, 0), 1, steps);
  ASSERT_TRUE(full.has_value()) << full.error();
  job.train.compute_dtype = ir::DType::kF16;
  job.train.loss_scale = 1024;
  job.train.loss_scale_window = 3;
  for (const HalfLayout& of : kHalfLayouts) {
    const auto half = Train(On(job, of.layout, of.zero), of.layout.devices(), steps);
    ASSERT_TRUE(half.has_value()) << of.layout.ToString() << ": " << half.error();
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(half->losses[i], full->losses[i], 2e-3) << of.layout.ToString();
      EXPECT_NEAR(half->norms[i] / full->norms[i], 1, 1e-2) << of.layout.ToString();
    }
    EXPECT_EQ(half->scales, (std::vector<double>{1024, 1024, 1024, 2048})) << "as it was read";
    EXPECT_EQ(Scalar(*half, ir::kLossScaleState), 2) << "three finite steps double it";
    EXPECT_EQ(Scalar(*half, ir::kFiniteStepsState), 1) << of.layout.ToString();
    if (kSanitizedBuild) break;
  }
}

// A scale that no gradient bears: weights and moments stay, the scale falls until steps count.
TEST(LossScale, AStepThatOverflowsChangesNothingAndHalvesTheScale) {
  ir::JobRequest job = HalfJob("gpt2", ir::DType::kF16);
  job.train.loss_scale = 1e10;
  for (const HalfLayout& of : {kHalfLayouts[0], kHalfLayouts[1], kHalfLayouts[4]}) {
    const ir::JobRequest here = On(job, of.layout, of.zero);
    const auto none = Train(here, of.layout.devices(), 0);
    const auto one = Train(here, of.layout.devices(), 1);
    ASSERT_TRUE(none.has_value()) << none.error();
    ASSERT_TRUE(one.has_value()) << one.error();
    EXPECT_EQ(Scalar(*one, ir::kLossScaleState), 0.5) << of.layout.ToString();
    for (const auto& [name, tensor] : none->tensors) {
      if (name == ir::kLossScaleState) continue;
      EXPECT_EQ(tensor.values, one->tensors.at(name).values) << name;
    }
    const auto many = Train(here, of.layout.devices(), 16);
    ASSERT_TRUE(many.has_value()) << many.error();
    EXPECT_LT(Scalar(*many, ir::kLossScaleState), 0.5);
    ASSERT_EQ(many->scales.size(), 16u);
    EXPECT_EQ(many->scales[1], 0.5e10);
    EXPECT_FALSE(std::isfinite(many->norms[0])) << "which says that the step was skipped";
    EXPECT_GT(Scalar(*many, ir::kFiniteStepsState), 0) << "it never fell far enough";
    EXPECT_NE(many->tensors.at("transformer.h.0.ln_1.weight").values,
              none->tensors.at("transformer.h.0.ln_1.weight").values);
    if (kSanitizedBuild) break;
  }
}

}  // namespace
}  // namespace meshwright::testing
