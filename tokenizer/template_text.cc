#include "tokenizer/template_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

// Calls body(code, character) for each character.
template <typename Body>
void ForEachCharacter(std::string_view text, Body body) {
  for (size_t at = 0; at < text.size();) {
    const Character next = CharacterAt(text, at);
    body(next.code, text.substr(at, next.bytes));
    at += next.bytes;
  }
}

bool IsOf(std::string_view character, std::optional<std::string_view> set) {
  if (!set) return IsPythonSpace(CharacterAt(character, 0).code);
  return set->find(character) != std::string_view::npos;
}

bool IsLineEnd(char32_t code) {
  return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

// Whether upper and lower case of the character differ.
bool IsCased(char32_t code) {
  std::string upper;
  std::string lower;
  AppendUpper(code, upper);
  AppendLower(code, lower);
  return upper != lower;
}

std::vector<std::string> SplitAtSpaces(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  text = Stripped(text, StripEnds::kLeft);
  while (!text.empty()) {
    size_t end = 0;
    while (end < text.size() && !IsPythonSpace(CharacterAt(text, end).code)) {
      end += CharacterBytes(text[end]);
    }
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) end = text.size();
    parts.emplace_back(text.substr(0, end));
    text = Stripped(text.substr(end), StripEnds::kLeft);
  }
  // What is left behind the last cut keeps its spaces but for those at the end.
  if (most >= 0 && static_cast<int64_t>(parts.size()) == most + 1) {
    parts.back() = std::string(Stripped(parts.back(), StripEnds::kRight));
  }
  return parts;
}

}  // namespace

bool IsPythonSpace(char32_t code) { return (code >= 0x1c && code <= 0x1f) || IsWhitespace(code); }

int64_t CharacterCount(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

std::vector<std::string> CharactersOf(std::string_view text) {
  std::vector<std::string> all;
  ForEachCharacter(text, [&](char32_t, std::string_view one) { all.emplace_back(one); });
  return all;
}

std::string_view Stripped(std::string_view text, StripEnds ends,
                          std::optional<std::string_view> set) {
  while (ends != StripEnds::kRight && !text.empty()) {
    const size_t bytes = CharacterBytes(text[0]);
    if (!IsOf(text.substr(0, bytes), set)) break;
    text.remove_prefix(bytes);
  }
  while (ends != StripEnds::kLeft && !text.empty()) {
    const size_t last = LastCharacter(text);
    if (!IsOf(text.substr(last), set)) break;
    text = text.substr(0, last);
  }
  return text;
}

std::vector<std::string> SplitText(std::string_view text, std::optional<std::string_view> separator,
                                   int64_t most) {
  if (!separator) return SplitAtSpaces(text, most);
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const bool enough = most >= 0 && static_cast<int64_t>(parts.size()) == most;
    const size_t found = enough ? text.npos : text.find(*separator, begin);
    parts.emplace_back(text.substr(begin, found == text.npos ? found : found - begin));
    if (found == text.npos) return parts;
    begin = found + separator->size();
  }
}

std::vector<std::string> SplitTextRight(std::string_view text, std::string_view separator,
                                        int64_t most) {
  std::vector<std::string> parts;
  for (;;) {
    const bool enough = most >= 0 && static_cast<int64_t>(parts.size()) == most;
    const size_t found = enough ? text.npos : text.rfind(separator);
    if (found == text.npos) break;
    parts.emplace_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  parts.emplace_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  std::string line;
  bool open = false;
  for (size_t at = 0; at < text.size();) {
    const Character next = CharacterAt(text, at);
    size_t bytes = next.bytes;
    const bool ends = IsLineEnd(next.code);
    if (next.code == '\r' && at + 1 < text.size() && text[at + 1] == '\n') ++bytes;
    if (!ends || keep_ends) line += text.substr(at, bytes);
    open = !ends;
    if (ends) lines.push_back(std::exchange(line, ""));
    at += bytes;
  }
  if (open) lines.push_back(line);
  return lines;
}

int64_t CountOf(std::string_view text, std::string_view part) {
  if (part.empty()) return CharacterCount(text) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

size_t ReplacedBytes(std::string_view text, std::string_view from, std::string_view to,
                     int64_t most) {
  int64_t count = CountOf(text, from);
  if (most >= 0) count = std::min(count, most);
  return text.size() + static_cast<size_t>(count) * to.size() -
         static_cast<size_t>(count) * from.size();
}

std::string ReplacedText(std::string_view text, std::string_view from, std::string_view to,
                         int64_t most) {
  std::string out;
  if (from.empty()) {  // before each character and at the end
    for (const std::string& one : CharactersOf(text)) {
      if (most != 0) out += to, --most;
      out += one;
    }
    if (most != 0) out += to;
    return out;
  }
  size_t begin = 0;
  for (; most != 0; --most) {
    const size_t found = text.find(from, begin);
    if (found == text.npos) break;
    out += text.substr(begin, found - begin);
    out += to;
    begin = found + from.size();
  }
  out += text.substr(begin);
  return out;
}

std::string LowerText(std::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](char32_t code, std::string_view) { AppendLower(code, out); });
  return out;
}

std::string UpperText(std::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](char32_t code, std::string_view) { AppendUpper(code, out); });
  return out;
}

std::string CapitalText(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = CharacterBytes(text[0]);
  return UpperText(text.substr(0, first)) + LowerText(text.substr(first));
}

std::string TitleText(std::string_view text) {
  std::string out;
  bool within = false;
  ForEachCharacter(text, [&](char32_t code, std::string_view) {
    if (within) {
      AppendLower(code, out);
    } else {
      AppendUpper(code, out);
    }
    within = IsCased(code);
  });
  return out;
}

std::string TextRepr(std::string_view text) {
  const bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  ForEachCharacter(text, [&](char32_t code, std::string_view one) {
    if (code == static_cast<unsigned char>(quote) || code == '\\') {
      out += '\\';
      out += one;
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (IsShown(code)) {
      out += one;
    } else if (code < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(code));
    } else if (code < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(code));
    }
  });
  return out + quote;
}

}  // namespace meshwright::tokenizer
