// cuDNN makes kernels of the graphs of attention (ops/cuda/sdpa_graph.h), for GPUs that are not
// there: all of its choice, checks and compilation run, only loading the result is a stub's
// (stub_driver.cc).
#include <cudnn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "ops/cuda/sdpa_plan.cuh"

namespace meshwright::ops::cuda {
namespace {

struct Gpu {
  const char* name;
  int architecture;  // 100 * major + 10 * minor
  int multiprocessors;
  int64_t shared_bytes;  // that a block may ask for
};
constexpr Gpu kGpus[] = {
    {"A100", 800, 108, 166'912}, {"H200", 900, 132, 232'448}, {"B200", 1000, 148, 232'448}};

// What cuDNN reads of a device, in its own text form.
std::string PropertiesOf(const Gpu& gpu) {
  return fmt::format(
      R"({{"deviceName": "{}", "cudaDeviceId": 0, "deviceVer": {}, "multiProcessorCount": {},)"
      R"( "driverVer": 13000, "maxSharedMemoryPerBlockOptin": {}, "totalGlobalMem": 80000000000,)"
      R"( "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],)"
      R"( "regsPerBlock": 65536, "warpSize": 32, "maxThreadsPerBlock": 1024,)"
      R"( "maxThreadsPerSM": 2048, "maxCtasPerSM": 32, "maxRegistersPerSM": 65536,)"
      R"( "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024,)"
      R"( "l2CacheSize": 41943040, "smClockRateKHz": 1410000, "memClockRateKHz": 1512000,)"
      R"( "supportCoopLaunch": 1, "isTccDriver": 0, "pciDeviceId": 0}})",
      gpu.name, gpu.architecture, gpu.multiprocessors, gpu.shared_bytes);
}

struct Heads {
  const char* name;
  int64_t batch, heads, kv_heads, sequence, head_size;
  bool packed;  // q, k and v are slices of one tensor
  bool causal = true;
  int64_t part = 1;  // a part of the heads: so many of them are left out
};
constexpr Heads kHeads[] = {
    {"gpt2", 32, 12, 12, 1024, 64, true},
    {"llama", 8, 16, 16, 2048, 128, false},
    {"grouped", 2, 32, 8, 512, 128, false},
    {"odd", 3, 5, 5, 100, 40, true},
    {"short", 2, 4, 2, 5, 8, false},
    {"part_of_the_heads", 1, 8, 2, 256, 64, false, true, 4},
    {"not_causal", 2, 4, 4, 96, 64, false, false},
};

SdpaShape ShapeOf(const Heads& of, ir::DType dtype, bool gradient) {
  SdpaShape shape;
  shape.gradient = gradient;
  shape.batch = of.batch;
  shape.sequence = of.sequence;
  shape.heads = of.heads;
  shape.kv_heads = of.kv_heads;
  shape.head_size = of.head_size;
  shape.causal = of.causal;
  shape.dtype = dtype;
  const auto strides = [&](int64_t heads, int64_t slices) {
    const int64_t row = heads * of.part * of.head_size * slices;
    return SdpaStrides{of.sequence * row, row, of.head_size};
  };
  shape.q = strides(of.heads, of.packed ? 3 : 1);
  shape.kv = strides(of.kv_heads, of.packed ? 3 : 1);
  shape.o = strides(of.heads, 1);
  shape.lse_batch = of.heads * of.part * of.sequence;
  return shape;
}

class CudnnPlans : public testing::TestWithParam<std::pair<Gpu, Heads>> {};

TEST_P(CudnnPlans, ForwardAndGradientHaveKernels) {
  const auto& [gpu, heads] = GetParam();
  const std::string properties = PropertiesOf(gpu);
  CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
             static_cast<int64_t>(properties.size()) + 1, properties.c_str());
  ASSERT_EQ(device.Finalize(), OkStatus());
  for (const ir::DType dtype : {ir::DType::kBF16, ir::DType::kF16}) {
    for (const bool gradient : {false, true}) {
      const SdpaShape shape = ShapeOf(heads, dtype, gradient);
      ASSERT_TRUE(MayRunSdpa(shape));
      const Result<CudnnPlan> plan = PlanSdpa(shape, {nullptr, &device});
      ASSERT_TRUE(plan.has_value()) << plan.error() << (gradient ? ", gradient" : ", forward");
      // ds in memory is what makes the gradient the same in every run; nothing else is large.
      const int64_t scores = gradient ? ScoreBytes(shape) : 0;
      EXPECT_GE(plan->workspace_bytes, scores);
      EXPECT_LE(plan->workspace_bytes, 2 * ScoreBytes(shape) + (int64_t{1} << 20));
    }
  }
}

std::vector<std::pair<Gpu, Heads>> Cases() {
  std::vector<std::pair<Gpu, Heads>> cases;
  for (const Gpu& gpu : kGpus) {
    for (const Heads& heads : kHeads) cases.emplace_back(gpu, heads);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, CudnnPlans, testing::ValuesIn(Cases()), [](const auto& of) {
  return fmt::format("{}_{}", of.param.first.name, of.param.second.name);
});

}  // namespace
}  // namespace meshwright::ops::cuda
