// CUDA's kernel language on the host: barriers, shuffles, shared memory, order of threads.
#include "tests/emulated/cuda_language.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "tests/emulated/driver.h"

namespace meshwright::emulated {
namespace {

class CudaLanguage : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(driver_.MakeStream(&stream_, false), 0); }

  // Kernels write to memory of the host here: only their language is tested.
  template <typename... Params>
  int32_t Run(dim3 grid, dim3 block, void (*kernel)(Params...),
              std::type_identity_t<Params>... args) {
    const int32_t code = Launch(stream_, grid, block, 1024, kernel, args...);
    while (driver_.QueryStream(stream_) == device::cuda::kNotReady) {
    }
    return code;
  }

  EmulatedDriver driver_{{.memory_bytes = 4096}};
  void* stream_ = nullptr;
};

__global__ void BlockSums(const int* in, int* out) {
  __shared__ int part[8];
  int value = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(~0u, value, bits);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned i = 1; i < blockDim.x / 32; ++i) value += part[i];
  out[blockIdx.x] = value;
}

TEST_F(CudaLanguage, ShufflesAndBarriersSumABlock) {
  std::vector<int> in(5 * 256);
  std::iota(in.begin(), in.end(), 0);
  std::vector<int> out(5);
  ASSERT_EQ(Run({5, 1, 1}, {256, 1, 1}, BlockSums, in.data(), out.data()), 0);
  for (int b = 0; b < 5; ++b) EXPECT_EQ(out[static_cast<size_t>(b)], 256 * 256 * b + 32640);
}

__global__ void Neighbours(int* down, int* up, int* from, unsigned* odd) {
  const int lane = static_cast<int>(threadIdx.x);
  down[lane] = __shfl_down_sync(~0u, lane, 3);
  up[lane] = __shfl_up_sync(~0u, lane, 3);
  from[lane] = __shfl_sync(~0u, lane, 7);
  odd[lane] = __ballot_sync(~0u, lane % 2);
}

TEST_F(CudaLanguage, ShufflesAtTheEdgeKeepTheOwnValue) {
  std::vector<int> down(32), up(32), from(32);
  std::vector<unsigned> odd(32);
  Run({1, 1, 1}, {32, 1, 1}, Neighbours, down.data(), up.data(), from.data(), odd.data());
  EXPECT_EQ(down[0], 3);
  EXPECT_EQ(down[31], 31);
  EXPECT_EQ(up[2], 2);
  EXPECT_EQ(up[31], 28);
  EXPECT_EQ(from[19], 7);
  EXPECT_EQ(odd[5], 0xaaaaaaaau);
}

// Threads that have ended are not waited for.
__global__ void HalfLeave(int* out) {
  if (threadIdx.x % 2 == 0) return;
  out[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 1) out[0] = out[blockDim.x - 1];
}

TEST_F(CudaLanguage, BarriersDoNotWaitForThreadsThatLeft) {
  std::vector<int> out(64);
  Run({1, 1, 1}, {64, 1, 1}, HalfLeave, out.data());
  EXPECT_EQ(out[0], 1);
}

__global__ void Order(int* next, int* out) {
  out[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

TEST_F(CudaLanguage, OrdersDifferAndEveryThreadRunsOnce) {
  std::set<std::vector<int>> orders;
  for (int run = 0; run < 8; ++run) {
    int next = 0;
    std::vector<int> out(4 * 32, -1);
    Run({4, 1, 1}, {32, 1, 1}, Order, &next, out.data());
    EXPECT_EQ(std::set<int>(out.begin(), out.end()).size(), out.size());
    orders.insert(out);
  }
  EXPECT_GT(orders.size(), 2u);
}

__global__ void ReadShared(float* out) {
  const float* shared = reinterpret_cast<const float*>(DynamicShared());
  out[blockIdx.x] = shared[5];
}

TEST_F(CudaLanguage, DynamicSharedMemoryHoldsNoNumbersAtTheStart) {
  std::vector<float> out(2);
  Run({2, 1, 1}, {1, 1, 1}, ReadShared, out.data());
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
}

TEST_F(CudaLanguage, LaunchesThatAGpuRefusesAreRefused) {
  int next = 0;
  EXPECT_NE(Run({0, 1, 1}, {32, 1, 1}, Order, &next, nullptr), 0);
  EXPECT_NE(Run({1, 1, 1}, {1025, 1, 1}, Order, &next, nullptr), 0);
  EXPECT_NE(Run({1, 65536, 1}, {32, 1, 1}, Order, &next, nullptr), 0);
}

__global__ void Diverge(int*) {
  if (threadIdx.x < 32) {
    (void)__shfl_xor_sync(~0u, 1, threadIdx.x == 0 ? 1 : 2);
    if (threadIdx.x == 0) __syncwarp();
  }
  __syncthreads();
}

TEST_F(CudaLanguage, ThreadsThatWaitForeverEndTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(Run({1, 1, 1}, {64, 1, 1}, Diverge, nullptr), "wait for others");
}

}  // namespace
}  // namespace meshwright::emulated
