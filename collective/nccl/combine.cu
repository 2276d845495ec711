// Combines gathered blocks on the GPU. One thread per element; memory-bound: parts reads, one
// write.
#include "collective/nccl/combine.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

namespace meshwright::collective::nccl {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 65'535;

template <typename T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

__device__ float Combine(float a, float b) {
  if (isnan(a) || isnan(b)) return nanf("");
  const float high = fmaxf(a, b);
  return isinf(high) ? high : high + log1pf(expf(fminf(a, b) - high));
}

__device__ double Combine(double a, double b) {
  if (isnan(a) || isnan(b)) return nan("");
  const double high = fmax(a, b);
  return isinf(high) ? high : high + log1p(exp(fmin(a, b) - high));
}

template <typename T>
__global__ void LogSumExpKernel(T* output, const T* pieces, int64_t count, int32_t parts) {
  using Value = typename Wide<T>::type;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    Value value = static_cast<Value>(pieces[i]);
    for (int32_t part = 1; part < parts; ++part) {
      value = Combine(value, static_cast<Value>(pieces[part * count + i]));
    }
    output[i] = static_cast<T>(value);
  }
}

template <typename T>
cudaError_t Launch(const CombineArgs& args, cudaStream_t stream) {
  const auto blocks =
      static_cast<unsigned>(std::min(kMaxBlocks, (args.count + kThreads - 1) / kThreads));
  auto* output = static_cast<T*>(args.output);
  const auto* pieces = static_cast<const T*>(args.pieces);
  int64_t count = args.count;
  int32_t parts = args.parts;
  void* places[] = {&output, &pieces, &count, &parts};
  return cudaLaunchKernel(reinterpret_cast<const void*>(LogSumExpKernel<T>), dim3(blocks),
                          dim3(kThreads), places, 0, stream);
}

class CudaCombiner final : public Combiner {
 public:
  Status LogSumExp(const CombineArgs& args, device::Queue& queue) override {
    if (args.count == 0) return OkStatus();
    const auto stream = static_cast<cudaStream_t>(queue.native());
    cudaError_t code = cudaSuccess;
    switch (args.dtype) {
      case ir::DType::kF32:
        code = Launch<float>(args, stream);
        break;
      case ir::DType::kF64:
        code = Launch<double>(args, stream);
        break;
      case ir::DType::kBF16:
        code = Launch<__nv_bfloat16>(args, stream);
        break;
      case ir::DType::kF16:
        code = Launch<__half>(args, stream);
        break;
      default:
        return InvalidArgument("log-sum-exp is of floating dtypes");
    }
    if (code == cudaSuccess) return OkStatus();
    (void)cudaGetLastError();  // left clean for others
    return Internal(std::string("combining by log-sum-exp: ") + cudaGetErrorName(code) + " (" +
                    cudaGetErrorString(code) + ")");
  }
};

}  // namespace

}  // namespace meshwright::collective::nccl

extern "C" __attribute__((visibility("default"))) meshwright::collective::nccl::Combiner*
meshwright_cuda_combiner() {
  static meshwright::collective::nccl::CudaCombiner combiner;
  return &combiner;
}
