// SentencePiece's table of replacements ("precompiled_charsmap"): what stands for a text.
//
//   u32 bytes of the trie | trie: u32 units | texts, each closed by a 0 byte
// in little endian. The trie is a double array over bytes whose values are places in the texts.
// Source: Darts-clone's units; SentencePiece's normalizer.
//
// Thread rule: immutable; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshwright::tokenizer {

class ReplacementTable {
 public:
  // Nothing where the bytes are no such table.
  static std::optional<ReplacementTable> Parse(std::string_view bytes);

  struct Found {
    size_t bytes = 0;  // of the key that are replaced
    std::string_view text;
  };
  // The shortest or the longest entry that `key` begins with.
  std::optional<Found> Shortest(std::string_view key) const { return Find(key, false); }
  std::optional<Found> Longest(std::string_view key) const { return Find(key, true); }

 private:
  // A node of the double array.
  struct Unit {
    uint32_t bits;
    bool has_value() const { return (bits >> 8 & 1) != 0; }
    uint32_t value() const { return bits & 0x7fffffff; }
    uint32_t label() const { return bits & 0x800000ff; }
    size_t offset() const { return static_cast<size_t>(bits >> 10) << ((bits & 0x200) >> 6); }
  };
  ReplacementTable(std::vector<Unit> units, std::string texts)
      : units_(std::move(units)), texts_(std::move(texts)) {}
  std::optional<Found> Find(std::string_view key, bool longest) const;

  std::vector<Unit> units_;
  std::string texts_;
};

}  // namespace meshwright::tokenizer
