// The names of what a learning rate does after its warm-up (op learning_rate).
//
//   constant            lr
//   linear, cosine      down to min_lr at total_steps
//   relative            lr * min(1e-2, 1 / sqrt(t)) at step t = 1, 2, ...: Adafactor's own
//   relative_warmup     lr * min(1e-6 * t, 1 / sqrt(t))
//
// The last two have no warm-up but their own. Thread rule: constants, pure functions.
// Source: Shazeer & Stern, "Adafactor", ICML'18, section 8.
#pragma once

#include <string_view>

namespace meshwright::ir {

inline constexpr const char* kSchedules = "constant, linear, cosine, relative or relative_warmup";

inline bool IsRelative(std::string_view schedule) {
  return schedule == "relative" || schedule == "relative_warmup";
}
inline bool IsSchedule(std::string_view schedule) {
  return schedule == "constant" || schedule == "linear" || schedule == "cosine" ||
         IsRelative(schedule);
}

}  // namespace meshwright::ir
