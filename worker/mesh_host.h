// One mesh generation on this worker: loads, connects, launches and saves on a thread of its own.
//
// Messages are handled in order, from a mailbox; more than the controller may have under way are an
// error of the protocol. Abort() takes effect at once, from any thread: a launch in
// progress returns within the fabric's abort time, what waits is dropped, nothing more is reported
// but MeshReleased, which comes last. Thread rule: thread-safe. Ownership: owns the runtime;
// resources outlive it. Destroying it aborts and waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actor/owner_loop.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "collective/communicator.h"
#include "proto/messages.h"
#include "worker/agent_metrics.h"
#include "worker/blobs.h"
#include "worker/data_feed.h"
#include "worker/gpus.h"
#include "worker/job_feed.h"
#include "worker/link.h"
#include "worker/mesh_record.h"
#include "worker/runtime.h"
#include "worker/snapshot_store.h"
#include "worker/snapshot_taker.h"
#include "worker/state_saver.h"
#include "worker/weights.h"

namespace meshwright::worker {

// What the meshes of a worker share.
struct HostResources {
  std::string worker;
  int devices = 1;
  int threads_per_device = 1;
  std::vector<int> cores;    // to pin to, threads_per_device for each device; empty: not pinned
  int64_t memory_bytes = 0;  // per device
  int64_t host_link_bytes_per_s = 0;  // of CPU devices; 0: as fast as memory
  device::Scratch scratch;
  Gpus gpus;  // that are the devices; without: CPU devices
  int64_t gpu_drain_timeout_ms = GpuOptions().drain_timeout_ms;
  collective::Transport transport = collective::Transport::kAuto;
  int64_t collective_timeout_ms = 0;  // as AgentOptions
  std::shared_ptr<collective::Listener> listener;
  Blobs* blobs = nullptr;
  const data::Roots* roots = nullptr;  // below which files are read in place; null: none
  const checkpoint::Roots* checkpoint_roots = nullptr;  // null: none
  HostActorOptions host_actors;                         // of the binary, for data that actors make
  ControllerLink* link = nullptr;
  MeshCounters* metrics = nullptr;
  MeshRecord* record = nullptr;  // takes what the mesh does; null: nobody asks
  SnapshotStore* snapshots =
      nullptr;  // of the worker's daemon: keeps what meshes leave; null: none
  // A descriptor that becomes the mesh's: where its snapshots go (worker/snapshot_taker.h).
  int snapshot_memory = -1;
  // Told when this process has lost a device for good, after the error that it caused.
  std::function<void(const Status&)> device_lost;
};

class MeshHost {
 public:
  using Report = std::function<void(proto::UpBody)>;
  // Messages that may wait. The controller has a window of a few launches, and one of the rest.
  static constexpr size_t kMailbox = 64;

  // `report` may be called from the mesh's thread until `released` was; `released` comes exactly
  // once, when nothing of the mesh is left.
  MeshHost(const HostResources& resources, MeshGeneration mesh_gen, Report report,
           std::function<void()> released);
  ~MeshHost();

  // A message of the controller to this mesh, in its order; others are nothing to it. What is read,
  // written, saved and restored is answered as launches are, by a LaunchDone; what a save writes
  // behind that is told by StateSaved and CheckpointCommitted.
  void Take(proto::DownBody message);
  void Release();
  void Abort(const Status& cause);
  // Puts the runtime's counters into the metrics.
  void RefreshMetrics();

 private:
  // The mesh ends, by request or by an abort. Its place in the mailbox is kept from the first.
  struct LetGo {};
  using Message = std::variant<proto::LoadMesh, proto::Connect, proto::Launch, proto::ReadTensors,
                               proto::WriteTensors, proto::SaveWeights, proto::SaveState,
                               proto::RestoreState, proto::CommitCheckpoint, LetGo>;

  // What the weights start from when a job brings its own.
  struct InitialWeights {
    std::string name;  // for messages
    ir::Graph loss;    // names and layouts
    std::shared_ptr<const formats::SafetensorsFile> file;
  };

  void Offer(Message message);
  void OfferLetGo();
  // On the thread, as all up to CheckDevices.
  void On(const proto::LoadMesh& message);
  void On(const proto::Connect& message);
  void On(const proto::Launch& message);
  void On(const proto::ReadTensors& message);
  void On(const proto::WriteTensors& message);
  void On(const proto::SaveWeights& message);
  void On(const proto::SaveState& message);
  void On(const proto::RestoreState& message);
  void On(const proto::CommitCheckpoint& message);
  void On(const LetGo&) { ReleaseOnThread(); }
  Status LoadOnThread(const proto::LoadMesh& message);
  Status SaveOnThread(const proto::SaveWeights& message);
  Result<RuntimeOptions> MakeOptions(const proto::LoadMesh& message);
  Status OpenData(const proto::LoadMesh& message, const std::vector<ir::Program>& programs);
  Result<std::unique_ptr<ActorFeed>> StartActors(const proto::LoadMesh& message,
                                                 const std::vector<ir::Program>& programs);
  FilePlaces Places() const;
  Result<ir::Program> FetchProgram(const ir::BlobRef& blob, int rank, const std::string& name);
  // Runs `work` as launch number `seq`: once, in order; tells what came of it.
  void RunInOrder(LaunchSeq seq, const char* what,
                  const std::function<Status(proto::LaunchDone&)>& work);
  Status LaunchOnThread(const proto::Launch& message, proto::LaunchDone& done);
  Status ReadOnThread(const proto::ReadTensors& message, proto::LaunchDone& done);
  Status WriteOnThread(const proto::WriteTensors& message);
  Status StageInputs(const proto::Launch& message);
  Result<std::vector<proto::TensorTile>> ReadOutputs(const std::string& program,
                                                     proto::Fetch fetch);
  StateSaver& Saver();
  Status OpenInitialWeights(const proto::LoadMesh& message);
  Status FillInitialWeights();
  void ReleaseOnThread();
  // It may be the end of a device.
  void CheckDevices(const Status& failure);
  void TellLost(const Status& lost);
  // Reports unless the mesh was aborted.
  void Say(proto::UpBody body);
  proto::RuntimeError Error(proto::ErrorKind kind, const Status& status) const;
  bool aborted() const { return aborted_.load(); }

  const HostResources resources_;
  const MeshGeneration mesh_gen_;
  const Report report_;
  const std::function<void()> released_;
  std::atomic<bool> aborted_{false};
  bool gone_ = false;                              // on the thread
  bool lost_told_ = false;                         // on the thread
  uint64_t last_seq_ = 0;                          // on the thread
  StateSlots state_;                               // on the thread
  std::optional<InitialWeights> initial_weights_;  // on the thread, and none after the fill
  std::vector<std::string> programs_, inputs_;     // of LoadMesh, on the thread
  std::unique_ptr<DataFeed> data_;                 // on the thread; outlives the runtime
  std::unique_ptr<JobFeed> feed_;                  // on the thread; outlives the runtime
  std::unique_ptr<CheckpointFiles> files_;         // once loaded; outlives the saver
  std::unique_ptr<StateSaver> saver_;              // on the thread
  UniqueFd snapshot_memory_;                       // on the thread, until it is loaded
  std::optional<SnapshotTaker> taker_;             // on the thread, once loaded
  std::string cluster_id_;                         // of LoadMesh, on the thread
  Mutex mutex_;
  // Written on the thread under mutex_: the thread reads it as it is, others under mutex_.
  std::shared_ptr<JobRuntime> runtime_;
  std::vector<int> local_devices_ MW_GUARDED_BY(mutex_);
  Status abort_cause_ MW_GUARDED_BY(mutex_);
  Executor thread_{"mw-mesh"};
  actor::ExecutorScheduler scheduler_{thread_};
  actor::OwnerLoop<Message> loop_;
  std::optional<actor::OwnerLoop<Message>::Credit> let_go_ MW_GUARDED_BY(mutex_);  // gone once used
};

}  // namespace meshwright::worker
