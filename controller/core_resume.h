// Steps of the core about meshes that a worker holds while it has no session.
//
// Which of them go on, the controller says when the worker registers: those of runs that go on, be
// it that the worker's session broke, or that an earlier controller had them. Thread rule: the
// core's thread.
#pragma once

#include <vector>

#include "controller/core_state.h"

namespace meshwright::controller {

// Whether a mesh waits for the worker, should its session break.
bool HoldsMesh(const Worker& worker, const CoreState& core);
// The worker's session broke: active meshes wait for it, others fail.
void PartFromMeshes(const Worker& worker, const proto::RuntimeError& why, CoreState& core,
                    Context& context);
// Meshes that end: a worker that comes back drops them before it does anything else.
void LeaveEndingMeshes(const Worker& worker, CoreState& core, Context& context);
// Meshes of its session `before` that the worker does not have any more.
void LoseUnlisted(SessionId before, const Worker& worker, CoreState& core, Context& context);
// The meshes that the worker has registered with and that go on; it drops the others.
std::vector<MeshGeneration> TakeBack(const Worker& worker, CoreState& core, Context& context);

}  // namespace meshwright::controller
