// The normalizer "Precompiled": SentencePiece's table of replacements.
//
// precompiled_charsmap is base64 of
//   u32 bytes of the trie | trie: u32 units | texts, each closed by a 0 byte
// in little endian. The trie is a double array over bytes whose values are places in the texts.
// Source: Darts-clone's units; SentencePiece's normalizer.
#include <fmt/format.h>

#include <cstring>

#include "tokenizer/normalizer.h"

namespace meshwright::tokenizer {
namespace {

// A node of the double array.
struct Unit {
  uint32_t bits;
  bool has_value() const { return (bits >> 8 & 1) != 0; }
  uint32_t value() const { return bits & 0x7fffffff; }
  uint32_t label() const { return bits & 0x800000ff; }
  size_t offset() const { return static_cast<size_t>(bits >> 10) << ((bits & 0x200) >> 6); }
};

class Charsmap final : public Normalizer {
 public:
  Charsmap(std::vector<Unit> units, std::string texts)
      : units_(std::move(units)), texts_(std::move(texts)) {}

  // Of each grapheme cluster: where it is short and begins with an entry, that one stands for all
  // of it; else each character is looked up. This is what models were trained with.
  Status Apply(Text& text) const override {
    Text out;
    out.bytes.reserve(text.bytes.size());
    const std::string_view all = text.bytes;
    for (size_t at = 0; at < all.size();) {
      const std::string_view cluster = all.substr(at, GraphemeEnd(all.substr(at)));
      if (cluster.size() >= 6 || !Put(cluster, at, text, out)) {
        for (size_t i = 0; i < cluster.size();) {
          const std::string_view one = cluster.substr(i, CharacterBytes(cluster[i]));
          if (!Put(one, at + i, text, out)) PutText(one, at + i, text, out);
          i += one.size();
        }
      }
      at += cluster.size();
    }
    text = std::move(out);
    return OkStatus();
  }

 private:
  bool Put(std::string_view part, size_t at, const Text& text, Text& out) const {
    const int64_t place = Find(part);
    if (place < 0) return false;
    const std::string_view rest = std::string_view(texts_).substr(static_cast<size_t>(place));
    PutText(rest.substr(0, rest.find('\0')), at, text, out);
    return true;
  }

  static void PutText(std::string_view part, size_t at, const Text& text, Text& out) {
    const size_t before = out.bytes.size();
    out.bytes += part;
    if (at < text.of_start && out.of_start == before) out.of_start = out.bytes.size();
  }

  // The place of the replacement of the shortest entry that `key` begins with; -1: none.
  int64_t Find(std::string_view key) const {
    size_t node = units_[0].offset();
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) return -1;
      node ^= byte;
      if (node >= units_.size() || units_[node].label() != byte) return -1;
      const bool has_value = units_[node].has_value();
      node ^= units_[node].offset();
      if (node >= units_.size()) return -1;
      if (!has_value) continue;
      const size_t place = units_[node].value();
      const bool begins = place < texts_.size() && (texts_[place] & 0xc0) != 0x80;
      return begins ? static_cast<int64_t>(place) : -1;
    }
    return -1;
  }

  std::vector<Unit> units_;
  std::string texts_;
};

int ValueOfBase64(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::optional<std::string> FromBase64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = ValueOfBase64(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xff);
  }
  return out;
}

}  // namespace

Result<std::shared_ptr<const Normalizer>> MakeCharsmap(const JsonNode& node) {
  MW_ASSIGN_OR_RETURN(const std::string encoded, node.Text("precompiled_charsmap"));
  const std::optional<std::string> bytes = FromBase64(encoded);
  uint32_t trie_bytes = 0;
  if (bytes && bytes->size() >= 4) std::memcpy(&trie_bytes, bytes->data(), 4);
  if (!bytes || trie_bytes < 4 || trie_bytes % 4 != 0 || bytes->size() < trie_bytes + size_t{4}) {
    return Fail(node.Wrong("precompiled_charsmap is no table of SentencePiece"));
  }
  std::vector<Unit> units(trie_bytes / 4);
  std::memcpy(units.data(), bytes->data() + 4, trie_bytes);
  std::string texts = bytes->substr(4 + trie_bytes);
  if (FindInvalidUtf8(texts) != texts.size()) {
    return Fail(node.Wrong("precompiled_charsmap has texts that are not UTF-8"));
  }
  return std::make_shared<const Charsmap>(std::move(units), std::move(texts));
}

}  // namespace meshwright::tokenizer
