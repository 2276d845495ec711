// Weights by formula, which tools/hf_check/check_models.py has, too: golden files need none.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace meshwright::testing {

// In [-1, 1): a hash of the name and the place.
inline double TruthNumber(const std::string& salted, int64_t place) {
  uint64_t x = 14695981039346656037ULL;
  for (const char letter : salted) {
    x = (x ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  x += static_cast<uint64_t>(place) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) / static_cast<double>(1ULL << 52) - 1;
}

inline double TruthWeight(const std::string& salt, const std::string& name, bool vector,
                          int64_t place) {
  const double x = TruthNumber(salt + name, place);
  if (name.ends_with(".bias")) return 0.1 * x;
  return vector ? 0.7 + 0.2 * x : 0.3 * x;
}

}  // namespace meshwright::testing
