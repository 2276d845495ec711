#include "planner/pieces.h"

#include <fmt/format.h>

#include "ir/program_outputs.h"

namespace meshwright::planner {

using ir::Phase;

namespace {

char ForwardLetter(int round) { return round == kOncePerStep ? 'z' : round == kSweep ? 'c' : 'f'; }

}  // namespace

ir::MemoryKind MemoryKindOf(const ir::Node& param) {
  if (ir::IsOutputState(param.attrs.Str("name")) || param.attrs.Int("kept") != 0) {
    return ir::MemoryKind::kOther;
  }
  return param.attrs.Int("state") != 0 ? ir::MemoryKind::kOptimizer : ir::MemoryKind::kWeights;
}

std::string PieceName(const PieceKey& key) {
  const std::string chunk = key.chunk > 0 ? fmt::format(".{}", key.chunk) : "";
  switch (key.phase) {
    case Phase::kForward:
      return fmt::format("s{}/{}{}", key.stage, ForwardLetter(key.round), chunk);
    case Phase::kBackward:
      return fmt::format("s{}/{}{}", key.stage, key.weights ? "w" : "b", chunk);
    case Phase::kUpdate:
      return fmt::format("s{}/u{}", key.stage, key.round);
  }
  return "";
}

}  // namespace meshwright::planner
