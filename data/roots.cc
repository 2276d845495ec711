#include "data/roots.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/os_error.h"

namespace meshwright::data {
namespace {

bool IsRootName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

std::string OfDescriptor(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// The name that the system has for what is open: no links are left in it.
Result<std::string> SystemName(int fd, const std::string& name) {
  std::string path(PATH_MAX, '\0');
  const ssize_t length = ::readlink(OfDescriptor(fd).c_str(), path.data(), path.size());
  if (length < 0) return Fail(OsError(errno, "where is " + name));
  path.resize(static_cast<size_t>(length));
  return path;
}

// A handle that neither reads nor waits: opening a device or a pipe for good could do both.
Result<UniqueFd> OpenHandle(const std::string& path, const std::string& name) {
  UniqueFd handle(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!handle.valid()) return Fail(OsError(errno, "open " + name));
  return handle;
}

Result<UniqueFd> ReadHandle(const UniqueFd& handle, const std::string& name) {
  struct stat info {};
  if (::fstat(handle.get(), &info) != 0) return Fail(OsError(errno, "stat " + name));
  if (S_ISDIR(info.st_mode)) return Fail(OsError(EISDIR, "open " + name));
  if (!S_ISREG(info.st_mode)) {
    return Fail(
        InvalidArgument(fmt::format("{} is no plain file, but a device, pipe or socket", name)));
  }
  UniqueFd file(::open(OfDescriptor(handle.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Fail(OsError(errno, "open " + name));
  return file;
}

}  // namespace

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

std::string PathBelow(const std::string& folder, const std::string& file) {
  const std::string prefix = folder == "/" ? folder : folder + "/";
  return file.size() > prefix.size() && file.compare(0, prefix.size(), prefix) == 0
             ? file.substr(prefix.size())
             : "";
}

Result<ir::DataRoot> ParseRoot(std::string_view text) {
  const size_t mark = text.find('=');
  ir::DataRoot root;
  std::string_view path = text;
  // A path may have a '=' too, but then a '/' stands before it.
  if (mark != std::string_view::npos && text.substr(0, mark).find('/') == std::string_view::npos) {
    root.name = text.substr(0, mark);
    path = text.substr(mark + 1);
    if (!IsRootName(root.name)) {
      return Fail(InvalidArgument(
          fmt::format("root '{}': the name '{}' may have letters, digits, '_', '-' and '.' only",
                      text, root.name)));
    }
  }
  if (path.empty()) {
    return Fail(
        InvalidArgument(fmt::format("root '{}' names no folder; write PATH or NAME=PATH", text)));
  }
  root.path = AbsolutePath(std::string(path));
  if (root.name.empty()) root.name = root.path;
  return root;
}

Result<UniqueFd> OpenPlainFile(const std::string& path, const std::string& name) {
  MW_ASSIGN_OR_RETURN(const UniqueFd handle, OpenHandle(path, name));
  return ReadHandle(handle, name);
}

Result<UniqueFd> OpenLocal(const ir::FileRef& file) {
  return OpenPlainFile(file.blob.name, file.blob.name);
}

Result<Roots> Roots::Open(std::vector<ir::DataRoot> roots) {
  std::set<std::string> names;
  for (const ir::DataRoot& root : roots) {
    if (!names.insert(root.name).second) {
      return Fail(InvalidArgument(fmt::format("two data roots have the name '{}'", root.name)));
    }
    const UniqueFd folder(::open(root.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid()) return Fail(OsError(errno, fmt::format("data root {}", root.path)));
  }
  Roots opened;
  opened.roots_ = std::move(roots);
  return opened;
}

Result<UniqueFd> Roots::OpenFile(const ir::FileRef& file) const {
  const std::string name = fmt::format("'{}' below the data root {}", file.path, file.root);
  const auto root = std::find_if(roots_.begin(), roots_.end(),
                                 [&](const ir::DataRoot& each) { return each.name == file.root; });
  if (root == roots_.end()) {
    std::vector<std::string> known;
    for (const ir::DataRoot& each : roots_) known.push_back(each.name);
    return Fail(FailedPrecondition(fmt::format(
        "{}: this worker has no data root '{}' (it has: {}); start it with --data-root {}{}",
        file.blob.name, file.root,
        known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")), file.root,
        file.root.find('/') == std::string::npos ? "=FOLDER" : "")));
  }
  MW_ASSIGN_OR_RETURN(const UniqueFd folder, OpenHandle(root->path, "data root " + root->path));
  MW_ASSIGN_OR_RETURN(const UniqueFd handle, OpenHandle(root->path + "/" + file.path, name));
  MW_ASSIGN_OR_RETURN(const std::string folder_name, SystemName(folder.get(), name));
  MW_ASSIGN_OR_RETURN(const std::string file_name, SystemName(handle.get(), name));
  if (PathBelow(folder_name, file_name).empty()) {
    return Fail(PermissionDenied(fmt::format(
        "{} leads out of the root, by a link or by '..'; give the worker the root that holds the "
        "file itself",
        name)));
  }
  return ReadHandle(handle, name);
}

}  // namespace meshwright::data
