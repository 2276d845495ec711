// constant, random_normal, noise, learning_rate.
#include "ops/cuda/launches.cuh"
#include "ops/cuda/random.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) FillKernel(T* to, int64_t units, float value) {
  float values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = value;
  for (int64_t i = GlobalThread(); i < units; i += GridThreads())
    StoreUnit<T, N>(to + i * N, values);
}

// PhiloxNormal of base/philox.h.
__device__ double NormalOf(uint64_t key, uint64_t step, uint64_t index) {
  const PhiloxBlock block = Philox(key, index >> 2, step);
  const bool second = (index & 2) != 0;
  const uint32_t word1 = second ? block[2] : block[0];
  const uint32_t word2 = second ? block[3] : block[1];
  const double u1 = (static_cast<double>(word1) + 1.0) * 0x1.0p-32;
  const double u2 = static_cast<double>(word2) * 0x1.0p-32;
  const double angle = 6.283185307179586476925286766559 * u2;
  return sqrt(-2.0 * log(u1)) * ((index & 1) == 0 ? cos(angle) : sin(angle));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) RandomNormalKernel(const RandomNormalArgs args) {
  const uint64_t key = PhiloxKey(args.state->seed, args.stream);
  T* to = static_cast<T*>(args.to);
  ForEachGlobalUnit<1>(args.runs, [&](int64_t i, int64_t at, int64_t start, int64_t valid) {
    double value = 0;
    if (at < valid) {
      value =
          args.mean + args.deviation * NormalOf(key, kNoStep, static_cast<uint64_t>(start + at));
    }
    to[i] = FromFloat<T>(static_cast<float>(value));
  });
}

template <typename T>
__global__ void __launch_bounds__(kThreads) NoiseKernel(const NoiseArgs args) {
  const uint64_t key = PhiloxKey(args.state->seed, args.stream);
  const uint64_t step = static_cast<uint64_t>(args.state->step);
  T* to = static_cast<T*>(args.to);
  ForEachGlobalUnit<1>(args.runs, [&](int64_t i, int64_t at, int64_t start, int64_t valid) {
    const uint64_t index = static_cast<uint64_t>(start + at);
    double value = 0;
    if (at >= valid) {
      value = 0;
    } else if (args.normal) {
      value = NormalOf(key, step, index);
    } else {
      PhiloxWords words(key, step);
      value = UniformFromBits(words.At(index));
    }
    to[i] = FromFloat<T>(static_cast<float>(value));
  });
}

// Of lr above min_lr, what is left when this share of the decay is done.
__device__ double ShareAt(const LearningRateArgs& args, double progress) {
  using Schedule = LearningRateArgs::Schedule;
  constexpr double kPi = 3.141592653589793238462643383279;
  if (args.schedule == Schedule::kLinear) return 1.0 - progress;
  if (args.schedule == Schedule::kPolynomial) return pow(1.0 - progress, args.number);
  if (args.schedule == Schedule::kRestarts) {
    if (progress >= 1.0) return 0.0;
    progress = fmod(args.number * progress, 1.0);
  }
  return 0.5 * (1.0 + cos(kPi * progress));
}

__device__ double RateAt(const LearningRateArgs& args, int64_t step) {
  using Schedule = LearningRateArgs::Schedule;
  if (args.schedule == Schedule::kRelative || args.schedule == Schedule::kRelativeWarmup) {
    const double t = static_cast<double>(step + 1);
    const double least = args.schedule == Schedule::kRelative ? 1e-2 : 1e-6 * t;
    const double root = 1.0 / sqrt(t);
    return args.lr * (least < root ? least : root);
  }
  if (step < args.warmup_steps) {
    return args.lr * static_cast<double>(step + 1) / static_cast<double>(args.warmup_steps);
  }
  if (args.schedule == Schedule::kConstant) return args.lr;
  if (args.schedule == Schedule::kInverseSqrt) {
    const int64_t scale = args.warmup_steps > 0 ? args.warmup_steps : args.shift;
    const int64_t shifted = step + scale - args.warmup_steps;
    return args.lr * sqrt(static_cast<double>(scale) / static_cast<double>(shifted));
  }
  const int64_t decay_steps = args.total_steps - args.warmup_steps;
  double progress = 1.0;
  if (decay_steps > 0) {
    progress = static_cast<double>(step - args.warmup_steps) / static_cast<double>(decay_steps);
    progress = progress < 1.0 ? progress : 1.0;
  }
  return args.min_lr + (args.lr - args.min_lr) * ShareAt(args, progress);
}

__global__ void __launch_bounds__(1) LearningRateKernel(const LearningRateArgs args) {
  StoreAny(args.to, args.type, 0, static_cast<float>(RateAt(args, args.state->step)));
}

}  // namespace

Code launches::Fill(const FillArgs& args, StreamHandle stream) {
  return ForType(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kUnit = UnitOf<T>();
    const int64_t whole = args.count / kUnit;
    const float value = static_cast<float>(args.value);
    T* to = static_cast<T*>(args.to);
    const Code code = Launch(stream, Blocks(BlocksFor(whole, kThreads), kThreads),
                             FillKernel<T, kUnit>, to, whole, value);
    if (code != 0 || args.count == whole * kUnit) return code;
    return Launch(stream, Blocks(1, kWarp), FillKernel<T, 1>, to + whole * kUnit,
                  args.count - whole * kUnit, value);
  });
}

Code launches::RandomNormal(const RandomNormalArgs& args, StreamHandle stream) {
  const int64_t elements = args.runs.runs * args.runs.run_length;
  return ForType(args.type, [&](auto element) {
    return Launch(stream, Blocks(BlocksFor(elements, kThreads), kThreads),
                  RandomNormalKernel<decltype(element)>, args);
  });
}

Code launches::Noise(const NoiseArgs& args, StreamHandle stream) {
  const int64_t elements = args.runs.runs * args.runs.run_length;
  return ForType(args.type, [&](auto element) {
    return Launch(stream, Blocks(BlocksFor(elements, kThreads), kThreads),
                  NoiseKernel<decltype(element)>, args);
  });
}

Code launches::LearningRate(const LearningRateArgs& args, StreamHandle stream) {
  return Launch(stream, Blocks(1, 1), LearningRateKernel, args);
}

}  // namespace meshwright::ops::cuda
