// Where blocks of a shared vocabulary lie: layers, rows, state.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ir/stage_block.h"
#include "planner/vocabulary_blocks.h"
#include "planner/vocabulary_schedule.h"

namespace meshwright::planner {

std::vector<int> VocabularyLayers::Parts(const std::vector<int>& of_model) const {
  MW_CHECK(static_cast<int>(of_model.size()) == model) << of_model.size() << " layers";
  const PipelineShape shape{stages, kVocabularyChunks, false};
  std::vector<int> parts;
  for (const int part : of_model) parts.push_back(shape.PartOf(part, kLayersChunk));
  for (const int chunk : {kEmbeddingChunk, kOutputChunk}) {
    for (int stage = 0; stage < stages; ++stage) parts.push_back(shape.PartOf(stage, chunk));
  }
  parts.push_back(shape.PartOf(stages - 1, kLossChunk));
  return parts;
}

std::vector<int64_t> VocabularyBounds(int64_t vocabulary, int64_t stages, int64_t unit) {
  MW_CHECK(stages >= 1 && vocabulary >= stages) << vocabulary << " rows on " << stages;
  if (vocabulary % unit != 0 || vocabulary / unit < stages) unit = 1;
  const int64_t units = vocabulary / unit;
  std::vector<int64_t> bounds;
  for (int64_t k = 0; k <= stages; ++k) {
    bounds.push_back(unit * (k * (units / stages) + std::min(k, units % stages)));
  }
  return bounds;
}

Status CheckVocabulary(const ir::JobRequest& job, const Layout& layout) {
  if (!SharesVocabulary(layout)) return OkStatus();
  const auto refuse = [&](const std::string& why) {
    return InvalidField("parallel.schedule", fmt::format("is '{}', {}", layout.schedule, why));
  };
  if (!layout.stage_degrees.empty()) {
    return refuse("but stages have meshes of their own; leave one of the two out");
  }
  if (job.parallel.shardings != "rules") {
    return refuse(fmt::format("but shardings is '{}'; use \"rules\"", job.parallel.shardings));
  }
  if (job.trained() == nullptr) return refuse("but the job trains nothing; use 1f1b");
  return OkStatus();
}

std::optional<StateBlock> BlockOfParam(const ir::Node& param, const ir::TensorType& type) {
  if (!param.attrs.Has("block_of")) {
    const ir::ShardedDims logical = ir::ShardedDims::FromAttrs(param.attrs);
    if (logical.whole()) return std::nullopt;
    return StateBlock{param.attrs.Str("name"), logical.global_dims, 0};
  }
  const std::optional<ir::StageBlock> block = ir::StageBlock::FromAttrs(param.attrs);
  MW_CHECK(block && block->dim == 0) << param.attrs.Str("name") << " is no block of rows";
  StateBlock state{param.attrs.Str("block_of"), type.dims, block->first};
  state.whole_dims[0] = block->whole;
  return state;
}

}  // namespace meshwright::planner
