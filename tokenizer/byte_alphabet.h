// The alphabet of byte-level tokenizers: each byte is a character that can be printed.
//
// Bytes that are printable characters of Latin-1 are themselves; the other 68 are U+0100 and
// following, in their order. A space is U+0120.
//
// Thread rule: pure functions.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace meshwright::tokenizer {

// The character of each byte.
const std::array<char32_t, 256>& ByteAlphabet();

// Bytes as characters of the alphabet.
std::string ToByteAlphabet(std::string_view bytes);

// The bytes that characters of the alphabet stand for; none where one is not of it.
std::optional<std::string> FromByteAlphabet(std::string_view text);

}  // namespace meshwright::tokenizer
