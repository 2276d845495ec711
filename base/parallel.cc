#include "base/parallel.h"

#include <algorithm>
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
  team.ParallelFor(count, [&](int64_t begin, int64_t end, int) {
    try {
      for (int64_t i = begin; i < end; ++i) body(i);
    } catch (...) {
      const MutexLock lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  });
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace meshwright
