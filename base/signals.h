// Signals: a request to stop (SIGTERM, SIGINT) as something that can be waited for.
//
// The handler only writes a byte to a pipe, so it works from whatever thread the system picks, and
// children started by Subprocess keep their default handling.
//
// Thread rule: one ShutdownSignal per process at a time (checked); its methods are thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright {

// Writing to a closed connection then fails with EPIPE instead of ending the process.
void IgnoreBrokenPipes();

class ShutdownSignal {
 public:
  // Catches SIGTERM and SIGINT from now on. Also calls IgnoreBrokenPipes.
  // Errors: kResourceExhausted (no descriptors left).
  static Result<ShutdownSignal> Install();
  // Restores what was there before.
  ~ShutdownSignal();
  ShutdownSignal(ShutdownSignal&& other) noexcept;
  ShutdownSignal& operator=(ShutdownSignal&& other) = delete;

  // The number of the next signal, or none after `timeout_ms`. Each signal is returned once.
  std::optional<int> Wait(int64_t timeout_ms);

 private:
  explicit ShutdownSignal(UniqueFd read_end) : read_end_(std::move(read_end)) {}

  UniqueFd read_end_;
};

}  // namespace meshwright
