// expert_slots, dispatch, combine and its gradient for weights, grouped_matmul and its gradient.
//
// How many rows each expert got is known on the device only: grids are made for as many as there
// may be, and blocks of the products look up which runs their rows are of. A tile of rows that has
// rows of several experts adds up the products of each, with zeros for the others' rows. Sums have
// a fixed order.
#include "ops/cuda/fault.cuh"
#include "ops/cuda/launches.cuh"

namespace meshwright::ops::cuda {
namespace {

constexpr int kThreads = 256;

// ---- Slots --------------------------------------------------------------------------------------

__device__ inline int64_t Smaller(int64_t x, int64_t y) { return x < y ? x : y; }

// A block per row of the batch, a thread per expert: it takes its choices in their order.
__global__ void __launch_bounds__(kThreads) ExpertSlotsKernel(const ExpertSlotsArgs args) {
  const int64_t row = blockIdx.x;
  const int64_t choices = args.tokens * args.k;
  const int64_t of_group = args.experts / args.groups;
  const int32_t* ids = args.ids + row * choices;
  int32_t* slots = args.slots + row * choices;
  int32_t* used = args.used + row * args.experts;
  int32_t* chosen = args.chosen + row * args.experts;
  for (int64_t i = threadIdx.x; i < choices; i += blockDim.x) {
    if (!IsTokenId(args.fault, ids[i], row * choices + i)) slots[i] = -1;
  }
  for (int64_t expert = threadIdx.x; expert < args.experts; expert += blockDim.x) {
    int32_t count = 0;
    for (int64_t i = 0; i < choices; ++i) count += ids[i] == expert ? 1 : 0;
    chosen[expert] = count;
  }
  __syncthreads();
  for (int64_t group = threadIdx.x; group < args.groups; group += blockDim.x) {
    int64_t room = args.capacity;
    for (int64_t i = group * of_group; i < (group + 1) * of_group; ++i) {
      const int64_t count = Smaller(chosen[i], room);
      used[i] = static_cast<int32_t>(count);
      room -= count;
    }
  }
  __syncthreads();
  for (int64_t expert = threadIdx.x; expert < args.experts; expert += blockDim.x) {
    const int64_t group = expert / of_group;
    int64_t next = group * args.capacity;
    for (int64_t i = group * of_group; i < expert; ++i) next += used[i];
    const int64_t end = next + used[expert];
    for (int64_t i = 0; i < choices; ++i) {
      const int64_t at = args.by_choice ? i % args.tokens * args.k + i / args.tokens : i;
      if (ids[at] == expert) slots[at] = static_cast<int32_t>(next < end ? next++ : -1);
    }
  }
}

// A block per row of the batch, a thread per host: it gives places to the tokens that have slots
// there, in their order.
__global__ void __launch_bounds__(kThreads) HostPlacesKernel(const ExpertSlotsArgs args) {
  const int64_t row = blockIdx.x;
  const int32_t* slots = args.ids + row * args.tokens * args.k;
  int32_t* places = args.slots + row * args.tokens * args.hosts;
  int32_t* within = args.used + row * args.hosts * args.host_capacity * args.k;
  for (int64_t host = threadIdx.x; host < args.hosts; host += blockDim.x) {
    const int64_t first = host * args.host_capacity;
    for (int64_t i = 0; i < args.host_capacity * args.k; ++i) within[first * args.k + i] = -1;
    int64_t count = 0;
    for (int64_t token = 0; token < args.tokens; ++token) {
      int64_t place = -1;
      for (int64_t choice = 0; choice < args.k; ++choice) {
        const int64_t slot = slots[token * args.k + choice];
        if (slot < 0 || slot / args.host_slots != host) continue;
        if (place < 0) place = first + count++;
        within[place * args.k + choice] = static_cast<int32_t>(slot % args.host_slots);
      }
      places[token * args.hosts + host] = static_cast<int32_t>(place);
    }
    args.chosen[row * args.hosts + host] = static_cast<int32_t>(count);
  }
}

// Where slot number `slot` of a row is, of all slots; below 0: with another device, or nowhere.
__device__ inline int64_t PlaceOf(const SlotPlaces& at, int64_t row, int64_t slot) {
  if (slot < 0) return -1;
  const int64_t group = slot / at.capacity - at.first_group;
  if (group < 0 || group >= at.groups) return -1;
  return (row * at.groups + group) * at.capacity + slot % at.capacity;
}

__global__ void __launch_bounds__(kThreads) NoChoiceKernel(const DispatchArgs args, int64_t slots) {
  for (int64_t i = GlobalThread(); i < slots; i += GridThreads()) args.choice_of[i] = -1;
}

// No two choices have the same slot.
__global__ void __launch_bounds__(kThreads) ChoiceOfKernel(const DispatchArgs args) {
  const int64_t of_row = args.at.tokens * args.at.k;
  for (int64_t i = GlobalThread(); i < args.at.rows * of_row; i += GridThreads()) {
    const int64_t place = PlaceOf(args.at, i / of_row, args.slots[i]);
    if (place >= 0) args.choice_of[place] = static_cast<int32_t>(i);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) DispatchKernel(const DispatchArgs args, int64_t count) {
  for (int64_t i = GlobalThread(); i < count; i += GridThreads()) {
    const int64_t slot = i / args.at.width;
    const int64_t choice = args.choice_of[slot];
    float value = 0;
    if (choice >= 0) {
      const int64_t from = choice / args.at.k * args.at.width + (i - slot * args.at.width);
      value = ToFloat(static_cast<const T*>(args.x)[from]);
      if (args.weights != nullptr) value *= LoadAny(args.weights, args.weight, choice);
    }
    static_cast<T*>(args.to)[i] = FromFloat<T>(value);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) CombineKernel(const CombineArgs args) {
  const int64_t count = args.at.rows * args.at.tokens * args.at.width;
  for (int64_t i = GlobalThread(); i < count; i += GridThreads()) {
    const int64_t token = i / args.at.width;
    const int64_t column = i - token * args.at.width;
    float sum = 0;
    for (int64_t choice = token * args.at.k; choice < (token + 1) * args.at.k; ++choice) {
      const int64_t place = PlaceOf(args.at, token / args.at.tokens, args.slots[choice]);
      if (place < 0) continue;
      const float y = ToFloat(static_cast<const T*>(args.y)[place * args.at.width + column]);
      sum += args.weights == nullptr ? y : y * LoadAny(args.weights, args.weight, choice);
    }
    static_cast<T*>(args.to)[i] = FromFloat<T>(sum);
  }
}

// A warp per choice.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    CombineGradWeightsKernel(const CombineGradWeightsArgs args) {
  const int64_t choice = GlobalThread() / kWarp;
  const int64_t of_row = args.at.tokens * args.at.k;
  if (choice >= args.at.rows * of_row) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int64_t place = PlaceOf(args.at, choice / of_row, args.slots[choice]);
  float sum = 0;
  if (place >= 0) {
    const T* dy = static_cast<const T*>(args.dy) + choice / args.at.k * args.at.width;
    const T* y = static_cast<const T*>(args.y) + place * args.at.width;
    for (int64_t i = lane; i < args.at.width; i += kWarp) sum += ToFloat(dy[i]) * ToFloat(y[i]);
  }
  sum = WarpSum(sum);
  if (lane == 0) StoreAny(args.to, args.result, choice, sum);
}

// ---- Products -----------------------------------------------------------------------------------

constexpr int kTile = 64;   // rows and columns of a block's result
constexpr int kDepth = 16;  // of the sums at a time
constexpr int kEach = 4;    // rows and columns of a thread's result
constexpr int kAcross = kTile / kEach;
static_assert(kAcross * kAcross == kThreads, "a thread has kEach x kEach results");

// Both factors of kDepth steps of the sums, and what a thread has of the tile.
struct Factors {
  float a[kDepth][kTile];
  float b[kDepth][kTile];
};

__device__ inline void AddProducts(const Factors& factors, float (&sums)[kEach][kEach]) {
  const int row = static_cast<int>(threadIdx.x) / kAcross * kEach;
  const int column = static_cast<int>(threadIdx.x) % kAcross * kEach;
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        sums[i][j] += factors.a[k][row + i] * factors.b[k][column + j];
      }
    }
  }
}

// Slots of an expert within its group, of a row of the batch.
struct Run {
  int64_t begin;
  int64_t end;
};
// The run behind `before`.
__device__ inline Run RunOf(const GroupedRuns& runs, int64_t row, int64_t expert, int64_t before) {
  const int64_t count = runs.counts[row * runs.experts + expert];
  return {before, Smaller(before + (count > 0 ? count : 0), runs.capacity)};
}

// A tile of slots of one group, and of columns.
template <typename T>
__global__ void __launch_bounds__(kThreads) GroupedMatmulKernel(const GroupedMatmulArgs args) {
  __shared__ Factors factors;
  const int64_t column_tiles = (args.f + kTile - 1) / kTile;
  const int64_t slot_tiles = (args.runs.capacity + kTile - 1) / kTile;
  const int64_t of_group = args.runs.experts / args.runs.groups;
  const int64_t block = blockIdx.x;
  const int64_t first_column = block % column_tiles * kTile;
  const int64_t first = block / column_tiles % slot_tiles * kTile;
  const int64_t group_of_row = block / (column_tiles * slot_tiles);
  const int64_t row = group_of_row / args.runs.groups;
  const int64_t group = group_of_row % args.runs.groups;
  const int64_t first_slot = group_of_row * args.runs.capacity;
  const T* x = static_cast<const T*>(args.x) + (first_slot + first) * args.d;
  float sums[kEach][kEach] = {};
  int64_t before = 0;
  for (int64_t i = 0; i < of_group && before < first + kTile; ++i) {
    const int64_t expert = group * of_group + i;
    const Run run = RunOf(args.runs, row, expert, before);
    before = run.end;
    if (run.end <= first || run.begin >= first + kTile) continue;
    const T* w = static_cast<const T*>(args.w) + expert * args.d * args.f;
    for (int64_t depth = 0; depth < args.d; depth += kDepth) {
      __syncthreads();
      for (int at = static_cast<int>(threadIdx.x); at < kDepth * kTile; at += kThreads) {
        const int64_t k = depth + at % kDepth;
        const int64_t slot = first + at / kDepth;
        const bool here = k < args.d && slot >= run.begin && slot < run.end;
        factors.a[at % kDepth][at / kDepth] = here ? ToFloat(x[(slot - first) * args.d + k]) : 0.0f;
      }
      for (int at = static_cast<int>(threadIdx.x); at < kDepth * kTile; at += kThreads) {
        // Neighbouring threads read neighbouring elements.
        const int step = args.transposed ? at % kDepth : at / kTile;
        const int place = args.transposed ? at / kDepth : at % kTile;
        const int64_t k = depth + step;
        const int64_t column = first_column + place;
        const int64_t from = args.transposed ? column * args.d + k : k * args.f + column;
        factors.b[step][place] = k < args.d && column < args.f ? ToFloat(w[from]) : 0.0f;
      }
      __syncthreads();
      AddProducts(factors, sums);
    }
  }
  T* to = static_cast<T*>(args.to) + first_slot * args.f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t slot = first + static_cast<int64_t>(threadIdx.x) / kAcross * kEach + i;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int64_t column = first_column + static_cast<int64_t>(threadIdx.x) % kAcross * kEach + j;
      if (slot < args.runs.capacity && column < args.f) {
        to[slot * args.f + column] = FromFloat<T>(sums[i][j]);
      }
    }
  }
}

// A tile of an expert's matrix: the sum over its runs in all rows of the batch.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    GroupedMatmulGradKernel(const GroupedMatmulGradArgs args) {
  __shared__ Factors factors;
  const int64_t column_tiles = (args.f + kTile - 1) / kTile;
  const int64_t row_tiles = (args.d + kTile - 1) / kTile;
  const int64_t of_group = args.runs.experts / args.runs.groups;
  const int64_t block = blockIdx.x;
  const int64_t first_column = block % column_tiles * kTile;
  const int64_t first_row = block / column_tiles % row_tiles * kTile;
  const int64_t expert = block / (column_tiles * row_tiles);
  const int64_t group = expert / of_group;
  float sums[kEach][kEach] = {};
  for (int64_t row = 0; row < args.runs.rows; ++row) {
    Run run{0, 0};
    for (int64_t i = group * of_group; i <= expert; ++i) run = RunOf(args.runs, row, i, run.end);
    const int64_t first_slot = (row * args.runs.groups + group) * args.runs.capacity;
    for (int64_t slot = run.begin; slot < run.end; slot += kDepth) {
      __syncthreads();
      for (int at = static_cast<int>(threadIdx.x); at < kDepth * kTile; at += kThreads) {
        const int64_t from = first_slot + slot + at / kTile;
        const bool here = slot + at / kTile < run.end;
        const int64_t i = first_row + at % kTile;
        const int64_t j = first_column + at % kTile;
        factors.a[at / kTile][at % kTile] =
            here && i < args.d ? ToFloat(static_cast<const T*>(args.x)[from * args.d + i]) : 0.0f;
        factors.b[at / kTile][at % kTile] =
            here && j < args.f ? ToFloat(static_cast<const T*>(args.dy)[from * args.f + j]) : 0.0f;
      }
      __syncthreads();
      AddProducts(factors, sums);
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = first_row + static_cast<int64_t>(threadIdx.x) / kAcross * kEach + i;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int64_t column = first_column + static_cast<int64_t>(threadIdx.x) % kAcross * kEach + j;
      if (at >= args.d || column >= args.f) continue;
      const int64_t place = (expert * args.d + at) * args.f + column;
      const float old =
          args.accumulator == nullptr ? 0.0f : LoadAny(args.accumulator, args.result, place);
      StoreAny(args.to, args.result, place, old + sums[i][j]);
    }
  }
}

LaunchShape ForElements(int64_t count) { return Blocks(BlocksFor(count, kThreads), kThreads); }

int64_t Tiles(int64_t size) { return (size + kTile - 1) / kTile; }

}  // namespace

Code launches::ExpertSlots(const ExpertSlotsArgs& args, StreamHandle stream) {
  if (args.rows > kMostBlocks) return kTooManyBlocks;
  if (args.hosts > 0) return Launch(stream, Blocks(args.rows, kThreads), HostPlacesKernel, args);
  return Launch(stream, Blocks(args.rows, kThreads), ExpertSlotsKernel, args);
}

Code launches::Dispatch(const DispatchArgs& args, StreamHandle stream) {
  const int64_t slots = args.at.slots();
  const Code cleared = Launch(stream, ForElements(slots), NoChoiceKernel, args, slots);
  if (cleared != 0) return cleared;
  const Code chosen = Launch(stream, ForElements(args.at.choices()), ChoiceOfKernel, args);
  if (chosen != 0) return chosen;
  const int64_t count = slots * args.at.width;
  return ForType(args.type, [&](auto element) {
    return Launch(stream, ForElements(count), DispatchKernel<decltype(element)>, args, count);
  });
}

Code launches::Combine(const CombineArgs& args, StreamHandle stream) {
  const int64_t count = args.at.rows * args.at.tokens * args.at.width;
  return ForType(args.type, [&](auto element) {
    return Launch(stream, ForElements(count), CombineKernel<decltype(element)>, args);
  });
}

Code launches::CombineGradWeights(const CombineGradWeightsArgs& args, StreamHandle stream) {
  const int64_t blocks = (args.at.choices() * kWarp + kThreads - 1) / kThreads;
  if (blocks > kMostBlocks) return kTooManyBlocks;
  return ForType(args.type, [&](auto element) {
    return Launch(stream, Blocks(blocks, kThreads), CombineGradWeightsKernel<decltype(element)>,
                  args);
  });
}

Code launches::GroupedMatmul(const GroupedMatmulArgs& args, StreamHandle stream) {
  const int64_t blocks =
      args.runs.rows * args.runs.groups * Tiles(args.runs.capacity) * Tiles(args.f);
  if (blocks > kMostBlocks) return kTooManyBlocks;
  return ForType(args.type, [&](auto element) {
    return Launch(stream, Blocks(blocks, kThreads), GroupedMatmulKernel<decltype(element)>, args);
  });
}

Code launches::GroupedMatmulGrad(const GroupedMatmulGradArgs& args, StreamHandle stream) {
  const int64_t blocks = args.runs.experts * Tiles(args.d) * Tiles(args.f);
  if (blocks > kMostBlocks) return kTooManyBlocks;
  return ForType(args.type, [&](auto element) {
    return Launch(stream, Blocks(blocks, kThreads), GroupedMatmulGradKernel<decltype(element)>,
                  args);
  });
}

}  // namespace meshwright::ops::cuda
