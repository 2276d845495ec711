// A story of a job's steps (controller/run_story.h) as a stream of parts: one is on its way, the
// next one goes when it is out, so that a slow reader costs no more than the text.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "controller/grpc/late_service.h"
#include "proto/meshwright.pb.h"

namespace meshwright::controller {

// Deletes itself when the call is done.
grpc::ServerBidiReactor<v1::StoryRequest, v1::StoryChunk>* MakeStoryReactor(
    grpc::CallbackServerContext& context, const CallParts& parts);

}  // namespace meshwright::controller
