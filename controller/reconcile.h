// Reconcile: what the members of a mesh were told to run under an earlier controller, put together.
//
// Members work in order, and each knows its last launches whole. A launch that only some of them
// have heard of is issued again to the others by the same number: what it is follows from what the
// others know, unless a client brought something for it. Thread rule: pure functions.
#pragma once

#include <vector>

#include "base/result.h"
#include "controller/driver.h"
#include "controller/mesh_state.h"

namespace meshwright::controller {

struct KnownLaunches {
  LaunchSeq first{1};                   // those before are done
  std::vector<ResumedLaunch> launches;  // from that on
};

// The last launch that a member has heard of.
LaunchSeq HeardBy(const proto::ResumeMesh& said);

// REQUIRES that each member has said what it holds. Errors: kAborted: it does not fit together, or
// a client's call was under way.
Result<KnownLaunches> Reconcile(const MeshOrder& order, const std::vector<MeshMember>& members);

}  // namespace meshwright::controller
