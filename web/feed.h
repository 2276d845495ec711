// Feed: what happens, told to all who look, as server-sent events.
//
// Every viewer has a queue of its own that is bounded. One that does not read in time loses what is
// in it and gets "resync" instead: it asks for everything anew. So a slow viewer costs neither
// memory nor the others' time, and is not told anything wrong.
//
//   event: jobs
//   data: [{"id":1,...}]
//
// Thread rule: thread-safe. Ownership: a viewer may outlive the feed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace meshwright::web {

struct FeedLimits {
  size_t viewers = 128;              // each holds a thread of the server, which sleeps
  size_t messages = 256;             // that wait for one viewer
  size_t bytes = size_t{512} << 10;  // of them together
};

class Viewer {
 public:
  // job: whose steps it wants; 0: none.
  Viewer(FeedLimits limits, int64_t job) : limits_(limits), job_(job) {}

  // What has come, as text of the stream; "" when nothing came in time. None: the feed has closed.
  std::optional<std::string> Take(Deadline deadline);
  int64_t job() const { return job_; }

 private:
  friend class Feed;
  void Put(const std::shared_ptr<const std::string>& text);
  void Close();

  const FeedLimits limits_;
  const int64_t job_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<const std::string>> waiting_ MW_GUARDED_BY(mutex_);
  size_t bytes_ MW_GUARDED_BY(mutex_) = 0;
  bool lags_ MW_GUARDED_BY(mutex_) = false;  // until it has been told to ask anew
  bool closed_ MW_GUARDED_BY(mutex_) = false;
};

class Feed {
 public:
  explicit Feed(FeedLimits limits = {}) : limits_(limits) {}

  // Null: there are too many viewers, or it has closed.
  std::shared_ptr<Viewer> Join(int64_t job);
  void Leave(const std::shared_ptr<Viewer>& viewer);

  // data: one line of JSON. job: only for who wants the steps of this job; 0: for all.
  void Publish(const std::string& event, const std::string& data, int64_t job = 0);
  // Everybody asks anew.
  void Resync() { Publish("resync", "{}"); }

  size_t viewers() const;
  std::set<int64_t> jobs() const;  // whose steps somebody wants
  // No viewer waits any more, and none joins.
  void Close();

 private:
  const FeedLimits limits_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Viewer>> viewers_ MW_GUARDED_BY(mutex_);
  bool closed_ MW_GUARDED_BY(mutex_) = false;
};

// One message of the stream.
std::string FormatEvent(const std::string& event, const std::string& data);

}  // namespace meshwright::web
