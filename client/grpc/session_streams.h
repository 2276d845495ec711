// The connections of a session, one after the other: where one breaks, the next is made, at once or
// after a pause, for as long as SessionOptions::reconnect_ms says (client/reconnect.h).
//
// Thread rule: GiveUp from any thread; the rest by the reader, also from within its events.
// Ownership: owns stub and streams; who gets a stream may keep it. The clock outlives it.
#pragma once

#include <grpcpp/channel.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/mutex.h"
#include "client/grpc/session.h"
#include "client/grpc/session_stream.h"

namespace meshwright::client {

class SessionStreams {
 public:
  using StreamPtr = std::shared_ptr<SessionStream>;
  struct Events {
    // A message came; an error ends the session.
    std::function<Status(const StreamPtr&, proto::ClientDown)> told;
    // The connection broke, and is made again.
    std::function<void(const Status&)> lost;
  };

  SessionStreams(const std::shared_ptr<grpc::Channel>& channel, SessionStart start,
                 const Clock& clock = SystemClock())
      : start_(std::move(start)), clock_(clock), stub_(v1::JobService::NewStub(channel)) {}

  // Reads until the session is over; why. OK: well.
  Status Run(const Events& events);
  // From now on the session is one that the controller knows, of this job.
  void ComeBackTo(int64_t job_id);
  // Run returns.
  void GiveUp() MW_EXCLUDES(mutex_);

 private:
  // Null: the session is given up.
  StreamPtr Next(int64_t pause_ms) MW_EXCLUDES(mutex_);

  SessionStart start_;
  const Clock& clock_;
  const std::unique_ptr<v1::JobService::Stub> stub_;
  Mutex mutex_;
  CondVar changed_;
  bool given_up_ MW_GUARDED_BY(mutex_) = false;
  StreamPtr stream_ MW_GUARDED_BY(mutex_);  // the newest
};

}  // namespace meshwright::client
