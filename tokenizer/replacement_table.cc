#include "tokenizer/replacement_table.h"

#include <cstring>

#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {

std::optional<ReplacementTable> ReplacementTable::Parse(std::string_view bytes) {
  uint32_t trie_bytes = 0;
  if (bytes.size() >= 4) std::memcpy(&trie_bytes, bytes.data(), 4);
  if (trie_bytes < 4 || trie_bytes % 4 != 0 || bytes.size() < trie_bytes + size_t{4}) {
    return std::nullopt;
  }
  std::vector<Unit> units(trie_bytes / 4);
  std::memcpy(units.data(), bytes.data() + 4, trie_bytes);
  std::string texts(bytes.substr(4 + trie_bytes));
  if (FindInvalidUtf8(texts) != texts.size()) return std::nullopt;
  return ReplacementTable(std::move(units), std::move(texts));
}

std::optional<ReplacementTable::Found> ReplacementTable::Find(std::string_view key,
                                                              bool longest) const {
  std::optional<Found> found;
  size_t node = units_[0].offset();
  for (size_t i = 0; i < key.size(); ++i) {
    const auto byte = static_cast<unsigned char>(key[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || units_[node].label() != byte) break;
    const bool has_value = units_[node].has_value();
    node ^= units_[node].offset();
    if (node >= units_.size()) break;
    if (!has_value) continue;
    const size_t place = units_[node].value();
    // A damaged table may point anywhere.
    if (place < texts_.size() && (texts_[place] & 0xc0) != 0x80) {
      const std::string_view rest = std::string_view(texts_).substr(place);
      found = {i + 1, rest.substr(0, rest.find('\0'))};
    }
    if (!longest) break;
  }
  return found;
}

}  // namespace meshwright::tokenizer
