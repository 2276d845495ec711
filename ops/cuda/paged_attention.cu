// paged_attention: all keys and values are written first, then a warp has one head of one token.
//
// A warp walks through its text 32 positions at a time, a lane for each of them where scores are
// made, and for each of some elements where values are added up. Sums are rescaled when a larger
// score comes. What it computes depends on its own text and place alone.
#include "ops/cuda/fault.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostElements = 256;  // of a head (ir/gpu_support.h)
constexpr int kPieces = kMostElements / kWarp;

// In elements from the start of the pages: the keys [e, t] of a head in a page; its values [t, e]
// are g * t * e behind them.
__device__ inline int64_t KeysOf(const PagedAttentionArgs& args, int64_t batch, int64_t page,
                                 int64_t group) {
  return ((batch * args.page_count + page) * 2 * args.g + group) * args.page_tokens * args.e;
}

__device__ inline int64_t TableRow(const PagedAttentionArgs& args, int64_t batch, int64_t row) {
  return (batch * args.texts + row) * args.text_pages;
}

// Whether there is such a place; reports it if not.
__device__ inline bool IsPlace(const PagedAttentionArgs& args, int32_t row, int32_t position) {
  if (row < args.texts && position >= 0 && position < args.text_pages * args.page_tokens) {
    return true;
  }
  ReportId(args.fault, row < args.texts ? position : row, 0);
  return false;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) WritePagesKernel(const PagedAttentionArgs args) {
  const int64_t width = args.g * args.e;
  for (int64_t i = GlobalThread(); i < args.b * args.keys * width; i += GridThreads()) {
    const int64_t key = i / width;
    const int32_t row = args.key_row[key];
    const int32_t position = args.key_position[key];
    if (row < 0 || !IsPlace(args, row, position)) continue;
    const int64_t batch = key / args.keys;
    const int64_t place = TableRow(args, batch, row) + position / args.page_tokens;
    const int32_t page = args.table[place];
    if (!IsTokenId(args.fault, page, place)) continue;
    const int64_t group = i % width / args.e;
    const int64_t element = i % args.e;
    const int64_t slot = position % args.page_tokens;
    T* const keys = static_cast<T*>(args.pages) + KeysOf(args, batch, page, group);
    keys[element * args.page_tokens + slot] = static_cast<const T*>(args.k)[i];
    T* const values = keys + args.g * args.page_tokens * args.e;
    values[slot * args.e + element] = static_cast<const T*>(args.v)[i];
  }
}

__device__ inline float Capped(const PagedAttentionArgs& args, float score) {
  return args.cap > 0 ? args.cap * tanhf(score / args.cap) : score;
}

// A text's pages that one kv head reads.
template <typename T>
class Text {
 public:
  __device__ Text(const PagedAttentionArgs& args, int64_t batch, int64_t row, int64_t group)
      : args_(args), batch_(batch), group_(group), row_(TableRow(args, batch, row)) {}

  // The key of a position, elements page_tokens apart; null: there is no such page.
  __device__ const T* Key(int64_t position) const {
    const int64_t place = row_ + position / args_.page_tokens;
    const int32_t page = args_.table[place];
    if (!IsTokenId(args_.fault, page, place)) return nullptr;
    return static_cast<const T*>(args_.pages) + KeysOf(args_, batch_, page, group_) +
           position % args_.page_tokens;
  }
  // The value of a position whose key is there.
  __device__ const T* Value(int64_t position) const {
    const int32_t page = args_.table[row_ + position / args_.page_tokens];
    return static_cast<const T*>(args_.pages) + KeysOf(args_, batch_, page, group_) +
           args_.g * args_.page_tokens * args_.e + position % args_.page_tokens * args_.e;
  }

 private:
  const PagedAttentionArgs& args_;
  const int64_t batch_;
  const int64_t group_;
  const int64_t row_;
};

// A warp per head of a token.
template <typename T>
__global__ void __launch_bounds__(kWarp) ReadPagesKernel(const PagedAttentionArgs args) {
  __shared__ float shares[kWarp];
  __shared__ int there[kWarp];
  const int64_t unit = blockIdx.x;
  const int64_t token = unit / args.h;
  const int64_t head = unit % args.h;
  const int64_t batch = token / args.n;
  const int lane = static_cast<int>(threadIdx.x);
  const int32_t row = args.row[token];
  const int32_t position = args.position[token];
  T* const o = static_cast<T*>(args.o) + unit * args.e;
  float* const lse = args.lse + (batch * args.h + head) * args.n + token % args.n;
  if (row < 0 || !IsPlace(args, row, position)) {
    for (int64_t i = lane; i < args.e; i += kWarp) o[i] = FromFloat<T>(0.0f);
    if (lane == 0) *lse = -INFINITY;
    return;
  }
  const Text<T> text(args, batch, row, head / (args.h / args.g));
  const T* const q = static_cast<const T*>(args.q) + unit * args.e;
  const int64_t first = args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
  float sums[kPieces] = {};
  float largest = -INFINITY;
  float total = 0;
  for (int64_t start = first; start <= position; start += kWarp) {
    const int64_t j = start + lane;
    const T* const key = j <= position ? text.Key(j) : nullptr;
    float score = -INFINITY;
    if (key != nullptr) {
      float product = 0;
      for (int64_t i = 0; i < args.e; ++i) {
        product += ToFloat(q[i]) * ToFloat(key[i * args.page_tokens]);
      }
      score = Capped(args, product * args.scale);
      if (args.bias != nullptr) {
        const int64_t distance = position - j;
        const int64_t place = distance < args.distances ? distance : args.distances - 1;
        score += LoadAny(args.bias, args.type, head * args.distances + place);
      }
    }
    const float best = Larger(largest, WarpMax(score));
    const bool any = best > -INFINITY || best != best;
    const float kept = any ? ExpOfDifference(largest, best) : 1.0f;
    const float share = any && key != nullptr ? ExpOfDifference(score, best) : 0.0f;
    total = total * kept + WarpSum(share);
    __syncthreads();
    shares[lane] = share;
    there[lane] = key != nullptr ? 1 : 0;
    __syncthreads();
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) sums[piece] *= kept;
    for (int i = 0; i < kWarp && start + i <= position; ++i) {
      if (there[i] == 0) continue;
      const T* const value = text.Value(start + i);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        const int64_t element = lane + static_cast<int64_t>(piece) * kWarp;
        if (element < args.e) sums[piece] += shares[i] * ToFloat(value[element]);
      }
    }
    largest = best;
  }
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int64_t element = lane + static_cast<int64_t>(piece) * kWarp;
    if (element < args.e) o[element] = FromFloat<T>(sums[piece] / total);
  }
  if (lane == 0) *lse = largest + logf(total);
}

}  // namespace

Code launches::PagedAttention(const PagedAttentionArgs& args, StreamHandle stream) {
  const int64_t units = args.b * args.n * args.h;
  if (units > kMostBlocks) return kTooManyBlocks;
  return ForType(args.type, [&](auto element) {
    using T = decltype(element);
    const int64_t written = args.b * args.keys * args.g * args.e;
    const Code code =
        Launch(stream, Blocks(BlocksFor(written, kThreads), kThreads), WritePagesKernel<T>, args);
    return code != 0 ? code : Launch(stream, Blocks(units, kWarp), ReadPagesKernel<T>, args);
  });
}

}  // namespace meshwright::ops::cuda
