#include "actor/cell.h"

namespace meshwright::actor {

Address CellBase::address() const {
  const MutexLock lock(mutex_);
  return address_;
}

int64_t CellBase::BusyMs(int64_t now_ms) const {
  const int64_t since_ms = busy_since_ms_;
  return since_ms < 0 ? 0 : now_ms - since_ms;
}

void CellBase::Watch(Watcher watcher) {
  Event event;
  {
    const MutexLock lock(mutex_);
    if (state_ != State::kEnded) {
      watchers_.push_back(std::move(watcher));
      return;
    }
    event = end_;
  }
  watcher(event);
}

Status CellBase::CheckOpen(ActorGeneration generation) const {
  if (generation != address_.generation) {
    Address asked = address_;
    asked.generation = generation;
    return GoneError(asked, state_ == State::kEnded ? ActorGeneration(0) : address_.generation);
  }
  if (state_ == State::kEnded || state_ == State::kWaiting) return EndError();
  return OkStatus();
}

Status CellBase::EndError() const {
  return end_.kind == EventKind::kStopped ? StoppedError(end_.address)
                                          : DeadError(end_.address, end_.why);
}

void CellBase::Tell(const Event& event) {
  std::vector<Watcher> told;
  {
    const MutexLock lock(mutex_);
    if (state_ == State::kEnded) {
      // The end goes to each of them once, whatever is under way.
      if (event.kind == EventKind::kRestarted) return;
      told.swap(watchers_);
    } else {
      told = watchers_;
    }
  }
  for (const Watcher& watcher : told) watcher(event);
}

}  // namespace meshwright::actor
