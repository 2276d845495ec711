#include "controller/grpc/call_deadlines.h"

#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace meshwright::controller {

struct CallDeadlines::Watch::State {
  // Recursive: cancelling may run what the call does next, and with it the end of its watch, on
  // the thread that cancels.
  RecursiveMutex mutex;
  grpc::ServerContextBase* context MW_GUARDED_BY(mutex) = nullptr;  // null: the watch has ended
  int64_t wait_ms MW_GUARDED_BY(mutex) = 0;
  int64_t since_ms MW_GUARDED_BY(mutex) = -1;  // -1: not waiting
};

CallDeadlines::Watch::Watch(std::shared_ptr<State> state) : state_(std::move(state)) {}

CallDeadlines::Watch::~Watch() {
  const RecursiveMutexLock lock(state_->mutex);
  state_->context = nullptr;
}

void CallDeadlines::Watch::Waiting() {
  const RecursiveMutexLock lock(state_->mutex);
  state_->since_ms = SystemClock().NowMs();
}

void CallDeadlines::Watch::Busy() {
  const RecursiveMutexLock lock(state_->mutex);
  state_->since_ms = -1;
}

std::unique_ptr<CallDeadlines::Watch> CallDeadlines::Begin(grpc::ServerContextBase* context,
                                                           int64_t wait_ms) {
  auto state = std::make_shared<Watch::State>();
  {
    const RecursiveMutexLock lock(state->mutex);
    state->context = context;
    state->wait_ms = wait_ms;
    state->since_ms = SystemClock().NowMs();
  }
  timer_.PostAfter(wait_ms, [this, state] { Look(state); });
  return std::unique_ptr<Watch>(new Watch(std::move(state)));
}

void CallDeadlines::Look(const std::shared_ptr<Watch::State>& state) {
  const RecursiveMutexLock lock(state->mutex);
  if (state->context == nullptr) return;
  const int64_t now_ms = SystemClock().NowMs();
  const int64_t begin_ms = state->since_ms < 0 ? now_ms : state->since_ms;
  const int64_t left_ms = begin_ms + state->wait_ms - now_ms;
  if (left_ms <= 0) return state->context->TryCancel();
  timer_.PostAfter(left_ms, [this, state] { Look(state); });
}

}  // namespace meshwright::controller
