// The controller's folder on disk, held by one controller at a time.
//
// The folder is for its owner only (mode 0700) when it is made here.
//   <root>/lock        flock'ed while a controller runs; holds its process id
//   <root>/controller.sock  where processes of this host connect too (base/listen_address.h)
//   <root>/ports       of the last controller (cli/controller_command.cc)
//   <root>/state.db    controller/store.h
//   <root>/blobs/      controller/blob_store.h
//   <root>/files.key   from which keys of checkpoints' files are made (controller/mesh_order.h)
//   <root>/checkpoints/  controller/checkpoint_store.h, where nothing else is said
//   <root>/logs/       controller/worker_logs.h
//   <root>/jobs/<id>/  plan.txt, config.resolved.toml, metrics.jsonl, job.log, model.safetensors
// Thread rule: immutable after Open. Ownership: holds the lock as long as it lives.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::controller {

class StateDir {
 public:
  // Makes what is missing. Errors: kFailedPrecondition when another controller holds it; those of
  // base/file.h.
  static Result<StateDir> Open(const std::string& root);

  const std::string& root() const { return root_; }
  std::string store_path() const { return root_ + "/state.db"; }
  std::string blobs_dir() const { return root_ + "/blobs"; }
  std::string files_key_path() const { return root_ + "/files.key"; }
  std::string audit_path() const { return root_ + "/audit.jsonl"; }
  std::string issued_path() const { return root_ + "/issued.jsonl"; }
  std::string checkpoints_dir() const { return root_ + "/checkpoints"; }
  std::string logs_dir() const { return root_ + "/logs"; }
  std::string own_log_dir() const { return root_ + "/controller-log"; }
  std::string jobs_dir() const { return root_ + "/jobs"; }
  std::string job_dir(int64_t job) const { return jobs_dir() + "/" + std::to_string(job); }
  // The newest job that has a folder; 0: none has.
  int64_t LastJob() const;

 private:
  StateDir(std::string root, UniqueFd lock) : root_(std::move(root)), lock_(std::move(lock)) {}
  std::string root_;
  UniqueFd lock_;
};

}  // namespace meshwright::controller
