// Characters of UTF-8 text and their properties.
//
// Texts are valid UTF-8 here: Tokenizer::Encode has looked (FindInvalidUtf8) before anything else
// reads them.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tokenizer/unicode_tables.h"

namespace meshwright::tokenizer {

struct Character {
  char32_t code = 0;
  uint32_t bytes = 0;
};

// The character at `text[at]`. REQUIRES: valid UTF-8, at < text.size(), at a character's start.
inline Character CharacterAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {char32_t((first & 0x1f) << 6 | (byte(1) & 0x3f)), 2};
  if (first < 0xf0) {
    return {char32_t((first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f)), 3};
  }
  return {char32_t((first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 |
                   (byte(3) & 0x3f)),
          4};
}

// Bytes of the character that begins with `first`. REQUIRES: of valid UTF-8.
inline size_t CharacterBytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  return byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// Where the last character begins. REQUIRES: text is not empty.
size_t LastCharacter(std::string_view text);

// Appends the UTF-8 of `code`.
void AppendUtf8(char32_t code, std::string& out);

// Where the first byte stands that belongs to no character; text.size() when all do.
size_t FindInvalidUtf8(std::string_view text);

// With U+FFFD for every maximal part of a character that is not whole, as Rust's from_utf8_lossy.
std::string Utf8Lossy(std::string_view bytes);

// How many bytes at the end of `bytes` may be the beginning of a character whose rest is to come.
size_t IncompleteTail(std::string_view bytes);

bool Contains(std::span<const CodeRange> set, char32_t code);

// Unicode's White_Space.
bool IsWhitespace(char32_t code);
// \w of Rust's regex.
bool IsWord(char32_t code);
bool IsPunctuation(char32_t code);
bool IsNumeric(char32_t code);
// Number of the character's script, with the kana as Han; -1: a space, or of no script.
int32_t ScriptOf(char32_t code);

// Appends the character in lower case.
void AppendLower(char32_t code, std::string& out);
// In upper case, one character for one but for the sharp s.
void AppendUpper(char32_t code, std::string& out);
// Whether Python shows the character in a quoted text as it is: no control, no space but ' ', and
// assigned.
bool IsShown(char32_t code);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
std::string Normalize(std::string_view text, NormalForm form);

// Where the first grapheme cluster of `text` ends. REQUIRES: text is not empty.
size_t GraphemeEnd(std::string_view text);

}  // namespace meshwright::tokenizer
