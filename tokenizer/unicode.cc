#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "base/check.h"

namespace meshwright::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// How long a character that begins with `first` is, and the bounds of its second byte; 0 bytes
// where none begins so. Source: Unicode 15, table 3-7.
struct Lead {
  size_t bytes = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
};

Lead LeadOf(unsigned char first) {
  if (first < 0x80) return {1};
  if (first < 0xc2) return {0};
  if (first < 0xe0) return {2};
  if (first == 0xe0) return {3, 0xa0, 0xbf};
  if (first == 0xed) return {3, 0x80, 0x9f};
  if (first < 0xf0) return {3};
  if (first == 0xf0) return {4, 0x90, 0xbf};
  if (first < 0xf4) return {4};
  if (first == 0xf4) return {4, 0x80, 0x8f};
  return {0};
}

// Bytes at the start of `text` that a character could begin with, at least 1, and whether they are
// a whole one.
struct Start {
  size_t bytes = 1;
  bool whole = false;
  bool may_go_on = false;
};

Start StartOf(std::string_view text) {
  const Lead lead = LeadOf(static_cast<unsigned char>(text[0]));
  if (lead.bytes == 0) return {};
  for (size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {i, false, true};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xbf;
    if (byte < low || byte > high) return {i, false, false};
  }
  return {lead.bytes, true, false};
}

const utf8proc_uint8_t* Bytes(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

// The normal form of text in which no character is one that only utf8proc takes apart.
void AppendNormalForm(std::string_view text, NormalForm form, std::string& out) {
  if (text.empty()) return;
  int options = UTF8PROC_STABLE;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(Bytes(text), static_cast<utf8proc_ssize_t>(text.size()), &result,
                   static_cast<utf8proc_option_t>(options));
  MW_CHECK(length >= 0) << utf8proc_errmsg(length);
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
  std::free(result);
}

}  // namespace

size_t LastCharacter(std::string_view text) {
  MW_DCHECK(!text.empty());
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

void AppendUtf8(char32_t code, std::string& out) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

size_t FindInvalidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Start start = StartOf(text.substr(at));
    if (!start.whole) return at;
    at += start.bytes;
  }
  return at;
}

std::string Utf8Lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  size_t at = 0;
  while (at < bytes.size()) {
    const Start start = StartOf(bytes.substr(at));
    out += start.whole ? bytes.substr(at, start.bytes) : kReplacement;
    at += start.bytes;
  }
  return out;
}

size_t IncompleteTail(std::string_view bytes) {
  for (size_t back = std::min<size_t>(3, bytes.size()); back > 0; --back) {
    const Start start = StartOf(bytes.substr(bytes.size() - back));
    if (start.may_go_on && start.bytes == back) return back;
  }
  return 0;
}

bool Contains(std::span<const CodeRange> set, char32_t code) {
  const auto after =
      std::upper_bound(set.begin(), set.end(), code,
                       [](char32_t value, const CodeRange& range) { return value < range.first; });
  return after != set.begin() && code <= (after - 1)->last;
}

bool IsWhitespace(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  if (code < 0x1680) return code == 0x85 || code == 0xa0;
  return code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

bool IsWord(char32_t code) {
  if (code < 0x80) {
    return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') ||
           (code >= '0' && code <= '9') || code == '_';
  }
  return Contains(kWord, code);
}

bool IsPunctuation(char32_t code) { return Contains(kPunctuation, code); }

bool IsNumeric(char32_t code) {
  return code < 0x80 ? code >= '0' && code <= '9' : Contains(kNumeric, code);
}

int32_t ScriptOf(char32_t code) {
  const auto after = std::upper_bound(
      kScripts.begin(), kScripts.end(), code,
      [](char32_t value, const ScriptRange& range) { return value < range.first; });
  if (after == kScripts.begin() || code > (after - 1)->last) return -1;
  return (after - 1)->script;
}

void AppendLower(char32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
    return;
  }
  if (code == 0x130) {  // the only one that becomes two
    out += "i\xcc\x87";
    return;
  }
  const auto own =
      std::lower_bound(kLower.begin(), kLower.end(), code,
                       [](const CodePair& pair, char32_t value) { return pair.from < value; });
  if (own != kLower.end() && own->from == code) return AppendUtf8(own->to, out);
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))), out);
}

void AppendUpper(char32_t code, std::string& out) {
  if (code == 0xdf) {
    out += "SS";
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))), out);
}

bool IsShown(char32_t code) {
  if (code == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string Normalize(std::string_view text, NormalForm form) {
  const auto is_ascii = [&](size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;  // of what is not in `out` yet
  size_t at = 0;
  while (at < text.size()) {
    if (is_ascii(at)) {  // which changes only together with a mark behind it
      ++at;
      continue;
    }
    if (at > begin) {
      out += text.substr(begin, at - 1 - begin);
      begin = at - 1;
    }
    while (at < text.size() && !is_ascii(at)) {
      const Character character = CharacterAt(text, at);
      if (Contains(kUndecomposed, character.code)) {
        AppendNormalForm(text.substr(begin, at - begin), form, out);
        out += text.substr(at, character.bytes);
        begin = at + character.bytes;
      }
      at += character.bytes;
    }
    AppendNormalForm(text.substr(begin, at - begin), form, out);
    begin = at;
  }
  out += text.substr(begin);
  return out;
}

size_t GraphemeEnd(std::string_view text) {
  MW_DCHECK(!text.empty());
  Character last = CharacterAt(text, 0);
  size_t at = last.bytes;
  utf8proc_int32_t state = 0;
  while (at < text.size()) {
    const Character next = CharacterAt(text, at);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state) != 0) {
      break;
    }
    at += next.bytes;
    last = next;
  }
  return at;
}

}  // namespace meshwright::tokenizer
