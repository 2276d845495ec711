// Curves: the curve of every job that somebody looks at, kept up to date by reading what is new.
//
// The first look at a job reads its whole history, which outlives the controller; later ones only
// what came since. The curves that were not looked at for longest are forgotten.
//
// Thread rule: thread-safe. Ownership: the cluster outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "web/cluster.h"
#include "web/curve.h"

namespace meshwright::web {

class Curves {
 public:
  static constexpr size_t kMostJobs = 64;

  explicit Curves(Cluster& cluster) : cluster_(cluster) {}

  struct View {
    std::vector<CurvePoint> points;
    int64_t last_step = -1;  // the newest one in it
  };
  // Errors: those of Cluster::Steps.
  Result<View> Of(int64_t job, size_t most_points);
  // What came since the last call of this or of Of: at most so many of the newest.
  Result<std::vector<proto::StepMetrics>> News(int64_t job, size_t most);

 private:
  struct Entry {
    Mutex mutex;  // taken before nothing, and never with that of the table
    Curve curve MW_GUARDED_BY(mutex);
    int64_t next MW_GUARDED_BY(mutex) = 0;
    std::vector<proto::StepMetrics> news MW_GUARDED_BY(mutex);  // not told by News
  };
  std::shared_ptr<Entry> EntryOf(int64_t job);
  Status Advance(int64_t job, Entry& entry) MW_REQUIRES(entry.mutex);

  Cluster& cluster_;
  Mutex mutex_;
  uint64_t looks_ MW_GUARDED_BY(mutex_) = 0;
  struct Slot {
    std::shared_ptr<Entry> entry;
    uint64_t looked = 0;
  };
  std::map<int64_t, Slot> slots_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::web
