// AheadPlanner: the planner for plans that may never be needed, on a thread of its own that gives
// way to all others.
//
// Thread rule: thread-safe; answers come on its thread. Ownership: make_plan and blobs outlive it.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "base/executor.h"
#include "controller/blob_store.h"
#include "controller/events.h"
#include "controller/planning.h"

namespace meshwright::controller {

class AheadPlanner {
 public:
  // listener: told of each plan; may be null.
  AheadPlanner(const PlanFunction& make_plan, BlobStore& blobs, PlanListener listener)
      : make_plan_(make_plan), blobs_(blobs), listener_(std::move(listener)) {}

  // done: called once, unless it is stopped before.
  void Ask(MakePlanAhead ask, std::string job_dir, std::function<void(PlannedAhead)> done);
  // What waits is not begun.
  void Stop();

 private:
  const PlanFunction& make_plan_;
  BlobStore& blobs_;
  const PlanListener listener_;
  std::atomic<bool> stopping_{false};
  Executor thread_{"mw-plan-ahead"};
};

}  // namespace meshwright::controller
