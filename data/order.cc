#include "data/order.h"

#include <bit>
#include <utility>

#include "base/check.h"
#include "base/philox.h"

namespace meshwright::data {
namespace {

constexpr int kFeistelRounds = 6;

// A balanced Feistel network over 2 * half_bits bits.
uint64_t Feistel(uint64_t value, int half_bits, uint64_t key) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits;
  uint64_t right = value & mask;
  for (int round = 0; round < kFeistelRounds; ++round) {
    const PhiloxBlock block = Philox(key, right, static_cast<uint64_t>(round));
    const uint64_t mixed = (uint64_t{block[1]} << 32 | block[0]) & mask;
    left = std::exchange(right, left ^ mixed);
  }
  return left << half_bits | right;
}

}  // namespace

int64_t PermutedIndex(int64_t index, int64_t size, uint64_t key) {
  MW_CHECK(index >= 0 && index < size) << index << " of " << size;
  if (size == 1) return 0;
  // The network covers less than 4 * size values, so the walk takes less than 4 tries on average.
  // It comes back inside because the cycle of a permutation that starts inside does.
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(size - 1)));
  const int half_bits = (bits + 1) / 2;
  auto value = static_cast<uint64_t>(index);
  do {
    value = Feistel(value, half_bits, key);
  } while (value >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(value);
}

uint64_t EpochBits(uint64_t seed, int64_t epoch, std::string_view purpose) {
  const PhiloxBlock block = Philox(seed, static_cast<uint64_t>(epoch), StreamOf(purpose));
  return uint64_t{block[1]} << 32 | block[0];
}

}  // namespace meshwright::data
