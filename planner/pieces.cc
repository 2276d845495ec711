#include "planner/pieces.h"

#include <fmt/format.h>

namespace meshwright::planner {

using ir::Phase;

namespace {

char ForwardLetter(int round) { return round == kOncePerStep ? 'z' : round == kSweep ? 'c' : 'f'; }

}  // namespace

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
