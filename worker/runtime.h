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
// End: a GPU may be far behind the host when a job fails or is aborted, and what it uses must
// outlive its work. So the devices' threads end first, then the queues run empty, then the fabric
// closes, then memory is freed. A GPU that does not come to its end in time keeps what it has.
//
// Thread rule: Load, Connect, Launch, Read/Write, Close from one control thread; Abort and the
// stats from any thread, the stats not during Close.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "collective/communicator.h"
#include "collective/nccl/fabric.h"
#include "device/cuda/driver.h"
#include "device/scratch.h"
#include "ir/program.h"
#include "ir/step_record.h"
#include "ops/cuda/toolkit.h"
#include "ops/kernel.h"
#include "worker/mesh_record.h"

namespace meshwright::worker {

// GPUs instead of CPU devices: of this machine (device/cuda/plugin.h), or a test's.
struct GpuOptions {
  device::cuda::Driver* driver = nullptr;  // null: CPU devices; outlives the runtime, as toolkit
  ops::cuda::Toolkit* toolkit = nullptr;
  // For meshes of several devices; null: there is none, for the reason.
  collective::nccl::Library* nccl = nullptr;
  collective::nccl::Combiner* combiner = nullptr;
  std::string no_nccl = {};
  collective::nccl::Timing timing = {};
  std::vector<int> indices;  // per local device, in the order of fabric.local_ranks
  bool record = true;        // replay recordings of what a step needs
  int64_t stall_timeout_ms = 60'000;
  int64_t drain_timeout_ms = 30'000;  // of all devices, at the end
};

struct RuntimeOptions {
  std::vector<ir::Program> programs;  // of the local devices; each device has each of them
  // Members of the whole mesh; local_ranks are the devices of `programs`.
  collective::FabricOptions fabric;
  std::shared_ptr<collective::Listener> listener;  // null when every rank is local
  ops::FeedSource* feed = nullptr;  // outlives the runtime; may be called from all device threads
  uint64_t seed = 0;
  int threads_per_device = 1;
  // Per local device, in the order of fabric.local_ranks: cores to pin to, one per thread; empty:
  // not pinned.
  std::vector<std::vector<int>> cpus;
  int64_t memory_limit_bytes = 0;             // per device; 0: what the machine has
  int64_t host_link_bytes_per_s = 0;          // of CPU devices: device::DeviceOptions
  std::optional<int64_t> host_memory_bytes;   // that there is for them; nothing: not known
  device::Scratch scratch;                    // of all local devices
  ops::Backend backend = ops::Backend::kCpu;  // without GPUs
  GpuOptions gpus;
  ops::NodeObserver* observer = nullptr;  // outlives the runtime; called from all device threads
  MeshRecord* record = nullptr;  // outlives the runtime; takes where the devices are; null: none
};

// How long a rank was at each step of a launch, but for what it waited for others.
struct RankBusy {
  int rank = 0;
  std::vector<double> seconds;
};

struct StepReport {
  int64_t step = 0;
  double seconds = 0;                    // wall time of the step on the slowest local device
  std::map<std::string, double> values;  // reports of the local devices that have any
};

struct LaunchRequest {
  std::string program;  // its name: "init", "step"
  int64_t first_step = 0;
  int64_t count = 1;
  ir::StepRange record = {};  // of these steps, what devices do in them is written down
};

// A device's block of a tensor that a program gives out.
struct OutputBlock {
  std::string name;
  ir::TensorType type;  // of the whole tensor
  ir::Box box;
  std::string bytes;
};

// Writes all of a block; fails where it cannot.
using FillBlock = FunctionRef<Status(std::span<std::byte> block)>;

// A persistent slot that is copied to memory of the host, of its size.
struct PersistentCopy {
  int rank = 0;
  std::string slot;
  std::span<std::byte> into;
  // Told on the device's thread, part by part: these bytes are there. Parts begin at multiples of a
  // mebibyte.
  std::function<void(int64_t begin, int64_t end)> copied;
};

struct InstructionCounts {
  int64_t run = 0, send = 0, recv = 0, free = 0;
};

struct CollectiveStat {
  std::string axis;  // axes of the group joined by ','; "pipeline" for SEND/RECV
  collective::Kind kind;
  std::string backend;  // of its fabric
  collective::Counters counters;
};

struct DeviceStats {
  int rank = 0;
  InstructionCounts instructions;
  std::map<ir::MemoryKind, int64_t> memory_bytes;  // allocated, by kind
  int64_t host_bytes = 0;                          // in the memory of the host
  int64_t disk_bytes = 0;
  std::vector<CollectiveStat> collectives;
};

class JobRuntime {
 public:
  virtual ~JobRuntime() = default;

  // Errors: kUnimplemented naming an op without kernel, kResourceExhausted naming bytes,
  // kInvalidArgument.
  static Result<std::unique_ptr<JobRuntime>> Load(RuntimeOptions options);

  // What the other processes of the mesh need to connect to this one; "" for most.
  virtual Result<std::string> Invitation() = 0;
  // Connects the fabric; all processes of the mesh call it, with the invitations of all of them.
  virtual Status Connect(const std::vector<std::string>& invitations) = 0;

  // Runs on all local devices; returns when all are done. One report per step.
  virtual Result<std::vector<StepReport>> Launch(const LaunchRequest& request) = 0;

  // Of the last launch that went well, of all local devices; no seconds: it is not known.
  virtual std::vector<RankBusy> Busy() const = 0;

  // Of the last launch that went well: its steps that were to be recorded, rank by rank. Again:
  // nothing. Of a GPU only begin and end are known.
  virtual std::vector<ir::StepRecord> TakeRecorded() = 0;

  // What the local devices hold of the tensors that the program gave out in its last step. Errors:
  // kNotFound: there is no such program.
  virtual Result<std::vector<OutputBlock>> ReadOutputs(const std::string& program) = 0;

  // Local block of a persistent slot. Errors: kNotFound naming rank and slot; kInvalidArgument on a
  // size mismatch.
  virtual Result<ops::HostTensor> ReadPersistent(int rank, const std::string& slot) = 0;
  // The same, to where the caller has room for it: `into` is of its size.
  virtual Status CopyPersistent(int rank, const std::string& slot, std::span<std::byte> into) = 0;
  // All of them, each on its device's own thread, and devices beside one another.
  virtual Status CopyAll(const std::vector<PersistentCopy>& copies) = 0;
  Status WritePersistent(int rank, const std::string& slot, const std::vector<std::byte>& data);
  // `fill` writes all of the block, in the device's own memory where this process may write there.
  // Where it fails, so does this, and what the block has then is not said.
  virtual Status FillPersistent(int rank, const std::string& slot, const FillBlock& fill) = 0;

  virtual void Abort(const Status& cause) = 0;
  virtual std::vector<DeviceStats> Stats() const = 0;
  // OK, or why only another process can go on with these devices: one of them is lost
  // (device/device.h), or NCCL has met an error of the system. Any thread.
  virtual Status DeviceStatus() const = 0;

  // Ends the job and frees all that it has; nothing else may be called then but Abort(). Again:
  // nothing. The destructor calls it. Returns what DeviceStatus() would, also for a device or a
  // fabric that did not come to its end in time. Takes no longer than drain_timeout_ms and what
  // Fabric::Close() may.
  virtual Status Close() = 0;
};

}  // namespace meshwright::worker
