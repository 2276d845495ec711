#include "base/utf8.h"

#include <fmt/format.h>

#include <cstdint>

namespace meshwright {
namespace {

// REQUIRES: `length` > 0 bytes of `text` are one character.
uint32_t CodePoint(std::string_view text, size_t length) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  if (length == 1) return byte(0);
  uint32_t code = byte(0) & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = (code << 6U) | (byte(i) & 0x3FU);
  return code;
}

// Source: Unicode 15: general category Cc, line and paragraph separator, Bidi_Control.
bool IsControl(uint32_t code) {
  const auto in = [code](uint32_t low, uint32_t high) { return code >= low && code <= high; };
  return code < 0x20 || in(0x7F, 0x9F) || code == 0x061C || in(0x200E, 0x200F) ||
         in(0x2028, 0x202E) || in(0x2066, 0x2069);
}

}  // namespace

size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  // The second byte excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

std::string AsUtf8(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (out.size() + (length == 0 ? 1 : length) > max_bytes) break;
    if (length == 0) {
      out.push_back('?');
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string_view TruncateUtf8(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  constexpr size_t kMostContinuations = 3;
  size_t end = max_bytes;
  for (size_t back = 0; back < kMostContinuations && end > 0; ++back) {
    if ((static_cast<uint8_t>(text[end]) & 0xC0) != 0x80) break;  // a character starts here
    --end;
  }
  return text.substr(0, end);
}

bool IsPrintable(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0 || IsControl(CodePoint(text, length))) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const uint32_t code = length == 0 ? 0 : CodePoint(text, length);
    if (length == 0 || (length == 1 && IsControl(code))) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[0]));
    } else if (IsControl(code)) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace meshwright
