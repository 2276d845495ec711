// Files of checkpoints that lie with the controller, as workers and clients ask for them.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"

namespace meshwright::proto {

// Who asks is a member of this mesh.
struct MeshKey {
  MeshGeneration mesh_gen{0};
  std::string key;  // LoadMesh::files_key
};

// A file of a save, whose bytes follow.
struct ShardHead {
  MeshKey mesh;
  std::string folder;     // of the job's checkpoints
  std::string temporary;  // as SaveState says
  std::string name;
  int64_t bytes = 0;
};

// A part of a file of a checkpoint.
struct FileRange {
  MeshKey mesh;
  std::string checkpoint;  // the folder of one step
  std::string name;
  int64_t offset = 0;
  int64_t count = -1;  // below 0: to the end
};

}  // namespace meshwright::proto
