// LinkTable: what a place has under way to each other place: credits and watches.
//
// A place sends at most `credits` messages to another one that have not been replied to; each reply
// gives one back. So the memory that a slow place can hold up is bounded at both ends.
//
// Thread rule: thread-safe; watchers run on the caller's thread, outside of the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "actor/address.h"
#include "actor/cell.h"
#include "base/mutex.h"

namespace meshwright::actor {

class LinkTable {
 public:
  explicit LinkTable(size_t credits) : credits_(credits) {}

  // Errors: kResourceExhausted; kAborted for a place that is lost.
  Status TakeCredit(const Address& to);
  void ReturnCredit(PlaceId place);

  // The number that the other place repeats in its events; 0: that place is lost, and the watcher
  // was told so.
  uint64_t AddWatch(const Address& watched, Watcher watcher);
  // An event that nobody waits for does nothing; an end is the last.
  void OnEvent(uint64_t watch, const Event& event);

  // Its watchers are told kLost; nothing is sent there any more.
  void Lose(PlaceId place, const Status& cause);

  // The end of this place: every watcher is told kLost.
  void LoseAll(const Status& cause);

  size_t unreplied(PlaceId place) const;

 private:
  struct Watch {
    Address watched;
    Watcher watcher;
  };

  const size_t credits_;
  mutable Mutex mutex_;
  std::map<PlaceId, size_t> unreplied_ MW_GUARDED_BY(mutex_);
  std::map<PlaceId, Status> lost_ MW_GUARDED_BY(mutex_);
  std::map<uint64_t, Watch> watches_ MW_GUARDED_BY(mutex_);
  uint64_t next_watch_ MW_GUARDED_BY(mutex_) = 1;
};

}  // namespace meshwright::actor
