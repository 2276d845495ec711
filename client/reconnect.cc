#include "client/reconnect.h"

#include <algorithm>

namespace meshwright::client {
namespace {

constexpr int64_t kFirstPauseMs = 50;
constexpr int64_t kLongestPauseMs = 2000;

}  // namespace

std::optional<int64_t> Reconnect::PauseAfter(bool taken) {
  if (taken) over_ = Deadline::After(patience_ms_, clock_);
  pause_ms_ = taken ? 0 : std::clamp(2 * pause_ms_, kFirstPauseMs, kLongestPauseMs);
  if (over_.expired()) return std::nullopt;
  return pause_ms_;
}

}  // namespace meshwright::client
