// Reports of bad token ids from kernels. For .cu files only.
//
// Thread rule: as kernels.
#pragma once

#include "ops/cuda/language.cuh"

namespace meshwright::ops::cuda {

// Keeps the id unless another one is kept already.
__device__ inline void ReportId(const FaultArgs& args, int32_t id, int64_t position) {
  if (atomicCAS(&args.fault->found, 0, args.op) != 0) return;
  args.fault->id = id;
  args.fault->position = position;
  args.fault->table_rows = args.table_rows;
}

// Whether the id is one of the table's; reports it if not.
__device__ inline bool IsTokenId(const FaultArgs& args, int32_t id, int64_t position) {
  if (id >= 0 && id < args.table_rows) return true;
  ReportId(args, id, position);
  return false;
}

}  // namespace meshwright::ops::cuda
