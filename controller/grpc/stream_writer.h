// The writing half of a bidirectional stream: messages wait in a bounded queue, one is on its way,
// and the end goes behind them.
//
// A reactor of gRPC may be gone while others still have something to say to it: they share this
// object, and after Detach() it drops what they say. Thread rule: thread-safe; gRPC calls no
// reactor while its mutex is held. Ownership: shared by the reactor and those who speak to it.
#pragma once

#include <fmt/format.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "base/mutex.h"

namespace meshwright::controller {

struct WriterLimits {
  size_t messages = 1024;
  size_t bytes = size_t{256} << 20;
  std::string reader;  // whom it is said of: "this worker"
};

template <typename Request, typename Response>
class StreamWriter {
 public:
  using Reactor = grpc::ServerBidiReactor<Request, Response>;

  StreamWriter(Reactor* reactor, WriterLimits limits)
      : limits_(std::move(limits)), reactor_(reactor) {}

  // Dropped once the stream is ending. Who reads so slowly that the limits are passed is ended with
  // kResourceExhausted, without what waits.
  void Push(Response message) {
    const MutexLock lock(mutex_);
    if (closing_ || reactor_ == nullptr) return;
    waiting_bytes_ += message.ByteSizeLong();
    queue_.push_back(std::move(message));
    if (queue_.size() > limits_.messages || waiting_bytes_ > limits_.bytes) {
      final_ =
          grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                       fmt::format("{} messages of {} bytes wait for {} to read, which is too slow",
                                   queue_.size(), waiting_bytes_, limits_.reader));
      Drop();
      closing_ = true;
    }
    Pump();
  }

  // Ends the stream once what waits is written. The first end counts.
  void Close(grpc::Status status) {
    const MutexLock lock(mutex_);
    if (closing_ || reactor_ == nullptr) return;
    closing_ = true;
    final_ = std::move(status);
    Pump();
  }

  // OnWriteDone of the reactor.
  void WriteDone(bool ok) {
    const MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) Drop();
    Pump();
  }

  // OnDone of the reactor: nothing is written any more.
  void Detach() {
    const MutexLock lock(mutex_);
    reactor_ = nullptr;
    Drop();
  }

 private:
  void Drop() MW_REQUIRES(mutex_) {
    queue_.clear();
    waiting_bytes_ = 0;
  }

  void Pump() MW_REQUIRES(mutex_) {
    if (writing_ || finished_ || reactor_ == nullptr) return;
    if (!queue_.empty()) {
      writing_ = true;
      on_its_way_ = std::move(queue_.front());
      queue_.pop_front();
      waiting_bytes_ -= on_its_way_.ByteSizeLong();
      reactor_->StartWrite(&on_its_way_);
    } else if (closing_) {
      finished_ = true;
      reactor_->Finish(final_);
    }
  }

  const WriterLimits limits_;
  Mutex mutex_;
  Reactor* reactor_ MW_GUARDED_BY(mutex_);
  std::deque<Response> queue_ MW_GUARDED_BY(mutex_);
  size_t waiting_bytes_ MW_GUARDED_BY(mutex_) = 0;
  Response on_its_way_ MW_GUARDED_BY(mutex_);
  bool writing_ MW_GUARDED_BY(mutex_) = false;
  bool closing_ MW_GUARDED_BY(mutex_) = false;
  bool finished_ MW_GUARDED_BY(mutex_) = false;
  grpc::Status final_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::controller
