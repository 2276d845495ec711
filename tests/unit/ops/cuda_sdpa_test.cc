// Attention through a library's interface on an emulated GPU, against the reference.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/cuda/sdpa_attention.h"
#include "ops/cuda/workspace.h"
#include "tests/emulated/sdpa.h"
#include "tests/unit/ops/cuda_fixture.h"

namespace meshwright::ops {
namespace {

using cuda::SdpaShape;
using ir::DType;
using ir::Op;
using ir::TensorType;

class CudaSdpa : public testing::Test {
 protected:
  CudaSdpa() { gpu_.toolkit.sdpa = &sdpa_; }

  // [batch 2, sequence 5, heads 4, kv heads 2, head size 8]
  static KernelSpec Spec(Op op, DType dtype) {
    const TensorType q{dtype, {2, 5, 4, 8}};
    const TensorType kv{dtype, {2, 5, 2, 8}};
    const TensorType qkv{dtype, {2, 5, 3, 4, 8}};
    const TensorType lse{DType::kF32, {2, 4, 5}};
    KernelSpec spec;
    spec.op = op;
    spec.attrs = {{"causal", int64_t{1}}};
    const bool sliced = op == Op::kAttentionQkv || op == Op::kAttentionQkvGrad;
    spec.inputs = sliced ? std::vector<TensorType>{qkv} : std::vector<TensorType>{q, kv, kv};
    if (op == Op::kAttention || op == Op::kAttentionQkv) {
      spec.outputs = {q, lse};
      return spec;
    }
    for (const TensorType& type : {q, lse, q}) spec.inputs.push_back(type);
    spec.outputs = sliced ? std::vector<TensorType>{qkv} : std::vector<TensorType>{q, kv, kv};
    return spec;
  }
  std::unique_ptr<Kernel> Make(const KernelSpec& spec) {
    KernelResult kernel = cuda::TryMakeSdpa(spec, *gpu_.device, gpu_.toolkit);
    EXPECT_TRUE(kernel) << kernel.error();
    return kernel ? *std::move(kernel) : nullptr;
  }

  void ExpectReference(const KernelSpec& spec, const std::vector<HostTensor>& inputs,
                       std::vector<HostTensor>* kept = nullptr) {
    const std::unique_ptr<Kernel> kernel = Make(spec);
    ASSERT_NE(kernel, nullptr);
    const auto gpu = RunNode(gpu_, *kernel, inputs, spec.outputs, {});
    ASSERT_TRUE(gpu) << gpu.error();
    const auto host = RunOnReference(spec, inputs, {});
    ASSERT_TRUE(host) << host.error();
    for (size_t r = 0; r < host->size(); ++r) {
      const std::vector<float> x = FloatsOf((*gpu)[r]);
      const std::vector<float> y = FloatsOf((*host)[r]);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 0.02f) << r << ", " << i;
    }
    if (kept != nullptr) *kept = *host;
  }

  EmulatedGpu gpu_;
  emulated::EmulatedSdpa sdpa_;
};

TEST_F(CudaSdpa, ForwardAndGradientAreThoseOfTheOp) {
  for (const bool sliced : {false, true}) {
    const KernelSpec forward = Spec(sliced ? Op::kAttentionQkv : Op::kAttention, DType::kBF16);
    std::vector<HostTensor> inputs;
    for (const TensorType& type : forward.inputs) {
      inputs.push_back(TensorOf(type.dtype, type.dims, Spread(type.elements(), 0.5f)));
    }
    std::vector<HostTensor> results;
    ExpectReference(forward, inputs, &results);
    ASSERT_EQ(results.size(), 2u);
    inputs.push_back(results[0]);
    inputs.push_back(results[1]);
    inputs.push_back(TensorOf(DType::kBF16, {2, 5, 4, 8}, Spread(320, 0.3f)));
    ExpectReference(Spec(sliced ? Op::kAttentionQkvGrad : Op::kAttentionGrad, DType::kBF16),
                    inputs);
  }
}

TEST_F(CudaSdpa, WhatALibraryDoesNotTakeHasNoKernel) {
  EXPECT_EQ(Make(Spec(Op::kAttention, DType::kF32)), nullptr);
  KernelSpec dropout = Spec(Op::kAttention, DType::kBF16);
  dropout.attrs.Set("dropout", 0.1);
  EXPECT_EQ(Make(dropout), nullptr);
  KernelSpec segments = Spec(Op::kAttentionQkv, DType::kBF16);
  segments.inputs.push_back({DType::kI32, {2, 5}});
  EXPECT_EQ(Make(segments), nullptr);
  KernelSpec odd = Spec(Op::kAttention, DType::kBF16);
  for (TensorType& type : odd.inputs) type.dims.back() = 12;
  odd.outputs[0].dims.back() = 12;
  EXPECT_EQ(Make(odd), nullptr);
  sdpa_.RefuseGradients(true);
  EXPECT_EQ(Make(Spec(Op::kAttentionGrad, DType::kBF16)), nullptr);
  EXPECT_EQ(sdpa_.plans(), 0);
  gpu_.toolkit.sdpa = nullptr;
  EXPECT_EQ(Make(Spec(Op::kAttention, DType::kBF16)), nullptr);
}

TEST(CudaWorkspace, IsAlignedAndInsideOfWhatIsAskedFor) {
  EXPECT_EQ(cuda::WorkspaceBytes(0), 0);
  std::vector<std::byte> memory(4096);
  for (size_t start = 0; start < 256; start += 64) {
    std::byte* const scratch = memory.data() + start;
    const auto* const at = static_cast<const std::byte*>(cuda::WorkspaceAt(scratch));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % 256, 0u);
    EXPECT_GE(at, scratch);
    EXPECT_LE(at + 1000, scratch + cuda::WorkspaceBytes(1000));
  }
}

SdpaShape Shape(bool gradient, int64_t batch, int64_t heads, int64_t kv_heads, int64_t sequence) {
  SdpaShape shape;
  shape.gradient = gradient;
  shape.batch = batch;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.sequence = sequence;
  return shape;
}

TEST(SdpaParts, AreAsLargeAsTheMemoryOfTheirScoresAllows) {
  const SdpaShape whole = Shape(true, 12, 8, 4, 64);  // 64 KiB a row, 16 KiB a kv head
  EXPECT_EQ(cuda::PartOf(whole, int64_t{1} << 30)->batch, 12);
  const auto rows = cuda::PartOf(whole, 5 << 16);
  EXPECT_EQ(rows->batch, 4) << "a divisor of 12";
  EXPECT_EQ(rows->heads, 8);
  const auto heads = cuda::PartOf(whole, 3 << 14);
  EXPECT_EQ(heads->batch, 1);
  EXPECT_EQ(heads->kv_heads, 2);
  EXPECT_EQ(heads->heads, 4);
  EXPECT_FALSE(cuda::PartOf(whole, (1 << 14) - 1).has_value());
  EXPECT_EQ(cuda::PartOf(Shape(false, 12, 8, 4, 64), 1)->batch, 12) << "a forward keeps no scores";
}

// The emulated device takes a 64th of its memory for the scores of a gradient.
TEST(SdpaParts, TogetherAreTheWhole) {
  const TensorType q{DType::kBF16, {2, 64, 4, 8}};
  const TensorType kv{DType::kBF16, {2, 64, 2, 8}};
  const TensorType lse{DType::kF32, {2, 4, 64}};
  KernelSpec spec;
  spec.op = Op::kAttentionGrad;
  spec.attrs = {{"causal", int64_t{1}}};
  spec.inputs = {q, kv, kv, q, lse, q};
  spec.outputs = {q, kv, kv};
  std::vector<HostTensor> inputs;
  for (const TensorType& type : spec.inputs) {
    inputs.push_back(TensorOf(type.dtype, type.dims, Spread(type.elements(), 0.3f)));
  }
  for (float& value : FloatsIn(inputs[4])) value = 4.0f;
  const auto host = RunOnReference(spec, inputs, {});
  ASSERT_TRUE(host) << host.error();
  // All scores take 64 KiB: one part, a row each, a kv head of a row each.
  for (const int64_t memory_bytes : {int64_t{256} << 20, int64_t{2} << 20, int64_t{1} << 20}) {
    EmulatedGpu gpu({.memory_bytes = memory_bytes});
    emulated::EmulatedSdpa sdpa;
    gpu.toolkit.sdpa = &sdpa;
    const KernelResult kernel = cuda::TryMakeSdpa(spec, *gpu.device, gpu.toolkit);
    ASSERT_TRUE(kernel && *kernel != nullptr);
    const auto found = RunNode(gpu, **kernel, inputs, spec.outputs, {});
    ASSERT_TRUE(found) << found.error();
    EXPECT_EQ(sdpa.runs(), (int64_t{256} << 20) / memory_bytes > 1
                               ? static_cast<int>((int64_t{4} << 20) / memory_bytes)
                               : 1);
    for (size_t r = 0; r < host->size(); ++r) {
      const std::vector<float> x = FloatsOf((*found)[r]);
      const std::vector<float> y = FloatsOf((*host)[r]);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(x[i], y[i], 0.03f * (1 + std::fabs(y[i]))) << r << ", " << i;
      }
    }
  }
  EmulatedGpu small({.memory_bytes = int64_t{512} << 10});
  emulated::EmulatedSdpa sdpa;
  small.toolkit.sdpa = &sdpa;
  const KernelResult none = cuda::TryMakeSdpa(spec, *small.device, small.toolkit);
  EXPECT_TRUE(none && *none == nullptr) << "our own kernel needs no such memory";
}

TEST_F(CudaSdpa, ALibraryThatFailsToPlanIsDoneWithout) {
  sdpa_.FailPlans(Internal("CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED"));
  EXPECT_EQ(Make(Spec(Op::kAttention, DType::kBF16)), nullptr);
  gpu_.driver.Fail("QueryStream", device::cuda::kIllegalAddress);
  EXPECT_FALSE(gpu_.device->queue().Finish(Deadline::After(1'000)).ok());
  EXPECT_FALSE(cuda::TryMakeSdpa(Spec(Op::kAttention, DType::kBF16), *gpu_.device, gpu_.toolkit));
}

TEST_F(CudaSdpa, EqualShapesArePlannedOnce) {
  for (int i = 0; i < 3; ++i) EXPECT_NE(Make(Spec(Op::kAttention, DType::kF16)), nullptr);
  EXPECT_EQ(sdpa_.plans(), 1);
}

}  // namespace
}  // namespace meshwright::ops
