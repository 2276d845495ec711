#include "worker/executors.h"

#include <unistd.h>

#include <optional>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/log.h"
#include "worker/process_executors.h"

namespace meshwright::worker {
namespace {

class ThreadMesh final : public RunningMesh {
 public:
  ThreadMesh(const HostResources& resources, MeshGeneration mesh_gen, MeshEvents events)
      : gen_(mesh_gen),
        record_(MakeRecord()),
        snapshots_(resources.snapshots),
        handover_(resources.snapshots),
        host_(WithMemory(WithRecord(resources, record_), handover_), mesh_gen,
              std::move(events.report),
              [snapshots = snapshots_, mesh_gen, released = std::move(events.released)] {
                if (snapshots != nullptr) snapshots->Release(mesh_gen);
                released();
              }) {}
  void Handle(proto::DownBody message) override {
    if (const auto* load = std::get_if<proto::LoadMesh>(&message)) handover_.Expect(*load);
    host_.Take(std::move(message));
  }
  void Abort(const Status& cause) override { host_.Abort(cause); }
  void RefreshMetrics() override { host_.RefreshMetrics(); }
  std::optional<proto::MeshMarks> Marks() override {
    if (!record_) return std::nullopt;
    proto::MeshMarks marks = record_->Read(::getpid(), SystemClock().NowNs());
    marks.mesh_gen = gen_;
    return marks;
  }

 private:
  // It is for diagnosis: a mesh runs without one.
  static std::optional<MeshRecord> MakeRecord() {
    auto record = MeshRecord::Create();
    if (record.has_value()) return std::move(*record);
    LogWarn(record.error().message());
    return std::nullopt;
  }
  static HostResources WithRecord(HostResources resources, std::optional<MeshRecord>& record) {
    resources.record = record ? &*record : nullptr;
    return resources;
  }

  static HostResources WithMemory(HostResources resources, SnapshotHandover& handover) {
    if (resources.snapshots == nullptr) return resources;
    auto memory = checkpoint::MakeSnapshotMemory();
    if (!memory.has_value()) return resources;
    resources.snapshot_memory = ::dup(memory->get());
    handover.Give(*std::move(memory));
    return resources;
  }

  const MeshGeneration gen_;
  std::optional<MeshRecord> record_;
  SnapshotStore* const snapshots_;
  SnapshotHandover handover_;
  MeshHost host_;
};

class ThreadExecutors final : public Executors {
 public:
  explicit ThreadExecutors(HostResources resources) : resources_(std::move(resources)) {}
  std::shared_ptr<RunningMesh> Start(MeshGeneration mesh_gen, MeshEvents events) override {
    return std::make_shared<ThreadMesh>(resources_, mesh_gen, std::move(events));
  }

 private:
  const HostResources resources_;
};

}  // namespace

std::unique_ptr<Executors> MakeExecutors(HostResources resources, ExecutorOptions options) {
  if (options.command.empty()) return std::make_unique<ThreadExecutors>(std::move(resources));
  return std::make_unique<ProcessExecutors>(std::move(resources), std::move(options));
}

}  // namespace meshwright::worker
