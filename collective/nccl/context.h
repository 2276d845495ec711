// What the parts of one NCCL fabric share, and all its communicators.
//
// Ending: aborts and destructions run in the background, in threads of their own, since NCCL may
// wait in them for other processes. A thread makes the communicator's device its own first: else
// CUDA would give it the first GPU, and take memory there.
//
// Thread rule: thread-safe; options and library are immutable. Ownership: shared with the threads
// that abort, which may outlive the fabric when NCCL does not come back.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/mutex.h"
#include "collective/cpu/fabric_context.h"
#include "collective/nccl/call_gate.h"
#include "collective/nccl/library.h"

namespace meshwright::collective::nccl {

using HostDeadline = ::meshwright::Deadline;

// How host waits pass their time; tests bring a clock of their own.
struct Timing {
  const Clock* clock = &SystemClock();
  // Between two looks at what is waited for; null: gives the core away, then sleeps shortly.
  std::function<void()> pause = {};
  // Of the machine's clock, and of the five seconds within which an aborted mesh must be gone: how
  // long an abort waits for calls inside NCCL, and a close for the end of all communicators.
  int64_t gate_ms = 2'000;
  int64_t end_ms = 5'000;
};

class Comm;

class Context : public std::enable_shared_from_this<Context> {
 public:
  Context(Library& nccl, FabricOptions options, Timing when);
  ~Context();

  Comm& Add(std::unique_ptr<Comm> comm);
  std::vector<Comm*> comms() const;  // parents before children
  // A place for the handle of a split that this rank has no part in.
  CommHandle* Spare();

  HostDeadline After(int64_t timeout_ms) const {
    return HostDeadline::After(timeout_ms, *timing.clock);
  }
  HostDeadline OperationDeadline() const { return After(fabric.operation_timeout_ms); }
  // Of a Connect(), or of a later one.
  HostDeadline ConnectDeadline(bool first) const;
  // Of a communicator's first call of a kind, in which NCCL may connect peers in further ways.
  HostDeadline FirstCallDeadline() const;
  // "rank 3 (worker-1): communicator NAME".
  std::string NameOf(int rank, const std::string& comm) const;

  // Closes the gate and aborts all communicators at once. Again: those that came since.
  void StartAbort();
  // Destroys all communicators, which were finalized.
  void StartDestroy();
  // Waits for what was started, after which nothing begins any more: devices may go. False when it
  // is not done in time: what it is at may use the devices' memory for ever.
  bool AwaitEnd(int64_t timeout_ms);

  FabricContext fabric;
  Library& library;
  const Timing timing;
  CallGate gate;

 private:
  friend class HostWait;
  void StartEnd(void (Context::*end)());
  void AbortAll();
  void DestroyAll();
  // Makes the communicator's device the thread's. False: AwaitEnd() is over, and it may be gone.
  bool Enter(const Comm& comm);

  mutable Mutex mutex_;  // taken before the devices'
  CondVar changed_;
  std::vector<std::unique_ptr<Comm>> comms_ MW_GUARDED_BY(mutex_);
  std::deque<CommHandle> spares_ MW_GUARDED_BY(mutex_);
  int ending_ MW_GUARDED_BY(mutex_) = 0;     // ends that were started and are not done
  bool over_ MW_GUARDED_BY(mutex_) = false;  // AwaitEnd() came back
};

// One wait of the host for NCCL or a queue. Most end within microseconds, so that it gives the core
// away at first and sleeps only later.
//
// Thread rule: one thread.
class HostWait {
 public:
  HostWait(Context& context, const HostDeadline& deadline)
      : context_(context), deadline_(deadline), begin_(std::chrono::steady_clock::now()) {}
  // Between two looks. The fabric's cause when it is aborted; kDeadlineExceeded WHAT after the
  // deadline. Else passes some time.
  Status Pause(FunctionRef<std::string()> what);

 private:
  Context& context_;
  const HostDeadline deadline_;
  const std::chrono::steady_clock::time_point begin_;
};

}  // namespace meshwright::collective::nccl
