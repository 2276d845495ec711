// ProcessExecutors: an executor process for each mesh, and a spare one that is started ahead, so
// that no job waits for a process to start.
//
// Thread rule and ownership: as Executors.
#pragma once

#include <functional>
#include <memory>

#include "base/executor.h"
#include "base/mutex.h"
#include "worker/executor_process.h"
#include "worker/executors.h"
#include "worker/lost_devices.h"

namespace meshwright::worker {

class ProcessExecutors final : public Executors {
 public:
  // REQUIRES options.command.
  ProcessExecutors(HostResources resources, ExecutorOptions options);
  ~ProcessExecutors() override;

  std::shared_ptr<RunningMesh> Start(MeshGeneration mesh_gen, MeshEvents events) override;

 private:
  Result<std::unique_ptr<ExecutorProcess>> StartProcess();
  // The spare, if there is one that lives.
  std::unique_ptr<ExecutorProcess> TakeSpare();
  void MakeSpare();
  void OnSilence();

  const HostResources resources_;
  const ExecutorOptions options_;
  const ExecutorSettings settings_;
  LostDevices lost_devices_;
  Mutex mutex_;
  std::unique_ptr<ExecutorProcess> spare_ MW_GUARDED_BY(mutex_);
  // Starts the processes: they die with it.
  Executor thread_{"mw-executors"};
};

}  // namespace meshwright::worker
