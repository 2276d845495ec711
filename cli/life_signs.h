// LifeSigns: what a daemon tells the service manager that started it (base/notify.h).
//
// The daemon's main loop calls Look again and again. Ready is told once; then, as often as the
// manager wants a sign of life, the daemon is asked whether it still works, and only if it does the
// sign is given. One that is stuck falls silent, and the manager starts it anew.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/notify.h"

namespace meshwright::cli {

class LifeSigns {
 public:
  LifeSigns(Notifier notifier, const Clock& clock)
      : notifier_(std::move(notifier)), clock_(clock) {}

  // How long the main loop may sleep between two looks: a fraction of the manager's patience, and
  // `otherwise_ms` where nobody watches.
  int64_t look_ms(int64_t otherwise_ms) const;

  // state: for people. works: may take a part of the manager's patience; asked only when a sign is
  // due. An error of it is logged and told; a sign is due again at the next look.
  void Look(bool ready, const std::string& state, const std::function<Status()>& works);
  // The daemon has been told to end.
  void Stop(const std::string& state);

 private:
  void Tell(const Status& sent);

  Notifier notifier_;
  const Clock& clock_;
  bool ready_ = false;
  bool deaf_ = false;  // that the manager does not listen was said
  std::string state_;  // told last
  int64_t alive_ms_ = 0;
};

}  // namespace meshwright::cli
