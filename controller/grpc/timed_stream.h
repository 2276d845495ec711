// A synchronous call's stream, whose caller is waited for only so long.
//
// Thread rule: the handler's thread. Ownership: stream, parts and context outlive it.
#pragma once

#include <fmt/format.h>
#include <grpcpp/server_context.h>

#include <cstdint>
#include <memory>

#include "controller/grpc/late_service.h"

namespace meshwright::controller {

// None of its reads and writes waits longer than `wait_ms`.
template <typename Stream>
class TimedStream {
 public:
  TimedStream(Stream& stream, const CallParts& parts, grpc::ServerContext& context, int64_t wait_ms)
      : stream_(stream),
        context_(context),
        wait_ms_(wait_ms),
        watch_(parts.deadlines->Begin(&context, wait_ms)) {}

  // False: nothing more comes, or the time is over; see End().
  template <typename Message>
  bool Read(Message* message) {
    watch_->Waiting();
    const bool came = stream_.Read(message);
    watch_->Busy();
    return came;
  }

  // False: the caller has gone, or does not read for too long.
  template <typename Message>
  bool Write(const Message& message) {
    watch_->Waiting();
    const bool went = stream_.Write(message);
    watch_->Busy();
    return went;
  }

  // What a Read that came to nothing means: OK is the end that the caller chose.
  Status End() const {
    if (!context_.IsCancelled()) return OkStatus();
    return Cancelled(fmt::format(
        "the call was ended: its caller went away, or sent nothing for {} ms", wait_ms_));
  }

 private:
  Stream& stream_;
  grpc::ServerContext& context_;
  const int64_t wait_ms_;
  std::unique_ptr<CallDeadlines::Watch> watch_;
};

}  // namespace meshwright::controller
