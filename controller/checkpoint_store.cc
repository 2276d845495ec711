#include "controller/checkpoint_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "base/failpoint.h"
#include "base/file.h"
#include "base/guard.h"
#include "base/os_error.h"
#include "base/text.h"
#include "checkpoint/export.h"
#include "proto/job_codec.h"

namespace meshwright::controller {

namespace {

// Of a save: its mesh generation and its launch.
std::pair<uint64_t, uint64_t> SaveOf(std::string_view temporary) {
  std::pair<uint64_t, uint64_t> save;
  const std::string_view numbers = temporary.substr(temporary.rfind(".tmp-") + 5);
  const auto first = std::from_chars(numbers.data(), numbers.data() + numbers.size(), save.first);
  const char* const end = numbers.data() + numbers.size();
  if (first.ptr != end) (void)std::from_chars(first.ptr + 1, end, save.second);
  return save;
}

// What saves have left that came to no end, up to this one: a later one may be on its way while a
// slow disk commits this.
Status RemoveLeftovers(const std::string& folder, const std::string& committed) {
  std::error_code error;
  std::vector<std::string> leftovers;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool over = checkpoint::IsTemporaryName(name) && SaveOf(name) <= SaveOf(committed);
    if (over) leftovers.push_back(entry.path().string());
  }
  for (const std::string& path : leftovers) MW_TRY(RemoveAll(path));
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<CheckpointStore>> CheckpointStore::Open(const std::string& root,
                                                               int64_t keep_free_bytes) {
  MW_ASSIGN_OR_RETURN(checkpoint::Roots roots,
                      checkpoint::Roots::Open({{ir::kControllerRoot, root}}));
  return std::unique_ptr<CheckpointStore>(new CheckpointStore(std::move(roots), keep_free_bytes));
}

Result<std::string> CheckpointStore::PathOf(const std::string& below) const {
  if (below.empty()) return Fail(InvalidArgument("the root itself holds no checkpoints"));
  return roots_.PathOf({ir::kControllerRoot, below});
}

// The database and the logs of jobs may be on the same disk: they need room when a checkpoint
// fails, too.
Status CheckpointStore::CheckRoom(int64_t bytes) const {
  struct statvfs disk {};
  if (::statvfs(root().c_str(), &disk) != 0) return OsError(errno, "look at the disk of " + root());
  const auto free_bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  if (free_bytes - bytes >= keep_free_bytes_) return OkStatus();
  return ResourceExhausted(fmt::format(
      "the controller's disk has {} left for checkpoints in {}, {} are needed and {} "
      "are kept free; remove some, or start it with --checkpoint-root of a larger disk",
      FormatBytes(free_bytes), root(), FormatBytes(bytes), FormatBytes(keep_free_bytes_)));
}

Result<checkpoint::ShardWriter> CheckpointStore::Create(const std::string& folder,
                                                        const std::string& temporary,
                                                        const std::string& name,
                                                        int64_t bytes) const {
  if (!checkpoint::IsTemporaryName(temporary)) {
    return Fail(InvalidArgument(fmt::format("'{}' is no name of a save", temporary)));
  }
  MW_ASSIGN_OR_RETURN(const std::string path, PathOf(folder + "/" + temporary));
  MW_TRY(CheckRoom(bytes));
  return checkpoint::ShardWriter::Create(path, name, bytes);
}

Result<CheckpointStore::OpenFile> CheckpointStore::OpenToRead(const std::string& checkpoint,
                                                              const std::string& name) const {
  const bool small = name == checkpoint::kManifestName || name == checkpoint::kJobName;
  if (!small && !checkpoint::IsShardName(name)) {
    return Fail(InvalidArgument(fmt::format("'{}' is no file of a checkpoint", name)));
  }
  MW_ASSIGN_OR_RETURN(const std::string folder, PathOf(checkpoint));
  OpenFile file{UniqueFd(), folder + "/" + name, 0};
  file.fd = UniqueFd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.fd.valid()) return Fail(OsError(errno, file.path));
  MW_ASSIGN_OR_RETURN(file.bytes, FileSize(file.path));
  return file;
}

void CheckpointStore::Discard(const std::string& folder, const std::string& temporary) const {
  if (!checkpoint::IsTemporaryName(temporary)) return;
  const Result<std::string> path = PathOf(folder + "/" + temporary);
  if (path.has_value()) (void)RemoveAll(*path);
}

Status CheckpointStore::Commit(const proto::CommitCheckpoint& commit) const {
  if (!checkpoint::IsTemporaryName(commit.temporary)) {
    return InvalidArgument(fmt::format("'{}' is no name of a save", commit.temporary));
  }
  MW_ASSIGN_OR_RETURN(const std::string folder, PathOf(commit.folder.path));
  MW_TRY(PathOf(commit.folder.path + "/" + commit.temporary));
  MW_ASSIGN_OR_RETURN(const checkpoint::Manifest manifest,
                      checkpoint::ParseManifest(commit.manifest));
  const auto also = [&](const std::string& temporary) -> Status {
    if (commit.export_dtype.empty()) return OkStatus();
    MW_ASSIGN_OR_RETURN(const ir::DType dtype, ir::ParseDType(commit.export_dtype));
    MW_ASSIGN_OR_RETURN(const ir::JobRequest job, proto::DecodeJob(commit.job));
    return checkpoint::ExportSave(temporary, manifest, job.main().graph, dtype);
  };
  MW_TRY(checkpoint::Commit(folder, commit.temporary, manifest,
                            {{checkpoint::kJobName, commit.job}}, also));
  MW_FAILPOINT("controller.commit.before-prune");
  MW_TRY(RemoveLeftovers(folder, commit.temporary));
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> steps,
                      checkpoint::StepsBeyond(folder, commit.keep));
  for (const int64_t step : steps) MW_TRY(checkpoint::Remove(folder, step));
  return OkStatus();
}

proto::CheckpointCommitted CheckpointStore::CommitGuarded(
    const proto::CommitCheckpoint& commit) const {
  const Status status = Guarded("committing a checkpoint", [&] { return Commit(commit); });
  if (!status.ok()) Discard(commit.folder.path, commit.temporary);
  return {commit.mesh_gen, commit.save, MakeError(proto::ErrorKind::kSaveFailed, status)};
}

Result<std::vector<int64_t>> CheckpointStore::Steps(const std::string& folder) const {
  MW_ASSIGN_OR_RETURN(const std::string path, PathOf(folder));
  return checkpoint::ListSteps(path);
}

Status CheckpointStore::Remove(const std::string& folder, int64_t step) const {
  MW_ASSIGN_OR_RETURN(const std::string path, PathOf(folder));
  return checkpoint::Remove(path, step);
}

}  // namespace meshwright::controller
