// One connection of a session: frames of ClientUp and ClientDown until it ends or breaks.
//
// Thread rule: Write and Cancel from any thread; Read by one. Ownership: stands alone; the stub
// outlives it.
#pragma once

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>

#include "base/mutex.h"
#include "base/result.h"
#include "proto/client_messages.h"
#include "proto/frames.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::client {

class SessionStream {
 public:
  SessionStream(v1::JobService::Stub& stub,
                const std::function<void(grpc::ClientContext&)>& prepare);
  // Cancels what is still open, without waiting for anybody.
  ~SessionStream();

  // One message, whole. False: the stream has ended; Read says why.
  bool Write(const proto::ClientUp& message);

  struct End {
    grpc::Status status;
    Status damage;       // what came is no message
    bool final = false;  // the controller says that the session is over
    bool taken = false;  // it was more than an attempt: the controller had the stream
  };
  // Gives what comes to `take` until the stream ends, or `take` fails.
  End Read(const std::function<Status(proto::ClientDown)>& take);

  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  Mutex write_mutex_;  // one message at a time
  const std::unique_ptr<grpc::ClientReaderWriter<v1::Frame, v1::Frame>> stream_;
};

}  // namespace meshwright::client
