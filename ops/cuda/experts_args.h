// Arguments of our kernels of experts; see kernel_args.h.
//
// Thread rule: plain values.
#pragma once

#include "ops/cuda/kernel_args.h"

namespace meshwright::ops::cuda {

// Slots [rows, groups, capacity, width] of some of all groups, and choices [rows, tokens, k] of
// slots; as ops/expert_runs.h has it.
struct SlotPlaces {
  int64_t rows = 0;
  int64_t groups = 0;
  int64_t capacity = 0;
  int64_t width = 0;
  int64_t tokens = 0;
  int64_t k = 0;
  int64_t first_group = 0;

  int64_t slots() const { return rows * groups * capacity; }
  int64_t choices() const { return rows * tokens * k; }
};

struct ExpertSlotsArgs {
  const int32_t* ids = nullptr;  // [rows, tokens, k]
  int32_t* slots = nullptr;      // the same
  int32_t* used = nullptr;       // [rows, experts]
  int32_t* chosen = nullptr;     // [rows, experts]
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t k = 1;
  int64_t experts = 1;
  int64_t groups = 1;
  int64_t capacity = 0;
  bool by_choice = false;
  // Above 0: ids are slots; places [rows, tokens, hosts], within [rows, hosts, host_capacity, k]
  // and counts [rows, hosts] are asked for (ops/expert_runs.h).
  int64_t hosts = 0;
  int64_t host_slots = 0;
  int64_t host_capacity = 0;
  FaultArgs fault;
};
struct DispatchArgs {
  const void* x = nullptr;         // [rows, tokens, width]
  const int32_t* slots = nullptr;  // [rows, tokens, k]
  const void* weights = nullptr;   // the same; null: 1
  void* to = nullptr;              // [rows, groups, capacity, width]
  int32_t* choice_of = nullptr;    // scratch: a word of each slot
  SlotPlaces at;
  FloatType type = FloatType::kF32;    // of x and to
  FloatType weight = FloatType::kF32;  // of weights
};
struct CombineArgs {
  const void* y = nullptr;  // [rows, groups, capacity, width]
  const int32_t* slots = nullptr;
  const void* weights = nullptr;  // [rows, tokens, k]; null: 1
  void* to = nullptr;             // [rows, tokens, width]
  SlotPlaces at;
  FloatType type = FloatType::kF32;    // of y and to
  FloatType weight = FloatType::kF32;  // of weights
};
struct CombineGradWeightsArgs {
  const void* dy = nullptr;  // [rows, tokens, width]
  const void* y = nullptr;   // [rows, groups, capacity, width]
  const int32_t* slots = nullptr;
  void* to = nullptr;  // [rows, tokens, k]
  SlotPlaces at;
  FloatType type = FloatType::kF32;    // of dy and y
  FloatType result = FloatType::kF32;  // of to
};

// Runs of slots [rows, groups, capacity] by the experts of each group, one behind the other.
struct GroupedRuns {
  const int32_t* counts = nullptr;  // [rows, experts]
  int64_t rows = 0;
  int64_t groups = 0;
  int64_t capacity = 0;
  int64_t experts = 0;
};
struct GroupedMatmulArgs {
  const void* x = nullptr;  // [rows, groups, capacity, d]
  const void* w = nullptr;  // [experts, d, f], or [experts, f, d] when transposed
  void* to = nullptr;       // [rows, groups, capacity, f]
  GroupedRuns runs;
  int64_t d = 0;
  int64_t f = 0;
  bool transposed = false;
  FloatType type = FloatType::kF32;
};
struct GroupedMatmulGradArgs {
  const void* x = nullptr;            // [rows, groups, capacity, d]
  const void* dy = nullptr;           // [rows, groups, capacity, f]
  const void* accumulator = nullptr;  // as `to`; null: 0
  void* to = nullptr;                 // [experts, d, f]
  GroupedRuns runs;
  int64_t d = 0;
  int64_t f = 0;
  FloatType type = FloatType::kF32;    // of x and dy
  FloatType result = FloatType::kF32;  // of `to` and the accumulator
};

}  // namespace meshwright::ops::cuda
