// The queue of a CUDA device: a stream. A recording is an instantiated graph.
//
// Thread rule: as Queue. Ownership: as Queue; the context outlives all.
#pragma once

#include <memory>

#include "device/cuda/error.h"

namespace meshwright::device::cuda {

// What everything of one device refers to.
struct Context {
  Context(Driver& of_driver, int32_t of_device, std::string name)
      : driver(of_driver), device(of_device), errors(of_driver, of_device, std::move(name)) {}

  // Makes the calling thread use the device, then calls; the code becomes a Status.
  template <typename Call>
  Status Run(std::string_view what, const Call& call) {
    const Code code = driver.UseDevice(device);
    return errors.Check(code == kSuccess ? call() : code, what);
  }

  Driver& driver;
  const int32_t device;
  ErrorState errors;
};

class CudaEvent final : public Event {
 public:
  static Result<std::unique_ptr<CudaEvent>> Make(std::shared_ptr<Context> context);
  ~CudaEvent() override;
  EventHandle handle() const { return handle_; }

 private:
  CudaEvent(std::shared_ptr<Context> context, EventHandle handle)
      : context_(std::move(context)), handle_(handle) {}
  const std::shared_ptr<Context> context_;
  const EventHandle handle_;
};

class CudaQueue final : public Queue {
 public:
  static Result<std::unique_ptr<CudaQueue>> Make(std::shared_ptr<Context> context, bool urgent);
  // Waits for nothing: what is in the stream is done, or lost with the context.
  ~CudaQueue() override;

  Status Copy(void* to, const void* from, int64_t bytes) override;
  Status Fill(void* to, std::byte value, int64_t bytes) override;
  Status Gather(void* dense, const void* strided, const StridedRuns& runs) override;
  Status Scatter(void* strided, const void* dense, const StridedRuns& runs) override;
  Status CopyIn(void* to, const void* host, int64_t bytes) override;
  Status CopyOut(void* host, const void* from, int64_t bytes) override;
  Status Mark(int32_t* host, int32_t value) override;
  Status Record(Event& event) override;
  Status WaitFor(const Event& event) override;
  using Queue::Finish;
  Status Finish(const Deadline& deadline, FunctionRef<Status()> interrupted) override;
  bool can_record() const override { return true; }
  Status StartRecording() override;
  Result<std::unique_ptr<Recording>> FinishRecording() override;
  Status Replay(Recording& recording) override;
  void* native() const override { return stream_; }
  Status Call(HostCall call, void* with);

 private:
  CudaQueue(std::shared_ptr<Context> context, StreamHandle stream)
      : context_(std::move(context)), stream_(stream) {}

  const std::shared_ptr<Context> context_;
  const StreamHandle stream_;
};

// Calls it on a thread of the host when the queue gets there; what is behind it waits until it
// returns. It may touch no memory of the device, and give it no work. REQUIRES a queue of a
// CudaDevice.
Status CallHost(Queue& queue, HostCall call, void* with);

}  // namespace meshwright::device::cuda
