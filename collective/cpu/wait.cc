#include "collective/cpu/wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace meshwright::collective {

void SharedFutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Deadline deadline) {
  using std::chrono::nanoseconds;
  const nanoseconds left = deadline - std::chrono::steady_clock::now();
  const nanoseconds slice = std::min<nanoseconds>(left, std::chrono::milliseconds(kWaitSliceMs));
  if (slice.count() <= 0) {
    return;
  }
  const timespec timeout{0, static_cast<long>(slice.count())};  // a slice is below one second
  syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), FUTEX_WAIT, expected, &timeout,
          nullptr, 0);
}

void SharedFutexWake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

}  // namespace meshwright::collective
