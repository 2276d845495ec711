// ProcessMesh: a mesh in an executor process, seen from the supervisor.
//
// Messages of the controller go to the process as they are, what the process says goes to the
// controller; the supervisor fetches blobs for it, hands it the connections of its fabric, and
// counts for it. When the process ends without having been told to, the mesh has an error that says
// how (worker/executor_process.h). A mesh that is to be let go of is given a time; then the process
// is killed. In any case MeshReleased is said when the process is gone, and with it all that it
// had on devices.
//
// Thread rule: thread-safe, but for the destructor. Ownership: resources and watch outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/executor.h"
#include "base/mutex.h"
#include "worker/awaited_executor.h"
#include "worker/counts_exchange.h"
#include "worker/executors.h"
#include "worker/lost_devices.h"
#include "worker/mesh_connections.h"

namespace meshwright::worker {

class ProcessMesh final : public RunningMesh {
 public:
  // end_ms: for the process to let go of the mesh.
  ProcessMesh(const HostResources& resources, MeshGeneration mesh_gen, MeshEvents events,
              int64_t end_ms, LostDevices& watch);
  ~ProcessMesh() override;

  // Its process, or why there is none; exactly once. Messages wait for it.
  void Attach(Result<std::unique_ptr<ExecutorProcess>> process);

  void Handle(proto::DownBody message) override;
  void Abort(const Status& cause) override;
  void RefreshMetrics() override;
  std::optional<proto::MeshMarks> Marks() override { return executor_.Marks(mesh_gen_); }

 private:
  void LetGo();
  // There is no process.
  void Refuse(const Status& why);

  // On the reader of the process's socket.
  Status OnMessage(std::string_view bytes);
  void On(proto::UpBody& body);
  void On(BlobAsk& ask);
  void On(MeshCounts& counts);
  void On(const AwaitsConnections&);
  void On(const DeviceLost& lost);

  // On control_.
  void KillUnlessOver();
  void EndOnce();
  void ReportEnd(const ExecutorEnd& end);

  const HostResources& resources_;
  const MeshGeneration mesh_gen_;
  const MeshEvents events_;
  const int64_t end_ms_;
  LostDevices& watch_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> ended_{false};  // the process, or its socket
  std::atomic<bool> released_by_process_{false};
  std::atomic<JobId> job_{JobId(0)};
  std::atomic<bool> letting_go_{false};
  bool end_begun_ = false;  // on control_
  Status lost_;             // of the reader, then of control_
  AwaitedExecutor executor_;
  MeshConnections connections_;
  SnapshotHandover snapshots_{resources_.snapshots};
  CountsExchange counts_;
  Mutex mutex_;
  CondVar changed_;
  bool over_ MW_GUARDED_BY(mutex_) = false;
  Executor files_{"mw-blobs"};
  Executor control_{"mw-executor"};
};

}  // namespace meshwright::worker
