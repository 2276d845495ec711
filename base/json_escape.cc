// JsonEscape of base/text.h.
#include <fmt/format.h>

#include "base/text.h"
#include "base/utf8.h"

namespace meshwright {
namespace {

void AppendAscii(char c, std::string& out) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      if (static_cast<uint8_t>(c) < 0x20) {
        out += fmt::format("\\u{:04x}", static_cast<uint8_t>(c));
      } else {
        out += c;
      }
  }
}

}  // namespace

std::string JsonEscape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (length == 1) {
      AppendAscii(text[0], out);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace meshwright
