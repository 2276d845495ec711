// Ends calls that wait for their caller too long: a request that never comes whole, an upload that
// falls silent.
//
// Thread rule: thread-safe. Ownership: CallDeadlines outlives its watches, a watch not its call.
#pragma once

#include <grpcpp/server_context.h>

#include <cstdint>
#include <memory>

#include "base/executor.h"

namespace meshwright::controller {

class CallDeadlines {
 public:
  // Of one call. Its time runs from its making, and anew from each Waiting().
  class Watch {
   public:
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    void Waiting();
    // What the call waits for now is not its caller.
    void Busy();

   private:
    friend class CallDeadlines;
    struct State;
    explicit Watch(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
  };

  // Cancels the call of `context` when one wait lasts longer than `wait_ms`.
  std::unique_ptr<Watch> Begin(grpc::ServerContextBase* context, int64_t wait_ms);

 private:
  void Look(const std::shared_ptr<Watch::State>& state);

  Executor timer_{"mw-deadlines"};
};

}  // namespace meshwright::controller
