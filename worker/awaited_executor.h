// AwaitedExecutor: the executor process of a mesh, from when it is asked for: what is sent before
// it is there waits for it.
//
// Thread rule: thread-safe. Ownership: owns the process until Take().
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "worker/executor_process.h"

namespace meshwright::worker {

class AwaitedExecutor {
 public:
  // Once, unless Refuse() was called. After Take() the process is ended again.
  void Attach(std::unique_ptr<ExecutorProcess> process, MessageHandlers handlers);
  // There will be none; what waits for it is dropped.
  void Refuse();
  // Whether it was refused: nothing is to be expected of it.
  bool refused();

  void Send(ToExecutor message);
  // Not valid without a process, or when they were taken before.
  UniqueFd TakeConnections();
  // The same, of the memory of its snapshots.
  UniqueFd TakeSnapshots();
  // SIGKILL. Its number; 0: there is none.
  pid_t Kill();
  // What its record says; nothing: there is no process.
  std::optional<proto::MeshMarks> Marks(MeshGeneration mesh_gen);
  // To be ended; null: there was none. Nothing is sent any more.
  std::unique_ptr<ExecutorProcess> Take();

 private:
  Mutex mutex_;
  std::unique_ptr<ExecutorProcess> process_ MW_GUARDED_BY(mutex_);
  std::vector<ToExecutor> waiting_ MW_GUARDED_BY(mutex_);
  bool refused_ MW_GUARDED_BY(mutex_) = false;
  bool taken_ MW_GUARDED_BY(mutex_) = false;
};

}  // namespace meshwright::worker
