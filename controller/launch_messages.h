// What the members of a mesh are told of a launch.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "controller/mesh_state.h"
#include "controller/mesh_work.h"
#include "proto/messages.h"

namespace meshwright::controller {

// One message per member, in their order. Of what a client brings a member gets the rows that its
// devices read, and of the state it is asked for what they hold.
std::vector<proto::DownBody> LaunchMessages(const MeshState& mesh, LaunchSeq seq,
                                            const MeshWork& work);
// What they are told to write at the end; no ranks: the member has nothing to write.
proto::SaveWeights SaveMessage(const MeshState& mesh, const MeshMember& member);
// And to load at the beginning.
proto::LoadMesh LoadMessage(const MeshState& mesh, const MeshMember& member);

}  // namespace meshwright::controller
