// Checkpoint roots: the folders below which a worker writes and reads checkpoints.
//
//   meshwright worker --checkpoint-root /mnt/nfs/runs --checkpoint-root fast=/scratch
//
// Workers of one job share the folder: each writes what its devices hold, and one of them makes a
// checkpoint of it. A path below a root may not leave it, by ".." or by links.
//
// Thread rule: immutable.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/checkpoint_spec.h"
#include "ir/data_spec.h"

namespace meshwright::checkpoint {

class Roots {
 public:
  Roots() = default;
  // Makes the folders. Errors: kInvalidArgument: two of one name; those of the system.
  static Result<Roots> Open(std::vector<ir::DataRoot> roots);

  const std::vector<ir::DataRoot>& all() const { return roots_; }
  // Where the folder is, whether or not it is there yet. Errors: kFailedPrecondition: there is no
  // such root, and how a worker gets one; kPermissionDenied: the path leads out of it.
  Result<std::string> PathOf(const ir::FolderRef& folder) const;

 private:
  std::vector<ir::DataRoot> roots_;
};

}  // namespace meshwright::checkpoint
