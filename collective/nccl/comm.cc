#include "collective/nccl/comm.h"

#include <fmt/format.h>

#include "base/check.h"

namespace meshwright::collective::nccl {

bool Comm::TryApply(Event event) {
  State from = state_.load();
  while (true) {
    const auto to = Next(from, event);
    if (!to.has_value()) return false;
    if (state_.compare_exchange_weak(from, *to)) return true;
  }
}

// An abort that does not wait any longer for who is inside a call may have been faster.
void Comm::Apply(Event event) {
  if (TryApply(event) || event == Event::kError) return;
  const State state = state_.load();
  MW_CHECK(state == State::kAborted || state == State::kDestroyed)
      << "communicator " << shape_.name << " is " << StateName(state) << ": no "
      << EventName(event);
}

Status Comm::ErrorIn(const char* what, Code code) {
  // An abort by another thread is the reason then, not the error.
  if (context_.fabric.latch.stopped()) return context_.fabric.latch.status();
  Apply(Event::kError);
  return ErrorOf(context_.library, code,
                 fmt::format("{}: {}", context_.NameOf(shape_.rank, shape_.name), what));
}

Status Comm::Judge(const char* what, Code code) {
  if (code == Code::kSuccess || code == Code::kInProgress) return OkStatus();
  return ErrorIn(what, code);
}

Status Comm::Call(const char* what, FunctionRef<Code(CommHandle)> call,
                  const HostDeadline& deadline) {
  Code code = Code::kSuccess;
  {
    const CallGate::Pass pass(context_.gate);
    if (!pass) return context_.fabric.latch.status();
    const MutexLock lock(mutex_);
    code = call(handle());
    if (code != Code::kInProgress) {
      return code == Code::kSuccess ? OkStatus() : ErrorIn(what, code);
    }
  }
  return Await(what, deadline);
}

Result<bool> Comm::Settled(const char* what) {
  const CallGate::Pass pass(context_.gate);
  if (!pass) return Fail(context_.fabric.latch.status());
  const MutexLock lock(mutex_);
  const CommHandle handle = this->handle();
  if (handle == nullptr) return false;  // its parent is still at it
  Code state = Code::kSuccess;
  const Code code = context_.library.CommGetAsyncError(handle, &state);
  if (code != Code::kSuccess) return Fail(ErrorIn(what, code));
  if (state == Code::kInProgress) return false;
  if (state != Code::kSuccess) return Fail(ErrorIn(what, state));
  if (state_.load() == State::kInitialising) Apply(Event::kDone);
  return true;
}

Status Comm::Await(const char* what, const HostDeadline& deadline) {
  HostWait wait(context_, deadline);
  while (true) {
    MW_ASSIGN_OR_RETURN(const bool settled, Settled(what));
    if (settled) return OkStatus();
    MW_TRY(wait.Pause([&] {
      return fmt::format("{}: {} is still in progress: members of it have not come",
                         context_.NameOf(shape_.rank, shape_.name), what);
    }));
  }
}

Status Comm::Check() {
  const CallGate::Pass pass(context_.gate);
  if (!mutex_.TryLock()) return OkStatus();
  const MutexLock lock(mutex_, AdoptLock{});
  if (!pass || state_.load() != State::kReady) return OkStatus();
  Code state = Code::kSuccess;
  const Code code = context_.library.CommGetAsyncError(handle(), &state);
  return Judge("running", code == Code::kSuccess ? state : code);
}

Status Comm::Finalize() {
  const CallGate::Pass pass(context_.gate);
  if (!pass) return context_.fabric.latch.status();
  const MutexLock lock(mutex_);
  const Code code = context_.library.CommFinalize(handle());
  if (code != Code::kSuccess && code != Code::kInProgress) return ErrorIn("finalizing", code);
  Apply(Event::kFinalize);
  return OkStatus();
}

void Comm::Destroy() {
  const CallGate::Pass pass(context_.gate);
  State closing = State::kClosing;  // what is being aborted is not destroyed as well
  if (!pass || !state_.compare_exchange_strong(closing, State::kDestroyed)) return;
  (void)context_.library.CommDestroy(handle());
}

// NCCL frees the communicator with it, also when it says that it is still at it.
void Comm::Abort() {
  const CommHandle handle = this->handle();
  if (handle == nullptr || !TryApply(Event::kAbort)) return;
  (void)context_.library.CommAbort(handle);
  Apply(Event::kDestroy);
}

}  // namespace meshwright::collective::nccl
