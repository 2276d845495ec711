#include "ir/checkpoint_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace meshwright::ir {
namespace {

constexpr size_t kMaxPathBytes = 1024;

}  // namespace

Status CheckFolder(const FolderRef& folder) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
  const std::vector<std::string> parts = Split(folder.path, '/');
  const bool upwards = std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part == ".." || part == ".";
  });
  if (!folder.path.starts_with('/') && !upwards && folder.path.size() <= kMaxPathBytes &&
      folder.root.size() <= kMaxPathBytes &&
      std::none_of(folder.path.begin(), folder.path.end(), control)) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "'{}' is no folder below a checkpoint root: it is relative, without '..'", folder.path));
}

}  // namespace meshwright::ir
