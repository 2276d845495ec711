// The controller's own checkpoint root: where checkpoints lie of jobs whose workers share no
// folder.
//
//   ROOT/gpt-bytes/7/step-00000120/...   as below any root (checkpoint/folder.h)
//
// Workers send their shards and read them again in pieces, and the controller makes checkpoints of
// them: nobody else writes here. Who may have which file is asked before (controller/grpc/
// checkpoint_service.h); here paths and names are checked, whoever asks.
//
// Thread rule: thread-safe; Commit of one folder on one thread. Everything waits for disks: never
// on the control loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "checkpoint/folder.h"
#include "checkpoint/roots.h"
#include "proto/messages.h"

namespace meshwright::controller {

class CheckpointStore {
 public:
  // Makes the folder. keep_free_bytes: of its disk, that checkpoints do not take. Errors: those of
  // the system.
  static Result<std::unique_ptr<CheckpointStore>> Open(const std::string& root,
                                                       int64_t keep_free_bytes);
  const std::string& root() const { return roots_.all().front().path; }

  // A file of a save. folder: of the job, below the root; temporary: the name below it. Errors:
  // kInvalidArgument: a name that leads elsewhere, or is none of a save; kPermissionDenied: the
  // folder is a link out of the root; kResourceExhausted naming the bytes: the disk is full.
  Result<checkpoint::ShardWriter> Create(const std::string& folder, const std::string& temporary,
                                         const std::string& name, int64_t bytes) const;
  // A file of a checkpoint for reading, and its bytes. Errors: as Create; kNotFound.
  struct OpenFile {
    UniqueFd fd;
    std::string path;
    int64_t bytes = 0;
  };
  Result<OpenFile> OpenToRead(const std::string& checkpoint, const std::string& name) const;

  // Nothing comes of this save: what is there of it only fills the disk. REQUIRES names as those
  // of Create; others are nothing.
  void Discard(const std::string& folder, const std::string& temporary) const;

  // Makes a checkpoint of what was written, and removes those that are too many. Errors: those of
  // checkpoint::Commit.
  Status Commit(const proto::CommitCheckpoint& commit) const;
  // The same, and what is to be said of it.
  proto::CheckpointCommitted CommitGuarded(const proto::CommitCheckpoint& commit) const;
  // Steps of the checkpoints in a folder, newest first.
  Result<std::vector<int64_t>> Steps(const std::string& folder) const;
  // Errors: kNotFound.
  Status Remove(const std::string& folder, int64_t step) const;

 private:
  CheckpointStore(checkpoint::Roots roots, int64_t keep_free_bytes)
      : roots_(std::move(roots)), keep_free_bytes_(keep_free_bytes) {}
  Result<std::string> PathOf(const std::string& below) const;
  Status CheckRoom(int64_t bytes) const;

  const checkpoint::Roots roots_;
  const int64_t keep_free_bytes_;
};

}  // namespace meshwright::controller
