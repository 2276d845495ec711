#include "base/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/futex.h"

namespace meshwright {
namespace {

// About 20 to 50 microseconds: longer than the gap between two kernels of a step, shorter than a
// scheduler slice that another process could use.
constexpr int kSpins = 1000;

// Waits until `word` differs from `old`. `sleepers` is raised while this thread may be asleep; the
// one who changes the word looks at it afterwards, so a wake-up cannot be missed (both sequentially
// consistent).
void WaitForChange(const std::atomic<uint32_t>& word, uint32_t old,
                   std::atomic<uint32_t>& sleepers) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    SpinPause();
  }
  sleepers.fetch_add(1);
  while (word.load() == old) FutexWait(word, old);
  sleepers.fetch_sub(1);
}

void Pin(const std::vector<int>& cpus, int thread) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpus[static_cast<size_t>(thread) % cpus.size()]), &set);
  // Pinning is a matter of speed: a core outside this process's set leaves the thread free.
  (void)sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace

ThreadTeam::ThreadTeam(int threads, std::vector<int> cpus)
    : threads_(threads), cpus_(std::move(cpus)) {
  MW_CHECK(threads >= 1) << "threads=" << threads;
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { RunWorker(thread); });
  }
}

ThreadTeam::~ThreadTeam() {
  MW_CHECK(!busy_.load()) << "team destroyed inside ParallelFor";
  stopping_ = true;
  epoch_.fetch_add(1);
  FutexWakeAll(epoch_);
  for (std::thread& worker : workers_) worker.join();
}

int64_t ThreadTeam::BlockBegin(int64_t count, int threads, int thread) {
  return count / threads * thread + std::min<int64_t>(count % threads, thread);
}

void ThreadTeam::RunBlock(int64_t count, Body body, int thread) const {
  const int64_t begin = BlockBegin(count, threads_, thread);
  const int64_t end = BlockBegin(count, threads_, thread + 1);
  if (begin < end) body(begin, end, thread);
}

void ThreadTeam::ParallelFor(int64_t count, Body body) {
  if (count <= 0) return;
  if (threads_ == 1) {
    body(0, count, 0);
    return;
  }
  MW_CHECK(!busy_.exchange(true)) << "ParallelFor called twice at once on one team";
  if (count == 1) {  // nothing to share: the others need not wake
    body(0, 1, 0);
  } else {
    count_ = count;
    body_ = &body;
    remaining_.store(static_cast<uint32_t>(threads_ - 1), std::memory_order_relaxed);
    epoch_.fetch_add(1);
    if (sleepers_.load() != 0) FutexWakeAll(epoch_);
    RunBlock(count, body, 0);
    AwaitWorkers();
  }
  busy_.store(false);
}

int ThreadTeam::MostAtOnce() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void ThreadTeam::AwaitWorkers() {
  for (uint32_t left = remaining_.load(std::memory_order_acquire); left != 0;
       left = remaining_.load(std::memory_order_acquire)) {
    WaitForChange(remaining_, left, caller_asleep_);
  }
}

void ThreadTeam::RunWorker(int thread) {
  pthread_setname_np(pthread_self(), ("team-" + std::to_string(thread)).c_str());
  Pin(cpus_, thread);
  for (uint32_t seen = 0;;) {
    WaitForChange(epoch_, seen, sleepers_);
    ++seen;  // the caller waits for every worker, so the epoch is never two ahead
    if (stopping_) return;
    RunBlock(count_, *body_, thread);
    if (remaining_.fetch_sub(1) == 1 && caller_asleep_.load() != 0) FutexWakeAll(remaining_);
  }
}

}  // namespace meshwright
