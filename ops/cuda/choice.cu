// gather, scatter_add, one_hot, top_k. Sums are made by one thread per result, in the order of the
// ids.
#include "ops/cuda/fault.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads) GatherKernel(const GatherArgs args) {
  const AlongArgs& along = args.along;
  const int64_t count = along.outer * along.ids * along.inner;
  for (int64_t i = GlobalThread(); i < count; i += GridThreads()) {
    const int32_t id = args.ids[i];
    const int64_t outer = i / (along.ids * along.inner);
    const int64_t inner = i % along.inner;
    const int64_t row = IsTokenId(args.fault, id, i) ? id : 0;
    static_cast<T*>(args.to)[i] =
        static_cast<const T*>(args.x)[(outer * along.size + row) * along.inner + inner];
  }
}

// The thread of row 0 looks at all ids of its column.
template <typename T>
__global__ void __launch_bounds__(kThreads) ScatterAddKernel(const ScatterAddArgs args) {
  const AlongArgs& along = args.along;
  const int64_t count = along.outer * along.size * along.inner;
  for (int64_t i = GlobalThread(); i < count; i += GridThreads()) {
    const int64_t inner = i % along.inner;
    const int64_t row = i / along.inner % along.size;
    const int64_t first = i / (along.size * along.inner) * along.ids * along.inner + inner;
    float sum = 0;
    for (int64_t k = 0; k < along.ids; ++k) {
      const int64_t place = first + k * along.inner;
      const int32_t id = args.ids[place];
      if (row == 0) (void)IsTokenId(args.fault, id, place);
      if (id == row) sum += ToFloat(static_cast<const T*>(args.y)[place]);
    }
    static_cast<T*>(args.to)[i] = FromFloat<T>(sum);
  }
}

__global__ void __launch_bounds__(kThreads) OneHotKernel(const OneHotArgs args) {
  for (int64_t i = GlobalThread(); i < args.count * args.size; i += GridThreads()) {
    const int64_t id = args.ids[i / args.size];
    const bool hot = id == i % args.size && id != args.ignored;
    StoreAny(args.to, args.type, i, hot ? 1.0f : 0.0f);
  }
}

// An element of a row; no two are equal.
struct Entry {
  float value;
  int32_t id;  // -1: none, behind all others
};

__device__ inline bool Before(const Entry& x, const Entry& y) {
  if (x.id < 0 || y.id < 0) return y.id < 0 && x.id >= 0;
  const bool x_is_nan = x.value != x.value;
  const bool y_is_nan = y.value != y.value;
  if (x_is_nan != y_is_nan) return x_is_nan;
  if (x_is_nan || x.value == y.value) return x.id < y.id;
  return x.value > y.value;
}

// A warp per row: k times the first one behind the last one found.
template <typename T>
__global__ void __launch_bounds__(kThreads) TopKKernel(const TopKArgs args) {
  const int64_t row = GlobalThread() / kWarp;
  if (row >= args.rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const T* x = static_cast<const T*>(args.x) + row * args.width;
  Entry last{0, -1};
  for (int64_t k = 0; k < args.k; ++k) {
    Entry best{0, -1};
    for (int64_t i = lane; i < args.width; i += kWarp) {
      const Entry entry{ToFloat(x[i]), static_cast<int32_t>(i)};
      if ((k == 0 || Before(last, entry)) && Before(entry, best)) best = entry;
    }
#pragma unroll
    for (int bits = kWarp / 2; bits > 0; bits /= 2) {
      const Entry other{__shfl_xor_sync(kAllLanes, best.value, bits),
                        __shfl_xor_sync(kAllLanes, best.id, bits)};
      if (Before(other, best)) best = other;
    }
    if (lane == 0) {
      StoreAny(args.values, args.type, row * args.k + k, best.value);
      args.ids[row * args.k + k] = best.id;
    }
    last = best;
  }
}

LaunchShape ForElements(int64_t count) { return Blocks(BlocksFor(count, kThreads), kThreads); }

}  // namespace

Code launches::Gather(const GatherArgs& args, StreamHandle stream) {
  const LaunchShape shape = ForElements(args.along.outer * args.along.ids * args.along.inner);
  switch (args.element_bytes) {
    case 8:
      return Launch(stream, shape, GatherKernel<uint64_t>, args);
    case 4:
      return Launch(stream, shape, GatherKernel<uint32_t>, args);
    case 2:
      return Launch(stream, shape, GatherKernel<uint16_t>, args);
    default:
      return Launch(stream, shape, GatherKernel<uint8_t>, args);
  }
}

Code launches::ScatterAdd(const ScatterAddArgs& args, StreamHandle stream) {
  const LaunchShape shape = ForElements(args.along.outer * args.along.size * args.along.inner);
  return ForType(args.type, [&](auto element) {
    return Launch(stream, shape, ScatterAddKernel<decltype(element)>, args);
  });
}

Code launches::OneHot(const OneHotArgs& args, StreamHandle stream) {
  return Launch(stream, ForElements(args.count * args.size), OneHotKernel, args);
}

Code launches::TopK(const TopKArgs& args, StreamHandle stream) {
  const int64_t blocks = (args.rows * kWarp + kThreads - 1) / kThreads;
  if (blocks > kMostBlocks) return kTooManyBlocks;
  return ForType(args.type, [&](auto element) {
    return Launch(stream, Blocks(blocks, kThreads), TopKKernel<decltype(element)>, args);
  });
}

}  // namespace meshwright::ops::cuda
