// What a worker says of itself when it joins a cluster, and where its metrics are.
//
// Thread rule: pure, but for the incarnation, which is another one with each call.
#pragma once

#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "checkpoint/roots.h"
#include "data/roots.h"
#include "proto/messages.h"
#include "security/metrics_port.h"
#include "worker/agent.h"

namespace meshwright::worker {

// But for its metrics.
proto::Register RegisterOf(const AgentOptions& options, const data::Roots& roots,
                           const checkpoint::Roots& checkpoint_roots, int data_port);

// By TLS where others reach it and the worker has an identity, as the controller's.
security::MetricsPortOptions MetricsPortOf(const AgentOptions& options);
// "HOST:PORT", with "https://" before it where they are by TLS.
std::string MetricsAddressOf(const AgentOptions& options, int port);

// The controller there has let it in: the cluster and its term stand in `info` from then on.
// Errors: kFailedPrecondition: another cluster than before, or an older controller than one seen.
Status TakeWelcome(const std::string& controller, Term term, const proto::Welcome& welcome,
                   proto::Register& info);

}  // namespace meshwright::worker
