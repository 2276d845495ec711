// The order of samples: a pure function of (seed, epoch, number of samples), so that every worker,
// every layout and every restart reads the same ones, and no table is kept.
//
// Thread rule: pure functions.
// Source of the permutation: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA
// 2002, method 2 (cycle walking).
#pragma once

#include <cstdint>
#include <string_view>

namespace meshwright::data {

// Position `index` of a permutation of [0, size) that is chosen by `key`: a Feistel network keyed
// by Philox, walked until it lands inside. REQUIRES: 0 <= index < size.
int64_t PermutedIndex(int64_t index, int64_t size, uint64_t key);

// 64 random bits that depend on nothing but (seed, epoch, purpose).
uint64_t EpochBits(uint64_t seed, int64_t epoch, std::string_view purpose);

}  // namespace meshwright::data
