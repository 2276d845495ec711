// Queue: work of one device, done in the order in which it was given. Event: a point in it.
//
// Calls put work into the queue and return; what they name must stay as it is until the queue has
// got there, which Finish() waits for. Queues of a CPU device are at their end when a call returns.
// Queues of one device run beside each other: what is put into one after WaitFor(event) starts when
// everything that was in the other one at Record(event) is done.
//
// Recording: work given between StartRecording() and FinishRecording() is kept instead of done;
// Replay() does all of it at the price of one call. A recording holds addresses and sizes, not
// data. Events are not part of recordings: no Record() or WaitFor() while one is made.
//
// Failures: what went wrong with earlier work may show in any later call. An error after which the
// device cannot be used is kept by Device::status() and returned by every later call.
//
// Thread rule: one thread at a time per queue. Ownership: queues, events and recordings belong to
// whoever made them and may not outlive their device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"

namespace meshwright::device {

// Equal runs of bytes at regular places: `loops`, major first, step through the strided side; on
// the dense side run follows run.
struct StridedRuns {
  struct Loop {
    int64_t count = 1;
    int64_t stride_bytes = 0;
  };
  int64_t run_bytes = 0;
  std::span<const Loop> loops;

  int64_t runs() const {
    int64_t product = 1;
    for (const Loop& loop : loops) product *= loop.count;
    return product;
  }
};

class Event {
 public:
  virtual ~Event() = default;
};

class Recording {
 public:
  virtual ~Recording() = default;
};

class Queue {
 public:
  virtual ~Queue() = default;

  // Between places of the device's memory that do not overlap.
  virtual Status Copy(void* to, const void* from, int64_t bytes) = 0;
  virtual Status Fill(void* to, std::byte value, int64_t bytes) = 0;
  virtual Status Gather(void* dense, const void* strided, const StridedRuns& runs) = 0;
  virtual Status Scatter(void* strided, const void* dense, const StridedRuns& runs) = 0;

  // Between the device's memory and the host's: HostMemory of the device, read or written when the
  // queue gets there; any other memory is done with when the call returns.
  virtual Status CopyIn(void* to, const void* host, int64_t bytes) = 0;
  virtual Status CopyOut(void* host, const void* from, int64_t bytes) = 0;

  // Stores `value` in HostMemory of the device when the queue gets there. It can be read at any
  // time, and still says how far the queue got when the device has failed.
  virtual Status Mark(int32_t* host, int32_t value) = 0;

  virtual Status Record(Event& event) = 0;
  virtual Status WaitFor(const Event& event) = 0;

  // Waits for everything given so far. `interrupted` is asked all the time; its error ends the
  // wait. Errors: kDeadlineExceeded; what went wrong with the work.
  virtual Status Finish(const Deadline& deadline, FunctionRef<Status()> interrupted) = 0;
  Status Finish(const Deadline& deadline) {
    return Finish(deadline, [] { return OkStatus(); });
  }

  // False where Replay() would gain nothing: the calls below are then kUnimplemented.
  virtual bool can_record() const = 0;
  virtual Status StartRecording() = 0;
  virtual Result<std::unique_ptr<Recording>> FinishRecording() = 0;
  virtual Status Replay(Recording& recording) = 0;

  // The system's stream, for libraries that put work into it; null on CPUs.
  virtual void* native() const = 0;
};

}  // namespace meshwright::device
