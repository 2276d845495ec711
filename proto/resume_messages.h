// What controller and workers tell each other about meshes that a worker holds while it has no
// session: the controller died, or the connection broke.
//
// Register names the meshes that are held, Welcome those of them that go on; the worker drops the
// rest, and says of each of the others, once and before anything else of it, what it was told and
// what came of that (ResumeMesh). Thread rule: values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "proto/launch_done.h"
#include "proto/state_messages.h"

namespace meshwright::proto {

struct HeldMesh {
  MeshGeneration mesh_gen{0};
  JobId job{0};
  friend bool operator==(const HeldMesh&, const HeldMesh&) = default;
};

enum class ToldKind : uint8_t { kProgram, kRead, kWrite, kSave, kRestore };
inline constexpr int kToldKindCount = 5;

// A launch that a worker has accepted, without what a client brought for it.
struct ToldLaunch {
  LaunchSeq seq{0};
  ToldKind kind = ToldKind::kProgram;
  uint32_t program = 0;    // index in LoadMesh.programs, of kProgram
  int64_t first_step = 0;  // of kSave: steps that are done
  int64_t count = 0;
  bool asked = false;  // it brought inputs, or its tensors were to come back: a client's
  friend bool operator==(const ToldLaunch&, const ToldLaunch&) = default;
};

// More than a worker keeps.
inline constexpr int kMaxToldLaunches = 4096;

struct ResumeMesh {
  MeshGeneration mesh_gen{0};
  LaunchSeq first_seq{1};            // the first launch that is still known
  std::vector<ToldLaunch> launches;  // from that on, in order
  std::vector<LaunchDone> done;      // of those that are done, in order
  std::optional<StateSaved> saved;   // the last one that was said
  std::optional<CheckpointCommitted> committed;
  friend bool operator==(const ResumeMesh&, const ResumeMesh&) = default;
};

}  // namespace meshwright::proto
