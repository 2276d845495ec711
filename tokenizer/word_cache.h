// What a thread remembers of pieces that it made tokens of: most words of a text come again.
//
// A table of fixed size, a line of 64 bytes for each place, shared by all models that a thread
// uses. A piece whose place is taken takes it over.
//
// Thread rule: each thread has its own, so there are no locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace meshwright::tokenizer {

class WordCache {
 public:
  static WordCache& OfThread();
  // A number that no other model of this process has, for `owner` below.
  static uint64_t NewOwner();

  // Longer pieces, and those of more tokens, are not remembered.
  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxTokens = 6;

  // The tokens of `text`; empty where they are not known. hash: HashText(text). Valid until the
  // next Put.
  std::span<const uint32_t> Find(uint64_t owner, std::string_view text, uint64_t hash) const;
  void Put(uint64_t owner, std::string_view text, uint64_t hash, std::span<const uint32_t> ids);

 private:
  static constexpr size_t kPlaces = size_t{1} << 14;
  struct alignas(64) Place {
    uint64_t key = 0;
    uint8_t bytes = 0;
    uint8_t tokens = 0;
    std::array<char, kMaxBytes> text = {};
    std::array<uint32_t, kMaxTokens> ids = {};
  };
  static_assert(sizeof(Place) == 64);
  // Of one text, keys are equal exactly where owners are.
  static uint64_t KeyOf(uint64_t owner, uint64_t hash) { return hash ^ owner * 0x9e3779b97f4a7c15; }

  std::vector<Place> places_ = std::vector<Place>(kPlaces);
};

}  // namespace meshwright::tokenizer
