#include "checkpoint/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>

#include "base/failpoint.h"
#include "base/file.h"
#include "base/file_io.h"
#include "base/os_error.h"
#include "base/unique_fd.h"

namespace meshwright::checkpoint {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kReplaced = ".old";
constexpr const char* kLatestName = "latest";

Result<std::vector<std::string>> NamesIn(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), &::closedir);
  if (dir == nullptr) {
    if (errno == ENOENT) return std::vector<std::string>();
    return Fail(OsError(errno, "open " + folder));
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get())) names.emplace_back(entry->d_name);
  return names;
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

Status WriteParts(int fd, const ShardImage& image, const std::string& path) {
  MW_TRY(WriteAll(fd, image.header, path));
  for (const std::span<const std::byte> part : image.parts) {
    MW_TRY(WriteAll(fd, {reinterpret_cast<const char*>(part.data()), part.size()}, path));
  }
  return OkStatus();
}

Status CheckFiles(const std::string& temporary, const Manifest& manifest) {
  for (const StoredFile& file : manifest.files) {
    const std::string path = temporary + "/" + file.name;
    const auto bytes = FileSize(path);
    if (bytes.has_value() && *bytes == file.bytes) continue;
    return DataLoss(fmt::format(
        "{} was written with {} bytes by its worker, and here {}: the checkpoint root is not one "
        "folder that all workers of the job share",
        path, file.bytes, bytes.has_value() ? fmt::format("it has {}", *bytes) : "there is none"));
  }
  return OkStatus();
}

// The new name, in one step also where there is one of that name.
Status Rename(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return OkStatus();
  }
  if (errno == EEXIST &&
      ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    return OkStatus();  // the old one has the temporary name now
  }
  // File systems without these flags: a moment without either, which a crash may leave.
  if (errno == EINVAL || errno == ENOSYS || errno == EEXIST) {
    const std::string old = to + std::string(kReplaced);
    MW_TRY(RemoveAll(old));
    if (::rename(to.c_str(), old.c_str()) != 0 && errno != ENOENT) {
      return OsError(errno, "rename " + to);
    }
    if (::rename(from.c_str(), to.c_str()) == 0) return RemoveAll(old);
  }
  return OsError(errno, fmt::format("rename {} to {}", from, to));
}

}  // namespace

std::string StepName(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::string TemporaryName(int64_t step, uint64_t save) {
  return fmt::format("{}{}{}", StepName(step), kTemporary, save);
}

std::optional<int64_t> StepOfName(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.begin(), name.end(), step);
  if (error != std::errc() || end != name.end() || name.size() < 8 || step < 0) return std::nullopt;
  return step;
}

Result<std::vector<int64_t>> ListSteps(const std::string& folder) {
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    const std::optional<int64_t> step = StepOfName(name);
    if (step && FileExists(folder + "/" + name + "/" + kManifestName)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

Status WriteShard(const std::string& temporary, const ShardImage& image) {
  const std::string path = temporary + "/" + image.name;
  MW_TRY(MakeDirs(FolderOf(path)));
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return OsError(errno, "create " + path);
  // A full disk is found before it is filled.
  if (const int error = ::posix_fallocate(fd.get(), 0, std::max<int64_t>(image.bytes, 1));
      error != 0) {
    return OsError(error, fmt::format("reserve {} bytes for {}", image.bytes, path));
  }
  MW_FAILPOINT("checkpoint.shard.before-write");
  MW_TRY(WriteParts(fd.get(), image, path));
  MW_FAILPOINT("checkpoint.shard.before-sync");
  if (::fsync(fd.get()) != 0) return OsError(errno, "sync " + path);
  MW_FAILPOINT("checkpoint.shard.synced");
  return SyncFolder(FolderOf(path));
}

Status Commit(const std::string& folder, const std::string& temporary_name,
              const Manifest& manifest, const std::map<std::string, std::string>& files) {
  MW_TRY(CheckManifest(manifest));
  const std::string temporary = folder + "/" + temporary_name;
  MW_TRY(CheckFiles(temporary, manifest));
  MW_FAILPOINT("checkpoint.commit.before-files");
  for (const auto& [name, bytes] : files) MW_TRY(WriteFileAtomic(temporary + "/" + name, bytes));
  MW_FAILPOINT("checkpoint.commit.before-manifest");
  MW_TRY(WriteFileAtomic(temporary + "/" + kManifestName, FormatManifest(manifest)));
  MW_TRY(SyncFolder(temporary));
  MW_FAILPOINT("checkpoint.commit.before-rename");
  MW_TRY(Rename(temporary, folder + "/" + StepName(manifest.step)));
  MW_FAILPOINT("checkpoint.commit.renamed");
  MW_TRY(SyncFolder(folder));
  MW_TRY(RemoveAll(temporary));
  MW_FAILPOINT("checkpoint.commit.before-latest");
  return WriteFileAtomic(folder + "/" + kLatestName, StepName(manifest.step) + "\n");
}

Status Prune(const std::string& folder, int64_t keep, const std::string& busy) {
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    const bool leftover = name.starts_with(kStepPrefix) &&
                          (name.find(kTemporary) != std::string::npos || name.ends_with(kReplaced));
    if (leftover && name != busy) MW_TRY(RemoveAll(folder + "/" + name));
  }
  if (keep <= 0) return OkStatus();
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListSteps(folder));
  for (size_t i = static_cast<size_t>(keep); i < steps.size(); ++i)
    MW_TRY(Remove(folder, steps[i]));
  return OkStatus();
}

Status Remove(const std::string& folder, int64_t step) {
  const std::string path = folder + "/" + StepName(step);
  const std::string gone = folder + "/" + TemporaryName(step, 0);
  if (!FileExists(path + "/" + kManifestName)) {
    return NotFound(fmt::format("there is no checkpoint {}", path));
  }
  MW_TRY(RemoveAll(gone));
  MW_FAILPOINT("checkpoint.remove.before-rename");
  if (::rename(path.c_str(), gone.c_str()) != 0) return OsError(errno, "rename " + path);
  MW_TRY(SyncFolder(folder));
  MW_FAILPOINT("checkpoint.remove.before-delete");
  return RemoveAll(gone);
}

}  // namespace meshwright::checkpoint
