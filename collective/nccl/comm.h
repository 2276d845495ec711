// Comm: one communicator of one local rank.
//
// Its calls never block in NCCL: Call() waits on the host for what is in progress, within a
// deadline, and returns the fabric's first cause when it is aborted meanwhile.
//
// Thread rule: Call() and IsFirst() by one thread at a time; Check() and state() from any. Abort()
// when nobody is inside a call. Ownership: the Context owns it; its address and slot() are
// constant.
#pragma once

#include <atomic>
#include <string>

#include "base/function_ref.h"
#include "base/mutex.h"
#include "collective/nccl/comm_state.h"
#include "collective/nccl/context.h"
#include "device/device.h"

namespace meshwright::collective::nccl {

class Comm {
 public:
  struct Shape {
    std::string name;
    int rank = 0;      // of the mesh
    int position = 0;  // in the communicator
    int size = 0;
    device::Device* device = nullptr;  // of the rank
  };
  Comm(Context& context, Shape shape) : context_(context), shape_(std::move(shape)) {}

  const std::string& name() const { return shape_.name; }
  int rank() const { return shape_.rank; }
  int position() const { return shape_.position; }
  int size() const { return shape_.size; }
  device::Device& device() const { return *shape_.device; }
  State state() const { return state_.load(); }

  // Where NCCL puts the handle.
  CommHandle* slot() { return &handle_; }
  CommHandle handle() const {
    return std::atomic_ref<CommHandle>(const_cast<CommHandle&>(handle_)).load();
  }
  // The call that creates it was made.
  void Started() { Apply(Event::kStart); }

  // Makes a call on it, and waits until it is not in progress. Errors: NCCL's, with `what` and the
  // names of rank and communicator; the fabric's cause; kDeadlineExceeded.
  Status Call(const char* what, FunctionRef<Code(CommHandle)> call, const HostDeadline& deadline);
  // Waits until it is not in progress. A communicator that is being made is ready then.
  Status Await(const char* what, const HostDeadline& deadline);
  // True when it is asked for the first time of a kind.
  bool IsFirst(Kind kind) {
    const bool first = (used_ & Bit(kind)) == 0;
    used_ |= Bit(kind);
    return first;
  }
  // What a call that was made elsewhere returned.
  Status Judge(const char* what, Code code);
  // NCCL's state of it; OK while a thread is inside a call, and when it is not ready.
  Status Check();

  Status Finalize();  // in progress afterwards
  // Block in NCCL for as long as it likes. Nothing is left of it; once only, whoever comes first.
  void Destroy();  // what was finalized
  void Abort();

 private:
  static unsigned Bit(Kind kind) { return 1u << static_cast<unsigned>(kind); }
  // False when it may not happen in the present state.
  bool TryApply(Event event);
  void Apply(Event event);
  Status ErrorIn(const char* what, Code code);
  Result<bool> Settled(const char* what);

  Context& context_;
  const Shape shape_;
  CommHandle handle_ = nullptr;
  std::atomic<State> state_{State::kCreated};
  Mutex mutex_;        // of calls on it; taken inside the gate
  unsigned used_ = 0;  // bits of kinds; of the thread that calls
};

}  // namespace meshwright::collective::nccl
