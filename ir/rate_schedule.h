// The names of what a learning rate does after its warm-up (op learning_rate).
//
//   constant            lr
//   linear, cosine      down to min_lr at total_steps
//   polynomial          the same, by the share of steps that are left to the power `power`
//   cosine_with_restarts  `cycles` times from lr down, min_lr from total_steps on; the last cosine
//                       ends there
//   inverse_sqrt        lr * sqrt(w / t) behind a warm-up of w steps, t = 0, 1, ... since the job
//                       began; without a warm-up lr * sqrt(w / (t + w)) with w = 10,000
//   relative            lr * min(1e-2, 1 / sqrt(t)) at step t = 1, 2, ...: Adafactor's own
//   relative_warmup     lr * min(1e-6 * t, 1 / sqrt(t))
//
// The last two have no warm-up but their own. Thread rule: constants, pure functions.
// Source: Shazeer & Stern, "Adafactor", ICML'18, section 8; transformers'
// get_inverse_sqrt_schedule, get_polynomial_decay_schedule_with_warmup and
// get_cosine_with_hard_restarts_schedule_with_warmup.
#pragma once

#include <cstdint>
#include <string_view>

namespace meshwright::ir {

inline constexpr const char* kSchedules =
    "constant, linear, cosine, polynomial, cosine_with_restarts, inverse_sqrt, relative or "
    "relative_warmup";
inline constexpr const char* kInverseSqrt = "inverse_sqrt";
inline constexpr const char* kPolynomial = "polynomial";
inline constexpr const char* kRestarts = "cosine_with_restarts";
// Steps that inverse_sqrt is shifted by where there is no warm-up.
inline constexpr int64_t kInverseSqrtShift = 10'000;

inline constexpr double kLeastPower = 0.01;
inline constexpr double kMostPower = 100;
inline constexpr int64_t kMostCycles = 1'000'000;

// Whether it goes down to min_lr at total_steps.
inline bool EndsAtTotalSteps(std::string_view schedule) {
  return schedule == "linear" || schedule == "cosine" || schedule == kPolynomial ||
         schedule == kRestarts;
}

inline bool IsRelative(std::string_view schedule) {
  return schedule == "relative" || schedule == "relative_warmup";
}
inline bool IsSchedule(std::string_view schedule) {
  return schedule == "constant" || schedule == kInverseSqrt || EndsAtTotalSteps(schedule) ||
         IsRelative(schedule);
}

}  // namespace meshwright::ir
