// Where the files of checkpoints are, as a member of a mesh sees it: in a folder below a root of
// its worker, or with the controller.
//
// Thread rule: thread-safe; what Open gives is as thread-safe as checkpoint::ByteSource wants.
// Ownership: what a place is made of outlives it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "checkpoint/reader.h"
#include "checkpoint/roots.h"
#include "checkpoint/shard.h"
#include "ir/checkpoint_spec.h"
#include "proto/file_messages.h"
#include "proto/messages.h"
#include "worker/link.h"

namespace meshwright::worker {

class CheckpointFiles {
 public:
  virtual ~CheckpointFiles() = default;
  // Writes a file of the save that goes to `temporary`, below the folder of the job; durable on
  // return. Errors: kResourceExhausted: the disk is full; those of the place, naming the file.
  virtual Status Write(const ir::FolderRef& folder, const std::string& temporary,
                       const checkpoint::ShardImage& image) = 0;
  // Makes a checkpoint of what all members have written. Errors: those of checkpoint::Commit.
  virtual Status Commit(const proto::CommitCheckpoint& message) = 0;
  // The files of one checkpoint. Errors: there is no such place.
  virtual Result<std::unique_ptr<checkpoint::ByteSource>> Open(const ir::FolderRef& checkpoint) = 0;
};

// Below the roots of the worker, which all members of the mesh see.
class FolderFiles final : public CheckpointFiles {
 public:
  explicit FolderFiles(const checkpoint::Roots& roots) : roots_(roots) {}
  Status Write(const ir::FolderRef& folder, const std::string& temporary,
               const checkpoint::ShardImage& image) override;
  Status Commit(const proto::CommitCheckpoint& message) override;
  Result<std::unique_ptr<checkpoint::ByteSource>> Open(const ir::FolderRef& checkpoint) override;

 private:
  // The name comes from outside and may not lead anywhere else.
  Result<std::string> TemporaryOf(const ir::FolderRef& folder, const std::string& name) const;

  const checkpoint::Roots& roots_;
};

// With the controller, which commits by itself.
class ControllerFiles final : public CheckpointFiles {
 public:
  // cancelled: asked while bytes move.
  ControllerFiles(ControllerLink& link, proto::MeshKey mesh, std::function<bool()> cancelled)
      : link_(link), mesh_(std::move(mesh)), cancelled_(std::move(cancelled)) {}
  Status Write(const ir::FolderRef& folder, const std::string& temporary,
               const checkpoint::ShardImage& image) override;
  Status Commit(const proto::CommitCheckpoint& message) override;
  Result<std::unique_ptr<checkpoint::ByteSource>> Open(const ir::FolderRef& checkpoint) override;

 private:
  ControllerLink& link_;
  const proto::MeshKey mesh_;
  const std::function<bool()> cancelled_;
};

// Both, each for the folders that are its.
class AllCheckpointFiles final : public CheckpointFiles {
 public:
  AllCheckpointFiles(const checkpoint::Roots& roots, ControllerLink& link, proto::MeshKey mesh,
                     std::function<bool()> cancelled)
      : folders_(roots), controller_(link, std::move(mesh), std::move(cancelled)) {}
  Status Write(const ir::FolderRef& folder, const std::string& temporary,
               const checkpoint::ShardImage& image) override {
    return Of(folder).Write(folder, temporary, image);
  }
  Status Commit(const proto::CommitCheckpoint& message) override {
    return Of(message.folder).Commit(message);
  }
  Result<std::unique_ptr<checkpoint::ByteSource>> Open(const ir::FolderRef& checkpoint) override {
    return Of(checkpoint).Open(checkpoint);
  }

 private:
  CheckpointFiles& Of(const ir::FolderRef& folder) {
    if (folder.at_controller()) return controller_;
    return folders_;
  }

  FolderFiles folders_;
  ControllerFiles controller_;
};

}  // namespace meshwright::worker
