#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "base/check.h"
#include "base/mutex.h"
#include "base/thread_team.h"

namespace meshwright {

void ParallelItems(int64_t count, int64_t least_per_thread, FunctionRef<void(int64_t)> body) {
  constexpr int64_t kMostThreads = 16;
  MW_CHECK(least_per_thread >= 1) << least_per_thread;
  const int64_t most = std::min<int64_t>(ThreadTeam::MostAtOnce(), kMostThreads);
  ThreadTeam team(static_cast<int>(std::clamp<int64_t>(count / least_per_thread, 1, most)));
  Mutex mutex;
  std::exception_ptr thrown;  // guarded by mutex
  // Items may differ much: whoever is free takes the next one.
  std::atomic<int64_t> next{0};
  team.ParallelFor(team.size(), [&](int64_t, int64_t, int) {
    try {
      for (int64_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      const MutexLock lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  });
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace meshwright
