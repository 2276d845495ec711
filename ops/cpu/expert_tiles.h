// Products of experts, cut into tiles of one expert each: rows of a run, or columns of its weights.
// Tiles depend on what the experts got, and not on the threads that share them.
//
// Thread rule: values; a Room is of one kernel, which runs once at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/expert_runs.h"
#include "ops/kernel.h"

namespace meshwright::ops::cpu {

inline constexpr int64_t kExpertTileRows = 128;
inline constexpr int64_t kExpertTileColumns = 512;

// x [rows, groups, capacity, d] times w [experts, d, f].
struct ExpertProducts {
  int64_t rows = 0;
  int64_t groups = 0;
  int64_t capacity = 0;
  int64_t experts = 0;
  int64_t d = 0;
  int64_t f = 0;

  // Of a grouped_matmul or of its gradient.
  static ExpertProducts Of(const KernelSpec& spec);
  int64_t slots() const { return rows * groups * capacity; }
};

// Rows [first, first + count) of the slots, of one expert, or zeros.
struct ExpertTile {
  int64_t expert = -1;  // -1: zeros
  int64_t first = 0;
  int64_t count = 0;
};

// What a kernel keeps between its runs: memory for all runs and tiles that there may be.
struct ExpertRoom {
  explicit ExpertRoom(const ExpertProducts& products);
  // The runs of these counts. Errors: as FindExpertRuns.
  Status Find(const int32_t* counts);
  // All slots, of the runs found; rows behind the last run of a group are zeros.
  void CutTiles();

  ExpertProducts of;
  std::vector<ExpertRun> runs;  // by expert, then by row of the batch
  std::vector<ExpertTile> tiles;
};

// The kernels for operands in bf16; null where this processor has no product of them, or where
// gradients of weights do not leave in f32.
KernelResult MakeHalfGroupedMatmul(const KernelSpec& spec);
// The same on matrix tiles; null, too, where this processor has none.
KernelResult MakeAmxGroupedMatmul(const KernelSpec& spec);

}  // namespace meshwright::ops::cpu
