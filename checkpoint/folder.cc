#include "checkpoint/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
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
constexpr const char* kBestName = "best";  // as latest, of the newest save that was the best

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

bool IsBest(const Manifest& manifest) { return manifest.cause.starts_with("best"); }

Status WriteMarks(const std::string& folder, const Manifest& manifest) {
  const std::string name = StepName(manifest.step) + "\n";
  if (IsBest(manifest)) MW_TRY(WriteFileAtomic(folder + "/" + kBestName, name));
  return WriteFileAtomic(folder + "/" + kLatestName, name);
}

// By somebody who died before anyone heard of it.
bool IsCommitted(const std::string& folder, const std::string& temporary,
                 const Manifest& manifest) {
  if (FileExists(temporary)) return false;
  const auto there = ReadFile(folder + "/" + StepName(manifest.step) + "/" + kManifestName);
  return there.has_value() && *there == FormatManifest(manifest);
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

bool IsTemporaryName(std::string_view name) {
  const size_t mark = name.find(kTemporary);
  if (mark == std::string_view::npos || !StepOfName(name.substr(0, mark))) return false;
  const std::string_view save = name.substr(mark + kTemporary.size());
  return !save.empty() && std::all_of(save.begin(), save.end(), [](unsigned char c) {
    return std::isdigit(c) != 0 || c == '-';
  });
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

bool IsShardName(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos || name.size() > 255) return false;
  const std::string_view folder = name.substr(0, slash);
  const std::string_view file = name.substr(slash + 1);
  const bool plain = std::all_of(file.begin(), file.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  return (folder == "sharded" || folder == "state") && plain && !file.empty() && file[0] != '.';
}

Result<ShardWriter> ShardWriter::Create(const std::string& temporary, const std::string& name,
                                        int64_t bytes) {
  if (!IsShardName(name) || bytes < 0) {
    return Fail(InvalidArgument(fmt::format("'{}' of {} bytes is no shard", name, bytes)));
  }
  std::string path = temporary + "/" + name;
  MW_TRY(MakeDirs(FolderOf(path)));
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return Fail(OsError(errno, "create " + path));
  // A full disk is found before it is filled.
  if (const int error = ::posix_fallocate(fd.get(), 0, std::max<int64_t>(bytes, 1)); error != 0) {
    return Fail(OsError(error, fmt::format("reserve {} bytes for {}", bytes, path)));
  }
  MW_FAILPOINT("checkpoint.shard.before-write");
  return ShardWriter(std::move(fd), std::move(path), bytes);
}

Status ShardWriter::Append(std::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) > bytes_ - written_) {
    return InvalidArgument(fmt::format("{}: more than its {} bytes", path_, bytes_));
  }
  written_ += static_cast<int64_t>(bytes.size());
  MW_TRY(WriteAll(fd_.get(), bytes, path_));
  MW_FAILPOINT("checkpoint.shard.appended");
  return OkStatus();
}

Status ShardWriter::Sync() {
  return ::fdatasync(fd_.get()) == 0 ? OkStatus() : OsError(errno, "sync " + path_);
}

Status ShardWriter::Finish() {
  if (written_ != bytes_) {
    return DataLoss(fmt::format("{}: {} bytes of {} came", path_, written_, bytes_));
  }
  MW_FAILPOINT("checkpoint.shard.before-sync");
  if (::fsync(fd_.get()) != 0) return OsError(errno, "sync " + path_);
  MW_FAILPOINT("checkpoint.shard.synced");
  return SyncFolder(FolderOf(path_));
}

Status WriteShard(const std::string& temporary, const ShardImage& image) {
  MW_ASSIGN_OR_RETURN(ShardWriter writer, ShardWriter::Create(temporary, image.name, image.bytes));
  MW_TRY(writer.Append(image.header));
  for (const std::span<const std::byte> part : image.parts) {
    MW_TRY(writer.Append({reinterpret_cast<const char*>(part.data()), part.size()}));
  }
  return writer.Finish();
}

Status Commit(const std::string& folder, const std::string& temporary_name,
              const Manifest& manifest, const std::map<std::string, std::string>& files,
              const std::function<Status(const std::string& temporary)>& before_manifest) {
  MW_TRY(CheckManifest(manifest));
  const std::string temporary = folder + "/" + temporary_name;
  if (IsCommitted(folder, temporary, manifest)) return WriteMarks(folder, manifest);
  MW_TRY(CheckFiles(temporary, manifest));
  if (before_manifest) MW_TRY(before_manifest(temporary));
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
  return WriteMarks(folder, manifest);
}

Result<std::vector<int64_t>> StepsBeyond(const std::string& folder, int64_t keep) {
  if (keep <= 0) return std::vector<int64_t>();
  MW_ASSIGN_OR_RETURN(std::vector<int64_t> steps, ListSteps(folder));
  steps.erase(steps.begin(),
              steps.begin() + std::min(static_cast<std::ptrdiff_t>(keep), std::ssize(steps)));
  const auto best = ReadFile(folder + "/" + kBestName);
  if (best.has_value()) {
    std::erase_if(steps, [&](int64_t step) { return *best == StepName(step) + "\n"; });
  }
  return steps;
}

Status Prune(const std::string& folder, int64_t keep, const std::string& busy) {
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    const bool leftover = name.starts_with(kStepPrefix) &&
                          (name.find(kTemporary) != std::string::npos || name.ends_with(kReplaced));
    if (leftover && name != busy) MW_TRY(RemoveAll(folder + "/" + name));
  }
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsBeyond(folder, keep));
  for (const int64_t step : steps) MW_TRY(Remove(folder, step));
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
