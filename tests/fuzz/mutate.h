// Mutations of valid inputs, by a number: equal seeds, numbers and inputs give equal bytes.
//
//   bits and bytes flipped, parts cut out, doubled, swapped, inputs spliced, words of other inputs
//   put in, lengths and numbers made large, negative or none, brackets opened a thousand times
//
// Thread rule: a Mutator is one thread's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshwright::fuzz {

// splitmix64: small, and equal on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // In [0, count). REQUIRES count > 0.
  size_t Below(size_t count) { return static_cast<size_t>(Next() % count); }
  bool OneOf(size_t count) { return Below(count) == 0; }

 private:
  uint64_t state_;
};

class Mutator {
 public:
  static constexpr size_t kMostBytes = 64 << 10;  // of a case

  Mutator(std::vector<std::string> seeds, uint64_t seed) : seeds_(std::move(seeds)), seed_(seed) {}

  // Case `number`: a seed with one to eight mutations. Case 0 is the first seed as it is.
  std::string Make(uint64_t number) const;
  // The same, into the memory of a string that was used before.
  void MakeInto(uint64_t number, std::string& bytes) const;

 private:
  void Mutate(std::string& bytes, Random& random) const;
  const std::string& AnySeed(Random& random) const;

  const std::vector<std::string> seeds_;
  const uint64_t seed_;
};

}  // namespace meshwright::fuzz
