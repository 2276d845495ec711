// adamw, sgd: the tensors of a list in one launch. A block finds its tensor in the sums of the
// blocks before; results replace operands in place.
#include "ops/cuda/language.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 256;
// Four units per thread: enough to find the tensor once, and few enough that the last blocks of a
// launch do not run alone for long.
constexpr int64_t kElementsOfABlock = 4096;
constexpr int kUnit = 4;

// What every GPU takes as arguments of a kernel.
static_assert(sizeof(AdamWArgs) <= 4096);

// Two powers in f64: once per launch, not once per block.
__global__ void __launch_bounds__(1) AdamWScalarsKernel(const AdamWArgs args) {
  const double t = static_cast<double>(args.update.state->step + 1);
  const double lr = *args.update.lr;
  *args.scratch = {*args.update.multiplier, static_cast<float>(1.0 - lr * args.weight_decay),
                   static_cast<float>(lr / (1.0 - pow(args.beta1, t))),
                   static_cast<float>(1.0 / sqrt(1.0 - pow(args.beta2, t)))};
}

// Of T, or of 16 bits beside f32.
template <typename T, int N>
__device__ void LoadGradient(FloatType type, const UpdateTensor& tensor, int64_t at,
                             float (&g)[N]) {
  if constexpr (sizeof(T) == 2) {
    LoadUnit<T, N>(static_cast<const T*>(tensor.g) + at, g);
  } else if (type == FloatType::kF32) {
    LoadUnit<T, N>(static_cast<const T*>(tensor.g) + at, g);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) g[i] = LoadAny(tensor.g, type, at + i);
  }
}

// What is remembered: f32 or, rounded to nearest, bf16.
template <int N>
__device__ void LoadMoments(FloatType type, const void* from, int64_t at, float (&values)[N]) {
  if (type == FloatType::kF32) {
    LoadUnit<float, N>(static_cast<const float*>(from) + at, values);
  } else {
    LoadUnit<Bf16, N>(static_cast<const Bf16*>(from) + at, values);
  }
}

template <int N>
__device__ void StoreMoments(FloatType type, void* to, int64_t at, const float (&values)[N]) {
  if (type == FloatType::kF32) {
    StoreUnit<float, N>(static_cast<float*>(to) + at, values);
  } else {
    StoreUnit<Bf16, N>(static_cast<Bf16*>(to) + at, values);
  }
}

template <typename T, int N>
struct AdamWUpdate {
  const AdamWScalars step;
  const FloatType gradient;
  const FloatType moments;
  const float beta1;
  const float beta2;
  const float gain1;  // 1 - beta1
  const float gain2;
  const float eps;

  __device__ explicit AdamWUpdate(const AdamWArgs& args)
      : step(*args.scratch),
        gradient(args.update.gradient),
        moments(args.update.moments),
        beta1(static_cast<float>(args.beta1)),
        beta2(static_cast<float>(args.beta2)),
        gain1(static_cast<float>(1.0 - args.beta1)),
        gain2(static_cast<float>(1.0 - args.beta2)),
        eps(static_cast<float>(args.eps)) {}

  __device__ void operator()(const UpdateTensor& tensor, int64_t at) const {
    float p[N], g[N], m[N], v[N];
    LoadUnit<T, N>(static_cast<const T*>(tensor.p) + at, p);
    LoadGradient<T, N>(gradient, tensor, at, g);
    LoadMoments<N>(moments, tensor.m, at, m);
    LoadMoments<N>(moments, tensor.v, at, v);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float scaled = g[i] * step.multiplier;
      m[i] = beta1 * m[i] + gain1 * scaled;
      v[i] = beta2 * v[i] + gain2 * scaled * scaled;
      p[i] = step.keep * p[i] - step.step_size * m[i] / (sqrtf(v[i]) * step.root_scale + eps);
    }
    StoreUnit<T, N>(static_cast<T*>(tensor.p_to) + at, p);
    StoreMoments<N>(moments, tensor.m_to, at, m);
    StoreMoments<N>(moments, tensor.v_to, at, v);
  }
};

// Weight decay is added to the gradient, before the momentum.
template <typename T, int N>
struct SgdUpdate {
  const SgdArgs& args;

  __device__ void operator()(const UpdateTensor& tensor, int64_t at) const {
    const float momentum = static_cast<float>(args.momentum);
    const float decay = static_cast<float>(args.weight_decay);
    const float multiplier = *args.update.multiplier;
    const float lr = *args.update.lr;
    float p[N], g[N], m[N];
    LoadUnit<T, N>(static_cast<const T*>(tensor.p) + at, p);
    LoadGradient<T, N>(args.update.gradient, tensor, at, g);
    LoadMoments<N>(args.update.moments, tensor.m, at, m);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      m[i] = momentum * m[i] + (g[i] * multiplier + decay * p[i]);
      p[i] -= lr * m[i];
    }
    StoreUnit<T, N>(static_cast<T*>(tensor.p_to) + at, p);
    StoreMoments<N>(args.update.moments, tensor.m_to, at, m);
  }
};

// Lion: by the sign of a mean, with decoupled decay.
template <typename T, int N>
struct LionUpdate {
  const SgdArgs& args;

  __device__ void operator()(const UpdateTensor& tensor, int64_t at) const {
    const float momentum = static_cast<float>(args.momentum);
    const float beta = static_cast<float>(args.sign_beta);
    const float multiplier = *args.update.multiplier;
    const float lr = *args.update.lr;
    const float keep = 1.0f - lr * static_cast<float>(args.weight_decay);
    float p[N], g[N], m[N];
    LoadUnit<T, N>(static_cast<const T*>(tensor.p) + at, p);
    LoadGradient<T, N>(args.update.gradient, tensor, at, g);
    LoadMoments<N>(args.update.moments, tensor.m, at, m);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float gradient = g[i] * multiplier;
      const float mean = beta * m[i] + (1.0f - beta) * gradient;
      const float sign = mean > 0 ? 1.0f : mean < 0 ? -1.0f : mean;
      p[i] = keep * p[i] - lr * sign;
      m[i] = momentum * m[i] + (1.0f - momentum) * gradient;
    }
    StoreUnit<T, N>(static_cast<T*>(tensor.p_to) + at, p);
    StoreMoments<N>(args.update.moments, tensor.m_to, at, m);
  }
};

// Calls whole(tensor, first element) for the block's whole units and one(...) for the rest.
template <typename Whole, typename One>
__device__ void ForEachElement(const UpdateArgs& args, const Whole& whole, const One& one) {
  int index = 0;
  while (index + 1 < args.tensor_count &&
         args.first_block[index + 1] <= static_cast<int32_t>(blockIdx.x)) {
    ++index;
  }
  const UpdateTensor& tensor = args.tensors[index];
  const int64_t begin =
      (static_cast<int64_t>(blockIdx.x) - args.first_block[index]) * kElementsOfABlock;
  const int64_t stop = begin + kElementsOfABlock;
  const int64_t end = stop < tensor.count ? stop : tensor.count;
  const int64_t units = (end - begin) / kUnit;
  for (int64_t u = threadIdx.x; u < units; u += blockDim.x) whole(tensor, begin + u * kUnit);
  const int64_t rest = begin + units * kUnit + threadIdx.x;
  if (rest < end) one(tensor, rest);
}

// Where gradients are no numbers all stays: results that are not in place are copies.
template <typename T>
struct Keep {
  const FloatType moments;
  __device__ void operator()(const UpdateTensor& tensor, int64_t at) const {
    static_cast<T*>(tensor.p_to)[at] = static_cast<const T*>(tensor.p)[at];
    StoreAny(tensor.m_to, moments, at, LoadAny(tensor.m, moments, at));
    if (tensor.v_to == nullptr) return;
    StoreAny(tensor.v_to, moments, at, LoadAny(tensor.v, moments, at));
  }
};

template <typename T>
struct KeepUnit {
  const FloatType moments;
  __device__ void operator()(const UpdateTensor& tensor, int64_t at) const {
    for (int i = 0; i < kUnit; ++i) Keep<T>{moments}(tensor, at + i);
  }
};

template <typename T>
__device__ bool KeepsAll(const UpdateArgs& args) {
  if (!args.skips || *args.multiplier != 0) return false;
  ForEachElement(args, KeepUnit<T>{args.moments}, Keep<T>{args.moments});
  return true;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) AdamWKernel(const AdamWArgs args) {
  if (KeepsAll<T>(args.update)) return;
  ForEachElement(args.update, AdamWUpdate<T, kUnit>(args), AdamWUpdate<T, 1>(args));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) SgdKernel(const SgdArgs args) {
  if (KeepsAll<T>(args.update)) return;
  ForEachElement(args.update, SgdUpdate<T, kUnit>{args}, SgdUpdate<T, 1>{args});
}

template <typename T>
__global__ void __launch_bounds__(kThreads) LionKernel(const SgdArgs args) {
  if (KeepsAll<T>(args.update)) return;
  ForEachElement(args.update, LionUpdate<T, kUnit>{args}, LionUpdate<T, 1>{args});
}

// Sets first_block; the number of all blocks. Tensors that fit into a GPU's memory have far fewer
// than an int32 counts.
int64_t CountBlocks(UpdateArgs& args) {
  int64_t blocks = 0;
  for (int32_t i = 0; i < args.tensor_count; ++i) {
    args.first_block[i] = static_cast<int32_t>(blocks);
    blocks += (args.tensors[i].count + kElementsOfABlock - 1) / kElementsOfABlock;
  }
  return blocks;
}

}  // namespace

Code launches::AdamW(const AdamWArgs& args, StreamHandle stream) {
  AdamWArgs counted = args;
  const int64_t blocks = CountBlocks(counted.update);
  if (blocks > kMostBlocks) return kTooManyBlocks;
  const Code code = Launch(stream, Blocks(1, 1), AdamWScalarsKernel, counted);
  if (code != 0) return code;
  return ForType(args.update.type, [&](auto element) {
    return Launch(stream, Blocks(blocks, kThreads), AdamWKernel<decltype(element)>, counted);
  });
}

Code launches::Sgd(const SgdArgs& args, StreamHandle stream) {
  SgdArgs counted = args;
  const int64_t blocks = CountBlocks(counted.update);
  if (blocks > kMostBlocks) return kTooManyBlocks;
  return ForType(args.update.type, [&](auto element) {
    using T = decltype(element);
    return Launch(stream, Blocks(blocks, kThreads),
                  args.sign_beta < 0 ? SgdKernel<T> : LionKernel<T>, counted);
  });
}

}  // namespace meshwright::ops::cuda
