#include "client/grpc/actor_asks.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

namespace meshwright::client {

Status ActorAsks::Admit(uint64_t id, Entry entry) {
  const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms_);
  const MutexLock lock(mutex_);
  while (!end_ && !entry.watch && unanswered_ >= proto::kMostActorAsks) {
    if (changed_.WaitUntil(mutex_, due)) continue;
    return DeadlineExceeded(
        fmt::format("{} questions to actors are unanswered, the most at once, for {} ms",
                    unanswered_, timeout_ms_));
  }
  if (end_) return *end_;
  if (!entry.watch) ++unanswered_;
  asks_.emplace(id, std::move(entry));
  return OkStatus();
}

void ActorAsks::Ask(uint64_t id, proto::ActorAsk ask, Done done) {
  const bool watch = std::holds_alternative<proto::WatchHostActor>(ask);
  if (const Status admitted = Admit(id, {done, watch}); !admitted.ok()) {
    return done(Fail(admitted));
  }
  const Status written = write_(proto::SessionActorAsk{id, std::move(ask)});
  if (!written.ok()) Settle(id, Fail(written));
}

Result<proto::ActorDone> ActorAsks::Await(uint64_t id, proto::ActorAsk ask,
                                          const std::string& what) {
  const auto promise = std::make_shared<std::promise<Result<proto::ActorDone>>>();
  std::future<Result<proto::ActorDone>> future = promise->get_future();
  Ask(id, std::move(ask),
      [promise](Result<proto::ActorDone> done) { promise->set_value(std::move(done)); });
  if (future.wait_for(std::chrono::milliseconds(timeout_ms_)) == std::future_status::ready) {
    return future.get();
  }
  return Fail(DeadlineExceeded(fmt::format("no answer to '{}' within {} ms", what, timeout_ms_)));
}

bool ActorAsks::Settle(uint64_t id, Result<proto::ActorDone> result) {
  Done done;
  {
    const MutexLock lock(mutex_);
    const auto it = asks_.find(id);
    if (it == asks_.end()) return false;
    done = std::move(it->second.done);
    if (!it->second.watch) --unanswered_;
    asks_.erase(it);
  }
  changed_.NotifyAll();
  done(std::move(result));
  return true;
}

void ActorAsks::End(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (!end_) end_ = why;
  }
  Lose(why);
}

void ActorAsks::Lose(const Status& why) {
  std::map<uint64_t, Entry> left;
  {
    const MutexLock lock(mutex_);
    unanswered_ = 0;
    left = std::exchange(asks_, {});
  }
  changed_.NotifyAll();
  for (const auto& [id, entry] : left) entry.done(Fail(why));
}

}  // namespace meshwright::client
