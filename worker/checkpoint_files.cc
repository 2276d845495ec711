#include "worker/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "base/file.h"
#include "checkpoint/export.h"
#include "checkpoint/folder.h"
#include "proto/job_codec.h"

namespace meshwright::worker {
namespace {

// The files of one checkpoint that lies with the controller. Each range is a call of its own: where
// the connection breaks, the reader fails at once and says where.
class ControllerSource final : public checkpoint::ByteSource {
 public:
  ControllerSource(ControllerLink& link, proto::MeshKey mesh, std::string checkpoint,
                   std::function<bool()> cancelled)
      : link_(link),
        mesh_(std::move(mesh)),
        checkpoint_(std::move(checkpoint)),
        cancelled_(std::move(cancelled)) {}

  Status Read(const std::string& file, int64_t offset, std::span<std::byte> into) override {
    size_t at = 0;
    const auto take = [&](std::string_view bytes) -> Status {
      if (bytes.size() > into.size() - at) return DataLoss(file + ": more came than was asked for");
      std::transform(bytes.begin(), bytes.end(), into.begin() + static_cast<ptrdiff_t>(at),
                     [](char c) { return static_cast<std::byte>(c); });
      at += bytes.size();
      return OkStatus();
    };
    MW_TRY(link_.ReadFile(cancelled_, Range(file, offset, static_cast<int64_t>(into.size())), take)
               .WithContext("the controller's " + file));
    if (at == into.size()) return OkStatus();
    return DataLoss(fmt::format("{}: {} of {} bytes came", file, at, into.size()));
  }

  Result<std::string> ReadAll(const std::string& file) override {
    std::string all;
    const auto take = [&](std::string_view bytes) -> Status {
      all += bytes;
      return OkStatus();
    };
    MW_TRY(link_.ReadFile(cancelled_, Range(file, 0, -1), take)
               .WithContext("the controller's " + file));
    return all;
  }

 private:
  proto::FileRange Range(const std::string& file, int64_t offset, int64_t count) const {
    return {mesh_, checkpoint_, file, offset, count};
  }

  ControllerLink& link_;
  const proto::MeshKey mesh_;
  const std::string checkpoint_;
  const std::function<bool()> cancelled_;
};

}  // namespace

// ---- Below roots --------------------------------------------------------------------------------

Result<std::string> FolderFiles::TemporaryOf(const ir::FolderRef& folder,
                                             const std::string& name) const {
  return roots_.PathOf({folder.root, folder.path + "/" + name});
}

Status FolderFiles::Write(const ir::FolderRef& folder, const std::string& temporary,
                          const checkpoint::ShardImage& image) {
  MW_ASSIGN_OR_RETURN(const std::string path, TemporaryOf(folder, temporary));
  const Status written = checkpoint::WriteShard(path, image);
  // Nothing comes of this save: what is there of it only fills the disk.
  if (!written.ok()) (void)RemoveAll(path);
  return written;
}

Status FolderFiles::Commit(const proto::CommitCheckpoint& message) {
  MW_ASSIGN_OR_RETURN(const std::string folder, roots_.PathOf(message.folder));
  MW_TRY(TemporaryOf(message.folder, message.temporary));
  MW_ASSIGN_OR_RETURN(const checkpoint::Manifest manifest,
                      checkpoint::ParseManifest(message.manifest));
  const auto also = [&](const std::string& temporary) -> Status {
    if (message.export_dtype.empty()) return OkStatus();
    MW_ASSIGN_OR_RETURN(const ir::DType dtype, ir::ParseDType(message.export_dtype));
    MW_ASSIGN_OR_RETURN(const ir::JobRequest job, proto::DecodeJob(message.job));
    return checkpoint::ExportSave(temporary, manifest, job.main().graph, dtype);
  };
  if (const Status committed = checkpoint::Commit(folder, message.temporary, manifest,
                                                  {{checkpoint::kJobName, message.job}}, also);
      !committed.ok()) {
    (void)RemoveAll(folder + "/" + message.temporary);
    return committed;
  }
  MW_FAILPOINT("executor.commit.before-prune");
  return checkpoint::Prune(folder, message.keep, "");
}

Result<std::unique_ptr<checkpoint::ByteSource>> FolderFiles::Open(const ir::FolderRef& checkpoint) {
  MW_ASSIGN_OR_RETURN(const std::string path, roots_.PathOf(checkpoint));
  return std::unique_ptr<checkpoint::ByteSource>(std::make_unique<checkpoint::FolderSource>(path));
}

// ---- With the controller ------------------------------------------------------------------------

Status ControllerFiles::Write(const ir::FolderRef& folder, const std::string& temporary,
                              const checkpoint::ShardImage& image) {
  std::vector<std::string_view> parts = {image.header};
  for (const std::span<const std::byte> part : image.parts) {
    parts.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return link_.PutShard(cancelled_, {mesh_, folder.path, temporary, image.name, image.bytes},
                        parts);
}

Status ControllerFiles::Commit(const proto::CommitCheckpoint&) {
  return FailedPrecondition("the controller commits what lies with it, and asks nobody to");
}

Result<std::unique_ptr<checkpoint::ByteSource>> ControllerFiles::Open(
    const ir::FolderRef& checkpoint) {
  return std::unique_ptr<checkpoint::ByteSource>(
      std::make_unique<ControllerSource>(link_, mesh_, checkpoint.path, cancelled_));
}

}  // namespace meshwright::worker
