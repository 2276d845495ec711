// Where the meshes of a worker run: each in an executor of its own, which owns devices, runtime,
// communicators and data feeds of that mesh.
//
// An executor is a process of the worker's binary, so that what ends it (a crash, a kill for want
// of memory, a spoilt context of a GPU, a collective that hangs) ends one mesh and no worker; or,
// for who runs a worker inside of another program, a thread of this process. Who asks for meshes
// does not know which.
//
// Thread rule: thread-safe, but for the destructors, which wait for what they end. Ownership: a
// mesh ends before its Executors, and what the resources point at after them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/messages.h"
#include "worker/mesh_host.h"

namespace meshwright::worker {

struct MeshEvents {
  // What the mesh says, from any thread, until `released`.
  std::function<void(proto::UpBody)> report;
  // Exactly once, the last: nothing of the mesh is left. MeshReleased was said before.
  std::function<void()> released;
};

class RunningMesh {
 public:
  // Aborts it and waits.
  virtual ~RunningMesh() = default;
  // A message of the controller to this mesh; LoadMesh is the first. Never blocks for long.
  virtual void Handle(proto::DownBody message) = 0;
  // Takes effect at once: nothing more is said but MeshReleased, and before it a MeshError where
  // the mesh's process died by itself.
  virtual void Abort(const Status& cause) = 0;
  // Where its devices are, without asking them; nothing: it has no process.
  virtual std::optional<proto::MeshMarks> Marks() = 0;
  // Brings the metrics up to date, within a bounded time.
  virtual void RefreshMetrics() = 0;
};

class Executors {
 public:
  virtual ~Executors() = default;
  virtual std::shared_ptr<RunningMesh> Start(MeshGeneration mesh_gen, MeshEvents events) = 0;
};

struct ExecutorOptions {
  // Starts the process of an executor, its descriptors are added (worker/executor_main.h).
  // Empty: executors are threads of this process.
  std::vector<std::string> command;
  std::string controller;  // to which executors send tiles
  std::string token;
  std::string tls_dir;  // of the worker's identity
  // For an executor to let go of its mesh, from the order on; then its process is killed. GPUs have
  // as long as their work may take to end besides (HostResources::gpu_drain_timeout_ms).
  int64_t end_ms = 10'000;
};

// Resources as a mesh of this process has them; link, data roots and GPUs are opened anew by
// processes.
std::unique_ptr<Executors> MakeExecutors(HostResources resources, ExecutorOptions options);

}  // namespace meshwright::worker
