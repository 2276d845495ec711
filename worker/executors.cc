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
  void Handle(proto::DownBody message) override { host_.Take(std::move(message)); }
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

}  // namespace meshwright::worker
