// Where the devices of a mesh are, as their worker's supervisor sees it without asking them: it
// goes with the heartbeats, also when the mesh's process does not answer.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace meshwright::proto {

// Of one heartbeat; what is beyond is not said.
inline constexpr size_t kMostMarkedMeshes = 64;
inline constexpr size_t kMostMarkedRanks = 64;
inline constexpr size_t kMostMarkedGroups = 16;

// Calls of collectives of one group, since the mesh began.
struct GroupMarks {
  std::string name;  // equal on all members
  int64_t entered = 0;
  int64_t done = 0;
  friend bool operator==(const GroupMarks&, const GroupMarks&) = default;
};

struct RankMarks {
  int32_t rank = -1;
  bool in_step = false;  // else it has ended the step below, and waits for what comes
  std::string program;   // may be cut
  int64_t step = -1;
  int64_t steps_begun = 0;  // of all programs, since the mesh began
  int64_t instruction = 0;
  int64_t age_ms = 0;        // of the instruction
  bool awaits_rows = false;  // of files or of host actors
  std::string state;         // of its thread, as the kernel calls it: "R", "S", "T"; empty: unknown
  std::vector<GroupMarks> groups;
  friend bool operator==(const RankMarks&, const RankMarks&) = default;
};

struct MeshMarks {
  MeshGeneration mesh_gen{0};
  std::string doing;   // "while it loaded the programs"
  int64_t cpu_ms = 0;  // processor time of its process
  std::vector<RankMarks> ranks;
  int32_t pid = 0;  // of its process, on the worker's host; 0: not known
  friend bool operator==(const MeshMarks&, const MeshMarks&) = default;
};

}  // namespace meshwright::proto
