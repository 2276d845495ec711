// Pulse: whether a worker is in a session, and since when its heartbeats have been silent.
//
// Who supervises a worker restarts it when its session stands and nothing beats: the controller has
// lost it, and it does not know.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace meshwright::worker {

class Pulse {
 public:
  explicit Pulse(const Clock& clock) : clock_(clock) {}

  void Beat() { last_ms_ = clock_.NowMs(); }
  void Join() {
    Beat();
    joined_ = true;
  }
  void Leave() { joined_ = false; }

  bool joined() const { return joined_; }
  // Since the last beat of the session; 0 while there is none.
  int64_t silent_ms() const { return joined_ ? clock_.NowMs() - last_ms_ : 0; }

 private:
  const Clock& clock_;
  std::atomic<bool> joined_{false};
  std::atomic<int64_t> last_ms_{0};
};

}  // namespace meshwright::worker
