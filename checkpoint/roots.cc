#include "checkpoint/roots.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/file.h"

namespace meshwright::checkpoint {

namespace fs = std::filesystem;

Result<Roots> Roots::Open(std::vector<ir::DataRoot> roots) {
  std::set<std::string> names;
  for (const ir::DataRoot& root : roots) {
    if (!names.insert(root.name).second) {
      return Fail(
          InvalidArgument(fmt::format("two checkpoint roots have the name '{}'", root.name)));
    }
    // A name that was mistyped, or a disk that is not mounted, would be made in silence.
    const fs::path above = fs::absolute(root.path).lexically_normal().parent_path();
    if (!FileExists(root.path) && !FileExists(above.string())) {
      return Fail(InvalidArgument(
          fmt::format("checkpoint root {}: there is no folder {}; make it, or mend the name",
                      root.path, above.string())));
    }
    MW_TRY(MakeDirs(root.path).WithContext("checkpoint root"));
  }
  Roots opened;
  opened.roots_ = std::move(roots);
  return opened;
}

Result<std::string> Roots::PathOf(const ir::FolderRef& folder) const {
  MW_TRY(ir::CheckFolder(folder));
  const auto root = std::find_if(roots_.begin(), roots_.end(), [&](const ir::DataRoot& each) {
    return folder.root.empty() || each.name == folder.root;
  });
  if (root == roots_.end()) {
    std::vector<std::string> known;
    for (const ir::DataRoot& each : roots_) known.push_back(each.name);
    return Fail(FailedPrecondition(fmt::format(
        "there is no checkpoint root{} here (known: {}); start the worker with --checkpoint-root "
        "{}FOLDER, of a folder that all workers share",
        folder.root.empty() ? "" : fmt::format(" '{}'", folder.root),
        known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
        folder.root.empty() ? "" : folder.root + "=")));
  }
  std::error_code error;
  const fs::path base = fs::weakly_canonical(root->path, error);
  const fs::path path = fs::weakly_canonical(fs::path(root->path) / folder.path, error);
  const auto [end, below] = std::mismatch(base.begin(), base.end(), path.begin(), path.end());
  if (error || end != base.end()) {
    return Fail(PermissionDenied(fmt::format("'{}' leads out of the checkpoint root {}, by a link",
                                             folder.path, root->path)));
  }
  return (fs::path(root->path) / folder.path).lexically_normal().string();
}

}  // namespace meshwright::checkpoint
