// Notifier: tells the service manager that started this process how it does, as sd_notify does.
//
//   $NOTIFY_SOCKET   where to: the path of a datagram socket, or '@' and a name in no file system
//   $WATCHDOG_USEC   the longest silence that the manager bears, in microseconds
//   $WATCHDOG_PID    whose silence that is; another process's is not ours
//
// Without $NOTIFY_SOCKET there is nobody to tell: every call does nothing and is ok. A message is
// one datagram of lines NAME=VALUE, sent without waiting. One that is lost costs a sign of life,
// so that who sends signs of life sends them twice as often as is asked.
//
// Thread rule: thread-safe. Source: sd_notify(3), sd_watchdog_enabled(3).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright {

class Notifier {
 public:
  using Environment = std::function<std::optional<std::string>(const std::string&)>;

  // Errors: kInvalidArgument naming the variable: a name that no socket can have, a number that is
  // none; kResourceExhausted: no descriptor left.
  static Result<Notifier> Open(const Environment& environment);

  // Whether anyone listens.
  bool listened_to() const { return socket_.valid(); }
  // How often Alive is due: half of the silence that the manager bears; 0: it does not watch.
  int64_t alive_every_ms() const { return alive_every_ms_; }

  // Each takes one line about the state for people ("" for none). Errors: kUnavailable: the
  // manager does not listen any more, or its queue is full.
  Status Ready(std::string_view state) const { return Send("READY=1", state); }
  Status Alive() const { return Send("WATCHDOG=1", ""); }
  Status Stopping(std::string_view state) const { return Send("STOPPING=1", state); }
  Status Say(std::string_view state) const { return Send("", state); }

 private:
  Status Send(std::string_view assignment, std::string_view state) const;

  UniqueFd socket_;
  std::string address_;  // as the kernel wants it: a path, or a zero byte and a name
  int64_t alive_every_ms_ = 0;
};

}  // namespace meshwright
