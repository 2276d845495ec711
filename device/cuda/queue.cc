#include "device/cuda/queue.h"

#include <sched.h>

#include <utility>

namespace meshwright::device::cuda {
namespace {

class CudaRecording final : public Recording {
 public:
  CudaRecording(std::shared_ptr<Context> context, GraphHandle graph)
      : context_(std::move(context)), graph_(graph) {}
  ~CudaRecording() override {
    if (graph_ == nullptr) return;
    (void)context_->Run("destroying a graph",
                        [&] { return context_->driver.DestroyGraph(graph_); });
  }
  GraphHandle graph() const { return graph_; }  // null: nothing was recorded

 private:
  const std::shared_ptr<Context> context_;
  const GraphHandle graph_;
};

}  // namespace

Result<std::unique_ptr<CudaEvent>> CudaEvent::Make(std::shared_ptr<Context> context) {
  EventHandle handle = nullptr;
  MW_TRY(context->Run("making an event", [&] { return context->driver.MakeEvent(&handle); }));
  return std::unique_ptr<CudaEvent>(new CudaEvent(std::move(context), handle));
}

CudaEvent::~CudaEvent() {
  (void)context_->Run("destroying an event",
                      [&] { return context_->driver.DestroyEvent(handle_); });
}

Result<std::unique_ptr<CudaQueue>> CudaQueue::Make(std::shared_ptr<Context> context, bool urgent) {
  StreamHandle stream = nullptr;
  MW_TRY(
      context->Run("making a stream", [&] { return context->driver.MakeStream(&stream, urgent); }));
  return std::unique_ptr<CudaQueue>(new CudaQueue(std::move(context), stream));
}

CudaQueue::~CudaQueue() {
  (void)context_->Run("destroying a stream",
                      [&] { return context_->driver.DestroyStream(stream_); });
}

Status CudaQueue::Copy(void* to, const void* from, int64_t bytes) {
  return context_->Run("a copy on the device",
                       [&] { return context_->driver.Copy(to, from, bytes, stream_); });
}

Status CudaQueue::Fill(void* to, std::byte value, int64_t bytes) {
  return context_->Run("filling memory", [&] {
    return context_->driver.Fill(to, std::to_integer<int32_t>(value), bytes, stream_);
  });
}

Status CudaQueue::Gather(void* dense, const void* strided, const StridedRuns& runs) {
  return context_->Run("packing a tile",
                       [&] { return context_->driver.Gather(dense, strided, runs, stream_); });
}

Status CudaQueue::Scatter(void* strided, const void* dense, const StridedRuns& runs) {
  return context_->Run("unpacking a tile",
                       [&] { return context_->driver.Scatter(strided, dense, runs, stream_); });
}

Status CudaQueue::CopyIn(void* to, const void* host, int64_t bytes) {
  return context_->Run("a copy from the host",
                       [&] { return context_->driver.Copy(to, host, bytes, stream_); });
}

Status CudaQueue::CopyOut(void* host, const void* from, int64_t bytes) {
  return context_->Run("a copy to the host",
                       [&] { return context_->driver.Copy(host, from, bytes, stream_); });
}

Status CudaQueue::Mark(int32_t* host, int32_t value) {
  return context_->Run("marking the progress",
                       [&] { return context_->driver.Mark(host, value, stream_); });
}

Status CudaQueue::Call(HostCall call, void* with) {
  return context_->Run("a call of the host",
                       [&] { return context_->driver.CallHost(call, with, stream_); });
}

Status CallHost(Queue& queue, HostCall call, void* with) {
  return static_cast<CudaQueue&>(queue).Call(call, with);
}

Status CudaQueue::Record(Event& event) {
  const EventHandle handle = static_cast<CudaEvent&>(event).handle();
  return context_->Run("recording an event",
                       [&] { return context_->driver.RecordEvent(handle, stream_); });
}

Status CudaQueue::WaitFor(const Event& event) {
  const EventHandle handle = static_cast<const CudaEvent&>(event).handle();
  return context_->Run("waiting for an event",
                       [&] { return context_->driver.WaitForEvent(stream_, handle); });
}

// Polls: a wait inside the runtime could not be interrupted, and a step must end within
// microseconds of its last kernel.
Status CudaQueue::Finish(const Deadline& deadline, FunctionRef<Status()> interrupted) {
  while (true) {
    bool ready = true;
    MW_TRY(context_->Run("waiting for the device", [&] {
      const Code code = context_->driver.QueryStream(stream_);
      ready = code != kNotReady;
      return ready ? code : kSuccess;
    }));
    if (ready) return OkStatus();
    MW_TRY(interrupted());
    if (deadline.expired()) {
      return DeadlineExceeded("the device has not finished its work in time");
    }
    ::sched_yield();
  }
}

Status CudaQueue::StartRecording() {
  return context_->Run("starting a capture",
                       [&] { return context_->driver.StartCapture(stream_); });
}

Result<std::unique_ptr<Recording>> CudaQueue::FinishRecording() {
  GraphHandle graph = nullptr;
  MW_TRY(context_->Run("making a graph",
                       [&] { return context_->driver.FinishCapture(stream_, &graph); }));
  return std::unique_ptr<Recording>(std::make_unique<CudaRecording>(context_, graph));
}

Status CudaQueue::Replay(Recording& recording) {
  const GraphHandle graph = static_cast<CudaRecording&>(recording).graph();
  if (graph == nullptr) return OkStatus();
  return context_->Run("launching a graph",
                       [&] { return context_->driver.LaunchGraph(graph, stream_); });
}

}  // namespace meshwright::device::cuda
