#include "ops/cpu/expert_tiles.h"

#include <algorithm>

namespace meshwright::ops::cpu {

ExpertProducts ExpertProducts::Of(const KernelSpec& spec) {
  const ir::Dims& x = spec.inputs[0].dims;
  const bool product = spec.op == ir::Op::kGroupedMatmul;
  const int64_t f = product ? spec.outputs[0].dims[3] : spec.inputs[2].dims[3];
  return {x[0], x[1], x[2], spec.inputs[1].dims[1], x[3], f};
}

ExpertRoom::ExpertRoom(const ExpertProducts& products) : of(products) {
  runs.reserve(static_cast<size_t>(of.rows * of.experts));
  tiles.reserve(
      static_cast<size_t>(of.slots() / kExpertTileRows + of.rows * (of.experts + of.groups)));
}

Status ExpertRoom::Find(const int32_t* counts) {
  return FindExpertRuns(counts, of.rows, of.experts, of.groups, of.capacity, runs);
}

void ExpertRoom::CutTiles() {
  tiles.clear();
  for (const ExpertRun& run : runs) {
    for (int64_t begin = 0; begin < run.count; begin += kExpertTileRows) {
      tiles.push_back(
          {run.expert, run.first + begin, std::min(kExpertTileRows, run.count - begin)});
    }
  }
  const int64_t of_group = of.experts / of.groups;
  for (int64_t row = 0; row < of.rows; ++row) {
    for (int64_t group = 0; group < of.groups; ++group) {
      const int64_t last = ((group + 1) * of_group - 1) * of.rows + row;
      const ExpertRun& run = runs[static_cast<size_t>(last)];
      const int64_t begin = run.first + run.count;
      const int64_t end = (row * of.groups + group + 1) * of.capacity;
      if (begin < end) tiles.push_back({-1, begin, end - begin});
    }
  }
}

}  // namespace meshwright::ops::cpu
