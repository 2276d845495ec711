#include "ir/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace meshwright::ir {
namespace {

constexpr std::array<std::string_view, kOpCount> kOpNames = {
#define MW_OP_TEXT(Name, text) text,
    MW_FOR_EACH_OP(MW_OP_TEXT)
#undef MW_OP_TEXT
};

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
