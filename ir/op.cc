#include "ir/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace meshwright::ir {
namespace {

constexpr std::array<std::string_view, kOpCount> kOpNames = {
#define MW_OP_TEXT(Name, text) text,
    MW_FOR_EACH_OP(MW_OP_TEXT)
#undef MW_OP_TEXT
};

// Levenshtein distance, to suggest a name for a misspelt one. O(|a| * |b|); callers bound |a|.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view OpName(Op op) {
  const auto index = static_cast<size_t>(op);
  return index < kOpNames.size() ? kOpNames[index] : "invalid";
}

Result<Op> ParseOp(std::string_view name) {
  for (size_t i = 0; i < kOpNames.size(); ++i) {
    if (kOpNames[i] == name) return static_cast<Op>(i);
  }
  constexpr size_t kMaxNameShown = 64;
  const std::string_view shown = name.substr(0, kMaxNameShown);
  const auto nearest = std::min_element(kOpNames.begin(), kOpNames.end(),
                                        [&](std::string_view a, std::string_view b) {
                                          return EditDistance(shown, a) < EditDistance(shown, b);
                                        });
  return Fail(InvalidArgument(fmt::format("unknown op '{}'; did you mean '{}'?", shown, *nearest)));
}

}  // namespace meshwright::ir
