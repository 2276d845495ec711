// JobRuntime: the part of one job that runs in this process. One device actor (thread) per local
// device walks static programs; the same class serves a worker daemon (its devices of a mesh) and
// tests (all devices of a mesh as threads).
//
// Load resolves everything: slots to addresses, executables to kernels with shard offsets,
// collectives to groups, SEND/RECV to channels. Launch then runs `count` steps with no allocation,
// no lookup and no controller. Persistent slots (weights, optimizer state) are found by name,
// shared by all programs of a device, and live as long as the runtime.
//
// Failure: the first error of any device aborts the fabric, so that no other device waits; Launch
// returns that first cause.
//
// Thread rule: Load, Connect, Launch, Read/Write from one control thread; Abort and the stats from
// any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/communicator.h"
#include "ir/program.h"
#include "ops/kernel.h"

namespace meshwright::worker {

struct RuntimeOptions {
  std::vector<ir::Program> programs;  // of the local devices: for each device its init, step, eval
  // Members of the whole mesh; local_ranks are the devices of `programs`.
  collective::FabricOptions fabric;
  std::shared_ptr<collective::Listener> listener;  // null when every rank is local
  ops::FeedSource* feed = nullptr;  // outlives the runtime; may be called from all device threads
  uint64_t seed = 0;
  int threads_per_device = 1;
  // Per local device, in the order of fabric.local_ranks: cores to pin to, one per thread; empty:
  // not pinned.
  std::vector<std::vector<int>> cpus;
  int64_t memory_limit_bytes = 0;  // per device; 0: what the machine has
  ops::Backend backend = ops::Backend::kCpu;
  ops::NodeObserver* observer = nullptr;  // outlives the runtime; called from all device threads
};

struct StepReport {
  int64_t step = 0;
  double seconds = 0;                    // wall time of the step on the slowest local device
  std::map<std::string, double> values;  // reports of the local devices that have any
};

struct LaunchRequest {
  std::string program;  // "init", "step", "eval"
  int64_t first_step = 0;
  int64_t count = 1;
};

struct InstructionCounts {
  int64_t run = 0, send = 0, recv = 0, free = 0;
};

struct CollectiveStat {
  std::string axis;  // axes of the group joined by ','; "pipeline" for SEND/RECV
  collective::Kind kind;
  collective::Counters counters;
};

struct DeviceStats {
  int rank = 0;
  InstructionCounts instructions;
  std::map<ir::MemoryKind, int64_t> memory_bytes;  // allocated, by kind
  std::vector<CollectiveStat> collectives;
};

class JobRuntime {
 public:
  virtual ~JobRuntime() = default;

  // Errors: kUnimplemented naming an op without kernel, kResourceExhausted naming bytes,
  // kInvalidArgument.
  static Result<std::unique_ptr<JobRuntime>> Load(RuntimeOptions options);

  // Connects the fabric; all processes of the mesh call it.
  virtual Status Connect() = 0;

  // Runs on all local devices; returns when all are done. One report per step.
  virtual Result<std::vector<StepReport>> Launch(const LaunchRequest& request) = 0;

  // Local block of a persistent slot. Errors: kNotFound naming rank and slot; kInvalidArgument on a
  // size mismatch.
  virtual Result<ops::HostTensor> ReadPersistent(int rank, const std::string& slot) = 0;
  virtual Status WritePersistent(int rank, const std::string& slot,
                                 const std::vector<std::byte>& data) = 0;

  virtual void Abort(const Status& cause) = 0;
  virtual std::vector<DeviceStats> Stats() const = 0;
};

}  // namespace meshwright::worker
