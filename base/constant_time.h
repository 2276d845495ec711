// Comparing secrets so that the time says nothing of them.
//
// Thread rule: pure.
#pragma once

#include <string_view>

namespace meshwright {

// Time depends on the lengths only.
bool ConstantTimeEqual(std::string_view a, std::string_view b);

}  // namespace meshwright
