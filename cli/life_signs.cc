#include "cli/life_signs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace meshwright::cli {
namespace {

// Looks per sign of life: a sign is late by a quarter at most, half of what the manager leaves.
constexpr int64_t kLooks = 4;
constexpr int64_t kMaxLookMs = 1000;

}  // namespace

int64_t LifeSigns::look_ms(int64_t otherwise_ms) const {
  if (notifier_.alive_every_ms() == 0) return otherwise_ms;
  const int64_t part = std::clamp<int64_t>(notifier_.alive_every_ms() / kLooks, 1, kMaxLookMs);
  return std::min(part, otherwise_ms);
}

void LifeSigns::Look(bool ready, const std::string& state, const std::function<Status()>& works) {
  if (!notifier_.listened_to()) return;
  if (ready && !ready_) {
    ready_ = true;
    Tell(notifier_.Ready(state));
    alive_ms_ = clock_.NowMs();  // from when on the manager counts
  } else if (state != state_) {
    Tell(notifier_.Say(state));
  }
  state_ = state;
  const int64_t every_ms = notifier_.alive_every_ms();
  if (!ready_ || every_ms == 0 || clock_.NowMs() - alive_ms_ < every_ms) return;
  if (const Status answer = works(); !answer.ok()) {
    LogWarn(fmt::format("no sign of life for the service manager: {}", answer.message()));
    Tell(notifier_.Say(answer.message()));
    state_.clear();  // to be told again
    return;
  }
  alive_ms_ = clock_.NowMs();
  Tell(notifier_.Alive());
}

void LifeSigns::Stop(const std::string& state) { Tell(notifier_.Stopping(state)); }

void LifeSigns::Tell(const Status& sent) {
  if (sent.ok() || deaf_) return;
  deaf_ = true;
  LogWarn(sent.message());
}

}  // namespace meshwright::cli
