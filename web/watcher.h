// Watcher: looks at the cluster once a second while somebody looks at the page, and every five
// seconds else, for the history; tells the feed what has changed.
//
//   jobs     those whose record has changed
//   workers  tiles that have changed, at most kMostTilesTold in a look: the rest in the next ones,
//            so that a cluster in which all changes at once, again and again, costs each viewer no
//            more than so many tiles a second
//   totals   when they have
//   events   new ones, of jobs and workers
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
  static constexpr size_t kMostTilesTold = 256;

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
  // Changed tiles, as JSON, that viewers know from now on; "" when nothing has changed.
  std::string TakeTiles(const std::vector<const proto::WorkerInfo*>& changed);
  void TellEvents();
  void TellSteps();
  void TakeSample(const ClusterState& state);
  double TokensPerS(const ClusterState& state, int64_t now_ms);

  // What a tile shows: comparing these costs nothing, making JSON of all of them would.
  struct Tile {
    std::string state, host, note;
    int32_t devices = 0;
    int32_t busy_devices = 0;
    bool operator==(const proto::WorkerInfo& worker) const;
  };
  static Tile TileOf(const proto::WorkerInfo& worker);

  Cluster& cluster_;
  Curves& curves_;
  Feed& feed_;
  const Clock& clock_;
  // Of the thread: what was told last.
  std::map<int64_t, proto::JobInfo> jobs_;
  std::map<std::string, Tile> workers_;
  std::string last_tile_;  // the name of the worker that was told last
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
