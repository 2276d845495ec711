// SlotServers: threads that serve readers of slots, until they go or what they read is dropped.
//
// Thread rule: thread-safe. Ownership: owns connections and threads; End and the destructor end
// them.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <set>
#include <thread>

#include "base/mutex.h"
#include "worker/snapshot_files.h"

namespace meshwright::worker {

class SlotServers {
 public:
  static constexpr size_t kMost = 256;

  SlotServers() = default;
  SlotServers(const SlotServers&) = delete;
  SlotServers& operator=(const SlotServers&) = delete;
  ~SlotServers() { Close(); }

  // Serves the connection what `find` finds in `what`, which lives as long.
  void Serve(std::shared_ptr<void> what, collective::Connection connection, FindSlot find);
  // Who reads one of these is cut off.
  void End(const std::set<const void*>& gone);
  // Everyone is, and nobody comes any more.
  void Close();

 private:
  struct Reader {
    collective::Connection connection;
    const void* what = nullptr;
    std::atomic<bool> ended{false};
    std::thread thread;
  };
  void ForgetEnded() MW_REQUIRES(mutex_);

  Mutex mutex_;
  bool closed_ MW_GUARDED_BY(mutex_) = false;
  std::list<std::unique_ptr<Reader>> readers_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::worker
