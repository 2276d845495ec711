#include "tokenizer/byte_alphabet.h"

#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

constexpr char32_t kEnd = 0x100 + 68;

bool IsItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// The byte of each character below kEnd; -1: of none.
const std::array<int16_t, kEnd>& Bytes() {
  static const std::array<int16_t, kEnd> bytes = [] {
    std::array<int16_t, kEnd> made;
    made.fill(-1);
    for (size_t byte = 0; byte < 256; ++byte) {
      made[ByteAlphabet()[byte]] = static_cast<int16_t>(byte);
    }
    return made;
  }();
  return bytes;
}

}  // namespace

const std::array<char32_t, 256>& ByteAlphabet() {
  static const std::array<char32_t, 256> alphabet = [] {
    std::array<char32_t, 256> made;
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      made[static_cast<size_t>(byte)] = IsItself(byte) ? static_cast<char32_t>(byte) : next++;
    }
    return made;
  }();
  return alphabet;
}

std::string ToByteAlphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) AppendUtf8(ByteAlphabet()[static_cast<unsigned char>(byte)], out);
  return out;
}

std::optional<std::string> FromByteAlphabet(std::string_view text) {
  const std::array<int16_t, kEnd>& bytes = Bytes();
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    if (character.code >= kEnd || bytes[character.code] < 0) return std::nullopt;
    out += static_cast<char>(bytes[character.code]);
    at += character.bytes;
  }
  return out;
}

}  // namespace meshwright::tokenizer
