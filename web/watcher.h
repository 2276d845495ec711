// Watcher: looks at the cluster once a second while somebody looks at the page, and every five
// seconds else, for the history; tells the feed what has changed.
//
//   jobs     those whose record has changed       workers   tiles that have changed
//   totals   when they have                       events    new ones, of jobs and workers
//   steps    new ones of a job that a viewer has open
//   resync   when something has gone that was there: ask for everything anew
// A look costs the control loop what `meshwright status` does.
//
// Thread rule: thread-safe; a thread of its own. Ownership: cluster, curves and feed outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "web/cluster.h"
#include "web/curves.h"
#include "web/feed.h"
#include "web/history.h"

namespace meshwright::web {

class Watcher {
 public:
  static constexpr int64_t kLookMs = 1000;
  static constexpr int64_t kSampleMs = History::kTiers.front().every_ms;

  Watcher(Cluster& cluster, Curves& curves, Feed& feed, const Clock& clock)
      : cluster_(cluster), curves_(curves), feed_(feed), clock_(clock) {}

  void Start();
  void Stop() { thread_.Stop(); }

  std::vector<Sample> HistorySince(int64_t unix_ms, size_t most) const;

  // One look: what Start does again and again. Not while it runs.
  void Look();

 private:
  void TickOnThread();
  void TellChanges(const ClusterState& state);
  void TellEvents();
  void TellSteps();
  void TakeSample(const ClusterState& state);
  double TokensPerS(const ClusterState& state, int64_t now_ms);

  Cluster& cluster_;
  Curves& curves_;
  Feed& feed_;
  const Clock& clock_;
  // Of the thread: what was told last.
  std::map<int64_t, proto::JobInfo> jobs_;
  std::map<std::string, std::string> workers_;  // tiles
  std::string totals_;
  std::vector<controller::EventRecord> events_;
  bool tells_ = false;  // the above is what viewers know
  int64_t sampled_ms_ = -1;
  std::map<int64_t, double> tokens_;  // by running job, of its curve
  mutable Mutex mutex_;
  History history_ MW_GUARDED_BY(mutex_);
  Executor thread_{"mw-page"};  // last: it stops first
};

}  // namespace meshwright::web
