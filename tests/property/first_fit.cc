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

double Area(const Lifetime& life) {
  return static_cast<double>(life.bytes) * (1.0 + life.last - life.first);
}

std::pair<double, double> BySize(const Lifetime& life) { return {-life.bytes, life.first}; }
std::pair<double, double> ByBeginning(const Lifetime& life) { return {life.first, -life.bytes}; }
std::pair<double, double> ByArea(const Lifetime& life) { return {-Area(life), 0}; }

template <typename Key>
Placement Fit(const std::vector<Lifetime>& lives, const Key& key) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key(lives[a]) < key(lives[b]); });
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

}  // namespace

Placement FirstFit(const std::vector<Lifetime>& lives) {
  const int64_t most = MostLiveBytes(lives);
  const int64_t enough = most + (lives.size() < 1000 ? 0 : most / 100);
  Placement best = Fit(lives, ByBeginning);
  for (const auto key : {BySize, ByArea}) {
    if (best.bytes <= enough) break;
    Placement other = Fit(lives, key);
    if (other.bytes < best.bytes) best = std::move(other);
  }
  return best;
}

}  // namespace meshwright::ir::testing
