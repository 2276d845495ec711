#include "actor/link_table.h"

#include <fmt/format.h>

#include <vector>

#include "base/check.h"

namespace meshwright::actor {

Status LinkTable::TakeCredit(const Address& to) {
  const MutexLock lock(mutex_);
  if (const auto lost = lost_.find(to.place); lost != lost_.end()) {
    return DeadError(to, lost->second);
  }
  size_t& unreplied = unreplied_[to.place];
  if (unreplied >= credits_) {
    return ResourceExhausted(
        fmt::format("{} messages to place {} have not been answered, the most at once; send more "
                    "once they are",
                    unreplied, to.place.value()));
  }
  ++unreplied;
  return OkStatus();
}

void LinkTable::ReturnCredit(PlaceId place) {
  const MutexLock lock(mutex_);
  const auto it = unreplied_.find(place);
  // A peer that replies more often than it was asked gains nothing.
  if (it != unreplied_.end() && it->second > 0) --it->second;
}

uint64_t LinkTable::AddWatch(const Address& watched, Watcher watcher) {
  Status cause;
  {
    const MutexLock lock(mutex_);
    const auto lost = lost_.find(watched.place);
    if (lost == lost_.end()) {
      const uint64_t id = next_watch_++;
      MW_CHECK(id != 0) << "0 is the watch that is over";
      watches_.emplace(id, Watch{watched, std::move(watcher)});
      return id;
    }
    cause = lost->second;
  }
  watcher(Event{EventKind::kLost, watched, cause});
  return 0;
}

void LinkTable::OnEvent(uint64_t watch, const Event& event) {
  Watcher watcher;
  {
    const MutexLock lock(mutex_);
    const auto it = watches_.find(watch);
    if (it == watches_.end() || it->second.watched.place != event.address.place) return;
    watcher = it->second.watcher;
    if (event.kind != EventKind::kRestarted) watches_.erase(it);
  }
  watcher(event);
}

void LinkTable::Lose(PlaceId place, const Status& cause) {
  std::vector<Watch> over;
  {
    const MutexLock lock(mutex_);
    lost_.emplace(place, cause);
    unreplied_.erase(place);
    for (auto it = watches_.begin(); it != watches_.end();) {
      if (it->second.watched.place == place) {
        over.push_back(std::move(it->second));
        it = watches_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const Watch& watch : over) watch.watcher(Event{EventKind::kLost, watch.watched, cause});
}

void LinkTable::LoseAll(const Status& cause) {
  std::map<uint64_t, Watch> over;
  {
    const MutexLock lock(mutex_);
    over.swap(watches_);
  }
  for (const auto& [id, watch] : over) {
    watch.watcher(Event{EventKind::kLost, watch.watched, cause});
  }
}

size_t LinkTable::unreplied(PlaceId place) const {
  const MutexLock lock(mutex_);
  const auto it = unreplied_.find(place);
  return it == unreplied_.end() ? 0 : it->second;
}

}  // namespace meshwright::actor
