// A session over a stream of JobService.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>

#include "client/session.h"
#include "proto/client_messages.h"
#include "proto/meshwright.grpc.pb.h"

namespace meshwright::client {

struct SessionStart {
  std::function<void(grpc::ClientContext&)> prepare;   // adds the token
  std::function<Status(const grpc::Status&)> explain;  // the end of the stream, for people
  proto::SessionOpen open;
  SessionOptions options;
};

// Opens the stream and waits until the job runs. Errors: the controller's; kDeadlineExceeded when
// the job does not run in time.
Result<std::unique_ptr<Session>> StartSession(const std::shared_ptr<grpc::Channel>& channel,
                                              SessionStart start);

}  // namespace meshwright::client
