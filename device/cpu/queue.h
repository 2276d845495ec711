// The queue of a CPU device: does everything at once, on the calling thread.
//
// Thread rule: as Queue.
#pragma once

#include <memory>

#include "device/queue.h"

namespace meshwright::device {

class CpuQueue final : public Queue {
 public:
  Status Copy(void* to, const void* from, int64_t bytes) override;
  Status Fill(void* to, std::byte value, int64_t bytes) override;
  Status Gather(void* dense, const void* strided, const StridedRuns& runs) override;
  Status Scatter(void* strided, const void* dense, const StridedRuns& runs) override;
  Status CopyIn(void* to, const void* host, int64_t bytes) override;
  Status CopyOut(void* host, const void* from, int64_t bytes) override;
  Status Mark(int32_t* host, int32_t value) override;
  Status Record(Event&) override { return OkStatus(); }
  Status WaitFor(const Event&) override { return OkStatus(); }
  using Queue::Finish;
  Status Finish(const Deadline&, FunctionRef<Status()>) override { return OkStatus(); }
  bool can_record() const override { return false; }
  Status StartRecording() override;
  Result<std::unique_ptr<Recording>> FinishRecording() override;
  Status Replay(Recording&) override;
  void* native() const override { return nullptr; }
};

}  // namespace meshwright::device
