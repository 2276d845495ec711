// The names of what a learning rate does after its warm-up (op learning_rate).
//
//   constant            lr
//   linear, cosine      down to min_lr at total_steps
//   polynomial          the same, by the share that is left to a power: "polynomial:2"; without a
//                       number 1
//   cosine_with_restarts  so many times from lr down by a cosine, the last one to min_lr at
//                       total_steps: "cosine_with_restarts:3"; without a number 1
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

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace meshwright::ir {

inline constexpr const char* kSchedules =
    "constant, linear, cosine, polynomial, cosine_with_restarts, inverse_sqrt, relative or "
    "relative_warmup";
inline constexpr const char* kInverseSqrt = "inverse_sqrt";
inline constexpr const char* kPolynomial = "polynomial";
inline constexpr const char* kRestarts = "cosine_with_restarts";
inline constexpr double kLeastPower = 0.01;
inline constexpr double kMostPower = 100;
inline constexpr double kMostCycles = 1'000'000;
// Steps that inverse_sqrt is shifted by where there is no warm-up.
inline constexpr int64_t kInverseSqrtShift = 10'000;

struct RateSchedule {
  std::string_view name;
  double number = 1;  // the power, or how many cosines
};

// Nothing: it is no schedule, or its number is none that it may have.
inline std::optional<RateSchedule> ParseSchedule(std::string_view text) {
  const size_t colon = text.find(':');
  RateSchedule schedule{text.substr(0, colon)};
  const bool polynomial = schedule.name == kPolynomial;
  const bool numbered = polynomial || schedule.name == kRestarts;
  if (colon != std::string_view::npos) {
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + colon + 1, end, schedule.number);
    const double number = schedule.number;
    const bool power = polynomial && number >= kLeastPower && number <= kMostPower;
    const bool cycles =
        !polynomial && number >= 1 && number <= kMostCycles && std::floor(number) == number;
    if (!numbered || error != std::errc() || at != end || !(power || cycles)) return std::nullopt;
  }
  for (const char* known : {"constant", "linear", "cosine", kPolynomial, kRestarts, kInverseSqrt,
                            "relative", "relative_warmup"}) {
    if (schedule.name == known) return schedule;
  }
  return std::nullopt;
}

// Whether it goes down to min_lr at total_steps.
inline bool EndsAtTotalSteps(std::string_view schedule) {
  const std::string_view name = schedule.substr(0, schedule.find(':'));
  return name == "linear" || name == "cosine" || name == kPolynomial || name == kRestarts;
}

inline bool IsRelative(std::string_view schedule) {
  return schedule == "relative" || schedule == "relative_warmup";
}
inline bool IsSchedule(std::string_view schedule) { return ParseSchedule(schedule).has_value(); }

}  // namespace meshwright::ir
