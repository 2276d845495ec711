// Text: small string helpers and numbers as people read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshwright {

// Pieces between separators, empty ones kept: "a,,b" -> {"a", "", "b"}; "" -> {""}.
std::vector<std::string> Split(std::string_view text, char separator);
std::string Join(const std::vector<std::string>& parts, std::string_view separator);
// A decimal number that is all of the text; none: it is no such number, or too large.
std::optional<int64_t> ParseInt(std::string_view text);
// Without spaces, tabs and line ends at both sides.
std::string_view Trim(std::string_view text);

// Single-byte insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
// O(|a| |b|). Source: optimal string alignment distance (Damerau 1964, restricted form).
int64_t EditDistance(std::string_view a, std::string_view b);

// The candidate that a person who typed `name` most likely meant: least edit distance without
// regard to case, first one on ties; none when even that one differs in more than a third of its
// letters.
std::optional<std::string> NearestName(std::string_view name,
                                       const std::vector<std::string>& candidates);
// " (did you mean 'x'?)", or "" when nothing is near. Goes at the end of an error message.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);

// "512 B", "1.50 KiB", "3.25 GiB", "2.00 TiB": binary units, two decimals above bytes.
std::string FormatBytes(int64_t bytes);
// Seconds as "850 ns", "12.3 us", "4.56 ms", "3.21 s", "2m05s", "1h02m", "3d04h".
std::string FormatDuration(double seconds);
// "1,234,567".
std::string FormatCount(int64_t count);
// "124.4M", "6.7B": parameters and FLOPs, three significant digits and up.
std::string FormatShortCount(double count);

// Text as the inside of a JSON string: quotes, backslashes and control bytes escaped; bytes that
// are not UTF-8 become U+FFFD.
std::string JsonEscape(std::string_view text);

}  // namespace meshwright
