// A HangReport for people and for programs.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "controller/hang_report.h"

namespace meshwright::controller {

// Of very many ranks those that matter, and how many the others are.
std::string FormatHang(const HangReport& report);
std::string HangJson(const HangReport& report);

}  // namespace meshwright::controller
