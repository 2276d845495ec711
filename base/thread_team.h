// ThreadTeam: the threads of one device, for loops inside a kernel.
//
// A loop of `count` items is cut into one block of neighbours per thread, always at the same places
// for the same (count, threads): results do not depend on timing. The caller is thread 0 and works
// too. Waiting spins for some microseconds and then sleeps in the kernel, so that several teams on
// few cores do not starve each other.
//
// Thread rule: one ParallelFor at a time per team (checked); not from inside its own body.
// Ownership: the team owns its threads and joins them when destroyed.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace meshwright {

class ThreadTeam {
 public:
  // Runs items [begin, end) as thread number `thread`, 0-based. Must not throw.
  using Body = FunctionRef<void(int64_t begin, int64_t end, int thread)>;

  // `threads`: the caller included. `cpus`: thread i is pinned to cpus[i % cpus.size()], except
  // thread 0, which is the caller's; empty pins nothing. A core that this process may not use
  // leaves its thread unpinned. REQUIRES: threads >= 1.
  explicit ThreadTeam(int threads, std::vector<int> cpus = {});
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return threads_; }

  // How many threads run at once on this machine: at least 1.
  static int MostAtOnce();

  // Calls body(begin, end, thread) once per thread with a block that is not empty and returns when
  // all are done. Blocks are disjoint, cover [0, count) and rise with the thread number.
  // What the body wrote is visible to the caller. No allocation. count <= 0 does nothing.
  void ParallelFor(int64_t count, Body body);

  // Where the block of `thread` starts: the first count % threads blocks are one item longer.
  static int64_t BlockBegin(int64_t count, int threads, int thread);

 private:
  void RunWorker(int thread);
  void AwaitWorkers();
  void RunBlock(int64_t count, Body body, int thread) const;

  const int threads_;
  const std::vector<int> cpus_;
  std::atomic<bool> busy_{false};

  // The loop being run; written by the caller before it moves epoch_, read by workers after.
  int64_t count_ = 0;
  const Body* body_ = nullptr;
  bool stopping_ = false;

  alignas(64) std::atomic<uint32_t> epoch_{0};      // moves once per loop, and once to stop
  std::atomic<uint32_t> sleepers_{0};               // workers that may be asleep on epoch_
  alignas(64) std::atomic<uint32_t> remaining_{0};  // workers that have not finished this loop
  std::atomic<uint32_t> caller_asleep_{0};
  std::vector<std::thread> workers_;
};

}  // namespace meshwright
