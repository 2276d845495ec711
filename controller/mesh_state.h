// What a mesh generation is made of: its order, its members, its phase and its launches.
//
// controller/mesh_life.h alone changes a MeshState; everybody may read it. Thread rule: values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "controller/cause_election.h"
#include "controller/checkpoint_order.h"
#include "controller/client_asks.h"
#include "controller/core_options.h"
#include "controller/events.h"
#include "controller/ids.h"
#include "controller/launches_under_way.h"
#include "controller/save_table.h"
#include "controller/snapshot_start.h"
#include "controller/states.h"
#include "proto/messages.h"

namespace meshwright::controller {

// A worker's part of the mesh.
struct MeshMember {
  std::string worker;
  SessionId session{0};
  std::vector<int> ranks;
  std::vector<int> local_devices;  // of the ranks, in their order
  bool loaded = false;
  bool connected = false;
  bool saved = false;
  bool freed = false;           // confirmed, or gone
  std::string invitation = {};  // once loaded
  bool away = false;            // it holds its part and has no session, or has not said what it has
  std::optional<proto::ResumeMesh> held = {};  // what it has said, until the mesh is taken up
};

// What is to be made: a plan on members, in the order of their first ranks.
struct MeshOrder {
  MeshGeneration gen;
  JobId job{0};
  PlannedJob plan;
  StateNames state;  // tensors that its devices keep between programs
  std::vector<MeshMember> members;
  std::string kind;      // of its devices
  proto::LoadMesh load;  // what all members are told; its `ranks` are empty
  CheckpointOrder checkpoints;
  std::shared_ptr<const SnapshotStart> snapshots = {};  // that its state starts from; null: none
  std::vector<checkpoint::BoxCopy> copies = {};         // of its snapshots
  std::set<std::string> keepers = {};  // workers beside the members that may get copies
  std::vector<std::vector<std::string>> snapshot_slots = {};  // by rank; none: it takes none
};

struct MeshState {
  MeshOrder order;
  MeshLimits limits;
  std::vector<MeshMember> members;
  MeshPhase phase = MeshPhase::kLoading;
  int64_t phase_since_ms = 0;
  LaunchesUnderWay launches;
  CauseElection election;  // while aborting
  SaveTable saves;
  int64_t save_since_ms = 0;
  int64_t unheard = 0;  // as CheckpointOrder
  int64_t aborting_since_ms = 0;

  // No member is away.
  bool AllHere() const;
  bool HasRoom() const {
    return phase == MeshPhase::kActive && AllHere() &&
           launches.size() < static_cast<size_t>(limits.launch_window);
  }
  // Its devices come back in a moment.
  bool IsEnding() const { return phase == MeshPhase::kReleasing || phase == MeshPhase::kAborting; }
  // Whether a member that has not let go speaks by this session.
  bool Hears(SessionId session) const;
  // Whether all members have come so far.
  bool All(bool MeshMember::*done) const;
};

}  // namespace meshwright::controller
