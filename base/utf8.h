// UTF-8 by its bytes: where a sequence ends, where a text may be cut, what a terminal may be sent.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace meshwright {

// Length of the well-formed sequence at the start of `text`, 0 when there is none. REQUIRES: `text`
// is not empty. Source: Unicode 15, table 3-7.
size_t Utf8Length(std::string_view text);

// The longest prefix of at most `max_bytes` that does not end inside a character. Text that is not
// UTF-8 is cut at `max_bytes`, or up to 3 bytes before.
std::string_view TruncateUtf8(std::string_view text, size_t max_bytes);

// At most `max_bytes` of text that may come from anywhere: bytes that belong to no character become
// '?'. For fields of messages, which must be UTF-8.
std::string AsUtf8(std::string_view text, size_t max_bytes);

// Whether a terminal shows `text` as it is and on one line: UTF-8 without control characters
// (C0, DEL, C1) and without those that turn the direction of writing.
bool IsPrintable(std::string_view text);

// `text` with everything that IsPrintable refuses as an escape: "a\x1b[2J", "a\x0ab", "\u202e".
std::string Printable(std::string_view text);

}  // namespace meshwright
