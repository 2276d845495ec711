#include "tests/property/first_fit.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace meshwright::ir::testing {
namespace {

struct Block {
  int64_t begin = 0;
  int64_t end = 0;
  Lifetime life;
};

int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

bool LiveTogether(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

Placement FirstFit(const std::vector<Lifetime>& lives) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(-lives[a].bytes, lives[a].first) < std::pair(-lives[b].bytes, lives[b].first);
  });
  Placement placement;
  placement.offset_bytes.assign(lives.size(), 0);
  std::vector<Block> placed;
  for (const size_t i : order) {
    if (lives[i].bytes == 0) continue;
    std::vector<Block> others;
    std::copy_if(placed.begin(), placed.end(), std::back_inserter(others),
                 [&](const Block& other) { return LiveTogether(other.life, lives[i]); });
    std::sort(others.begin(), others.end(),
              [](const Block& a, const Block& b) { return a.begin < b.begin; });
    int64_t offset = 0;
    for (const Block& other : others) {
      if (other.begin >= offset + lives[i].bytes) break;
      offset = std::max(offset, other.end);
    }
    placed.push_back({offset, Aligned(offset + lives[i].bytes), lives[i]});
    placement.offset_bytes[i] = offset;
    placement.bytes = std::max(placement.bytes, placed.back().end);
  }
  return placement;
}

}  // namespace meshwright::ir::testing
