#include "data/paths.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/os_error.h"

namespace meshwright::data {
namespace {

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::vector<std::string> Matches(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) return {};
  std::vector<std::string> found;
  glob_t matches = {};
  if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
    found.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  }
  ::globfree(&matches);
  std::sort(found.begin(), found.end());
  return found;
}

Result<std::vector<std::string>> FilesOf(const std::string& folder, const std::string& extension) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::filesystem::path& path = entry.path();
    std::error_code ignored;
    if (path.filename().string().front() == '.' || !entry.is_regular_file(ignored)) continue;
    if (extension.empty() || path.extension() == extension) files.push_back(path.string());
  }
  if (error) return Fail(OsError(error.value(), "list " + folder));
  std::sort(files.begin(), files.end());
  if (!files.empty()) return files;
  return Fail(InvalidArgument(fmt::format("the folder {} has no {}files", folder,
                                          extension.empty() ? "" : extension + " ")));
}

}  // namespace

std::string ResolvePath(const std::string& path, const std::string& folder) {
  if (folder.empty() || path.empty() || path.front() == '/') return path;
  const std::string below = (std::filesystem::path(folder) / path).lexically_normal().string();
  return Exists(below) || !Matches(below).empty() ? below : path;
}

Result<std::vector<std::string>> ExpandPath(const std::string& path, const std::string& folder,
                                            const std::string& extension) {
  if (path.empty()) return Fail(InvalidArgument("the path is empty"));
  const std::string resolved = ResolvePath(path, folder);
  std::error_code error;
  if (std::filesystem::is_directory(resolved, error)) return FilesOf(resolved, extension);
  if (Exists(resolved)) return std::vector<std::string>{resolved};
  std::vector<std::string> matches = Matches(resolved);
  if (!matches.empty()) return matches;
  std::string looked = resolved;
  if (path.front() != '/' && !folder.empty()) {
    looked = fmt::format("{} (below {} and below the working folder)", path, folder);
  }
  if (path.find_first_of("*?[") != std::string::npos) {
    return Fail(NotFound(fmt::format("nothing matches {}", looked)));
  }
  return Fail(OsError(ENOENT, looked));
}

}  // namespace meshwright::data
