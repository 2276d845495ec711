// What a session has asked of host actors and has not heard of. Each is completed exactly once: by
// its answer, by a write that failed, or by the end of the session.
//
// At most proto::kMostActorAsks wait for an answer, watches not counted: Ask waits for room.
// Thread rule: thread-safe; completions run outside of the lock, on the thread that brought them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/result.h"
#include "proto/client_messages.h"

namespace meshwright::client {

class ActorAsks {
 public:
  using Done = std::function<void(Result<proto::ActorDone>)>;
  using Write = std::function<Status(const proto::ClientUp&)>;

  // write: of one message; it does not come back into this object.
  ActorAsks(Write write, int64_t timeout_ms) : write_(std::move(write)), timeout_ms_(timeout_ms) {}

  // `id`: of no other ask of the session. Errors, by `done`: kDeadlineExceeded: no room in time;
  // the end of the session; those of the write and of the controller.
  void Ask(uint64_t id, proto::ActorAsk ask, Done done);
  // Ask, and wait. `what`: for the message of a deadline.
  Result<proto::ActorDone> Await(uint64_t id, proto::ActorAsk ask, const std::string& what);

  // False: it is no ask of this object.
  bool Settle(uint64_t id, Result<proto::ActorDone> result);
  // What has been asked will not be answered; what comes next may be.
  void Lose(const Status& why);
  // Nothing can be asked any more, and nothing will be answered.
  void End(const Status& why);

 private:
  struct Entry {
    Done done;
    bool watch = false;
  };
  // Waits for room, and takes it. Errors: as of Ask.
  Status Admit(uint64_t id, Entry entry);

  const Write write_;
  const int64_t timeout_ms_;
  Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, Entry> asks_ MW_GUARDED_BY(mutex_);
  size_t unanswered_ MW_GUARDED_BY(mutex_) = 0;  // of them, without watches
  std::optional<Status> end_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::client
