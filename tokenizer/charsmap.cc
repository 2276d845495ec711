// The normalizer "Precompiled": SentencePiece's table of replacements, as base64.
#include <fmt/format.h>

#include "tokenizer/normalizer.h"
#include "tokenizer/replacement_table.h"

namespace meshwright::tokenizer {
namespace {

class Charsmap final : public Normalizer {
 public:
  explicit Charsmap(ReplacementTable table) : table_(std::move(table)) {}

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
    const auto found = table_.Shortest(part);
    if (found) PutText(found->text, at, text, out);
    return found.has_value();
  }

  static void PutText(std::string_view part, size_t at, const Text& text, Text& out) {
    const size_t before = out.bytes.size();
    out.bytes += part;
    if (at < text.of_start && out.of_start == before) out.of_start = out.bytes.size();
  }

  const ReplacementTable table_;
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
  std::optional<ReplacementTable> table = bytes ? ReplacementTable::Parse(*bytes) : std::nullopt;
  if (!table) return Fail(node.Wrong("precompiled_charsmap is no table of SentencePiece"));
  return std::make_shared<const Charsmap>(*std::move(table));
}

}  // namespace meshwright::tokenizer
