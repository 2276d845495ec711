#include "ir/gpu_support.h"

#include <gtest/gtest.h>

#include "ir/builder.h"

namespace meshwright::ir {
namespace {

Graph AttentionOf(DType dtype, int64_t head_size) {
  Builder builder("g");
  const TensorType type{dtype, {1, 4, 2, head_size}};
  std::vector<ValueId> inputs;
  for (const char* name : {"q", "k", "v"}) {
    inputs.push_back(builder.AddOne(Op::kInput, {}, {{"name", name}}, {type}));
  }
  (void)builder.Add(Op::kAttention, inputs, {{"causal", int64_t{1}}});
  return *builder.Finish();
}

TEST(GpuSupport, SaysWhatGpusDoNotCompute) {
  EXPECT_EQ(WhyNotOnGpus(AttentionOf(DType::kF32, 64)), "");
  EXPECT_EQ(WhyNotOnGpus(AttentionOf(DType::kBF16, 256)), "");
  EXPECT_EQ(WhyNotOnGpus(AttentionOf(DType::kF32, 264)),
            "heads of attention have 264 elements, on GPUs at most 256");
  EXPECT_EQ(WhyNotOnGpus(AttentionOf(DType::kF64, 64)), "GPUs do not compute in f64");
}

TEST(GpuSupport, NamesTheOpThatHasNoKernel) {
  Builder builder("g");
  const ValueId x = builder.AddOne(Op::kInput, {}, {{"name", "x"}}, {{DType::kF32, {1, 4, 4, 2}}});
  (void)builder.AddOne(Op::kAvgPool, {x}, {{"window", std::vector<int64_t>{2, 2}}});
  EXPECT_EQ(WhyNotOnGpus(*builder.Finish()), "GPUs have no kernel for avg_pool");
}

}  // namespace
}  // namespace meshwright::ir
