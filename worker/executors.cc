#include "worker/executors.h"

#include <utility>
#include <variant>

#include "worker/process_executors.h"

namespace meshwright::worker {
namespace {

class ThreadMesh final : public RunningMesh {
 public:
  ThreadMesh(const HostResources& resources, MeshGeneration mesh_gen, MeshEvents events)
      : host_(resources, mesh_gen, std::move(events.report), std::move(events.released)) {}
  void Handle(proto::DownBody message) override { Deliver(std::move(message), host_); }
  void Abort(const Status& cause) override { host_.Abort(cause); }
  void RefreshMetrics() override { host_.RefreshMetrics(); }

 private:
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

void Deliver(proto::DownBody message, MeshHost& mesh) {
  if (auto* load = std::get_if<proto::LoadMesh>(&message)) {
    mesh.Load(std::move(*load));
  } else if (auto* connect = std::get_if<proto::Connect>(&message)) {
    mesh.Connect(std::move(*connect));
  } else if (auto* launch = std::get_if<proto::Launch>(&message)) {
    mesh.Launch(std::move(*launch));
  } else if (auto* read = std::get_if<proto::ReadTensors>(&message)) {
    mesh.Read(std::move(*read));
  } else if (auto* write = std::get_if<proto::WriteTensors>(&message)) {
    mesh.Write(std::move(*write));
  } else if (auto* save = std::get_if<proto::SaveWeights>(&message)) {
    mesh.Save(std::move(*save));
  } else if (auto* state = std::get_if<proto::SaveState>(&message)) {
    mesh.Save(std::move(*state));
  } else if (auto* restore = std::get_if<proto::RestoreState>(&message)) {
    mesh.Restore(std::move(*restore));
  } else if (auto* commit = std::get_if<proto::CommitCheckpoint>(&message)) {
    mesh.Commit(std::move(*commit));
  } else if (const auto* abort = std::get_if<proto::AbortMesh>(&message)) {
    mesh.Abort(abort->cause.ToStatus());
  } else if (std::holds_alternative<proto::ReleaseMesh>(message)) {
    mesh.Release();
  }
}

}  // namespace meshwright::worker
