// The worker's metrics, read from the runtimes'
// counters at each scrape.
//
// Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/mutex.h"
#include "worker/runtime.h"

namespace meshwright::proto {
struct LaunchDone;
}

namespace meshwright::worker {

// Who takes what meshes have counted.
class MeshCounters {
 public:
  virtual ~MeshCounters() = default;
  // What a runtime has counted since it was loaded. `mesh_gen` tells runtimes apart; devices[i] is
  // the local device of the i-th entry.
  virtual void Observe(uint64_t mesh_gen, const std::vector<DeviceStats>& stats,
                       const std::vector<int>& devices) = 0;
  // Steps that are done: how long they took, and how long its devices were at work in them.
  virtual void ObserveLaunch(const proto::LaunchDone& done) = 0;
  // The runtime is gone: its memory is free, its counts stay.
  virtual void Forget(uint64_t mesh_gen) = 0;
};

class AgentMetrics final : public MeshCounters {
 public:
  AgentMetrics(MetricsRegistry& registry, const std::string& worker);

  // What each of its devices has for jobs.
  void SetDevices(int devices, int64_t memory_bytes);

  void Observe(uint64_t mesh_gen, const std::vector<DeviceStats>& stats,
               const std::vector<int>& devices) override;
  void ObserveLaunch(const proto::LaunchDone& done) override;
  void Forget(uint64_t mesh_gen) override;

 private:
  void Raise(const char* name, const char* help, const MetricLabels& labels, double total)
      MW_REQUIRES(mutex_);
  // By local device and kind, or memory.
  using DeviceBytes = std::map<std::pair<int, std::string>, int64_t>;
  using Published = std::map<std::pair<int, std::string>, bool>;
  void PublishMemory() MW_REQUIRES(mutex_);
  void Publish(const char* name, const char* help, const char* label,
               const std::map<uint64_t, DeviceBytes>& held, Published& published)
      MW_REQUIRES(mutex_);

  MetricsRegistry& registry_;
  Mutex mutex_;
  // Per runtime what was already counted, by name and labels.
  std::map<uint64_t, std::map<std::pair<std::string, MetricLabels>, double>> counted_
      MW_GUARDED_BY(mutex_);
  std::map<uint64_t, DeviceBytes> memory_ MW_GUARDED_BY(mutex_);
  std::map<uint64_t, DeviceBytes> far_ MW_GUARDED_BY(mutex_);
  Published published_ MW_GUARDED_BY(mutex_);
  Published published_far_ MW_GUARDED_BY(mutex_);
  uint64_t current_ MW_GUARDED_BY(mutex_) = 0;
};

}  // namespace meshwright::worker
