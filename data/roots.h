// Data roots: the folders below which a worker reads files in place.
//
//   meshwright worker --data-root /data --data-root corpora=/mnt/nfs/corpora
//
// A path below a root may not leave it, by ".." or by links: what was opened is compared with the
// root by the names that the system has for both, before anything is read. Nothing but plain files
// is opened.
//
// Thread rule: immutable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "ir/data_spec.h"

namespace meshwright::data {

// Of a data root or a checkpoint root: "PATH" or "NAME=PATH"; a relative path is below the working
// folder. The name of a root without one is its path. Errors: kInvalidArgument: empty, or a name
// with other characters than letters, digits, '_', '-' and '.'.
Result<ir::DataRoot> ParseRoot(std::string_view text);

// "/a/b" -> "/", "/a", ...: absolute and without "." and "..", by the text alone.
std::string AbsolutePath(const std::string& path);

// The path of `file` below `folder`, both absolute; nothing when it is not below it.
std::string PathBelow(const std::string& folder, const std::string& file);

// A plain file. `name` is for messages. Errors: kNotFound, kPermissionDenied, kInvalidArgument: a
// folder, a device, a pipe.
Result<UniqueFd> OpenPlainFile(const std::string& path, const std::string& name);

// A file of a stream that DescribeFiles made, where this process found it.
Result<UniqueFd> OpenLocal(const ir::FileRef& file);

class Roots {
 public:
  Roots() = default;
  // Errors: kInvalidArgument: two roots of one name, no folder; kNotFound, kPermissionDenied.
  static Result<Roots> Open(std::vector<ir::DataRoot> roots);

  const std::vector<ir::DataRoot>& all() const { return roots_; }
  // A file in place. Errors: kFailedPrecondition: no root of this name, says how to start a worker
  // with it; kPermissionDenied: the path leads out of the root; those of OpenPlainFile.
  Result<UniqueFd> OpenFile(const ir::FileRef& file) const;

 private:
  std::vector<ir::DataRoot> roots_;
};

}  // namespace meshwright::data
