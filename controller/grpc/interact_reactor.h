// JobService.Interact: the stream of a client's session.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "controller/grpc/late_service.h"
#include "proto/meshwright.pb.h"

namespace meshwright::controller {

// Lives until gRPC is done with it. An unauthorised stream is finished at once.
grpc::ServerBidiReactor<v1::Frame, v1::Frame>* MakeInteractReactor(
    grpc::CallbackServerContext& context, const CallParts& parts);

}  // namespace meshwright::controller
