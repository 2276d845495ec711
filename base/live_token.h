// A token that is shown to a daemon, and may change while it runs.
//
// One in a file is looked at when it is asked for, every two seconds at most: a new one counts from
// then on, and the old one is none any more. A file that is gone or empty, or that others can read,
// changes nothing; what is wrong with it is said once.
//
// Thread rule: thread-safe. Copies share what was read last. Ownership: the clock outlives it.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace meshwright {

class LiveToken {
 public:
  static constexpr int64_t kLookMs = 2000;

  LiveToken() = default;         // none
  LiveToken(std::string token);  // NOLINT(google-explicit-constructor): never changes
  LiveToken(const char* token)   // NOLINT(google-explicit-constructor)
      : LiveToken(std::string(token)) {}
  // Errors: those of ReadSecretFile; kInvalidArgument: it is empty.
  static Result<LiveToken> InFile(const std::string& path, const Clock& clock = SystemClock());

  // Whether there is one at all, which does not change.
  bool empty() const { return state_ == nullptr; }
  std::string Now() const;  // "" where there is none

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace meshwright
