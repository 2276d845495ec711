// What a worker says of itself when it joins a cluster.
//
// Thread rule: pure, but for the incarnation, which is another one with each call.
#pragma once

#include "checkpoint/roots.h"
#include "data/roots.h"
#include "proto/messages.h"
#include "worker/agent.h"

namespace meshwright::worker {

// But for its metrics.
proto::Register RegisterOf(const AgentOptions& options, const data::Roots& roots,
                           const checkpoint::Roots& checkpoint_roots, int data_port);

}  // namespace meshwright::worker
