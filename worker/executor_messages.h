// What a worker's daemon (the supervisor) and its executors tell each other over their socket.
//
// Both are the same binary on the same host, so that there are no versions; still, what comes from
// an executor is checked, as it may be one whose memory is damaged. Messages to and from meshes
// travel as they came (proto/messages.h).
//
// Thread rule: values; the codec's functions are pure (worker/grpc/executor_codec.cc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "collective/communicator.h"
#include "ir/data_spec.h"
#include "proto/messages.h"
#include "worker/host_actor_options.h"
#include "worker/runtime.h"

namespace meshwright::worker {

// Of a message of a mesh, tensors included, with room for what is around them.
inline constexpr size_t kMaxExecutorMessageBytes = size_t{80} << 20;

// What an executor is to be before it has a mesh; the first message to it.
struct ExecutorSettings {
  std::string worker;
  int devices = 1;
  int threads_per_device = 1;
  std::vector<int> cores;
  int64_t memory_bytes = 0;
  int64_t host_link_bytes_per_s = 0;
  device::Scratch scratch;
  std::vector<int> gpus;  // by local device; none: CPU devices
  int64_t gpu_drain_timeout_ms = 0;
  collective::Transport transport = collective::Transport::kAuto;
  int64_t collective_timeout_ms = 0;
  std::vector<ir::DataRoot> data_roots;
  std::vector<ir::DataRoot> checkpoint_roots;
  HostActorOptions host_actors;
  std::string controller;  // for tiles, which go there at the end
  std::string token;
  std::string tls_dir;  // of the worker's identity
  LogLevel log_level = LogLevel::kInfo;
};

// An executor asks for the file of a blob, and is told its path in the worker's cache.
struct BlobAsk {
  uint64_t id = 0;
  ir::BlobRef blob;
};
struct BlobAnswer {
  uint64_t id = 0;
  Status status;
  std::string path;
};

// What the devices of the mesh have counted.
struct CountsAsk {
  uint64_t id = 0;
};
struct MeshCounts {
  uint64_t id = 0;  // of the question; 0: at the mesh's end
  std::vector<DeviceStats> stats;
  std::vector<int> devices;  // local, by entry of stats
};

// The mesh's fabric is there: connections of peers may come.
struct AwaitsConnections {};

// Only another process can go on with a device.
struct DeviceLost {
  Status cause;
};

using ToExecutor = std::variant<ExecutorSettings, proto::DownBody, BlobAnswer, CountsAsk>;
using FromExecutor =
    std::variant<proto::UpBody, BlobAsk, MeshCounts, AwaitsConnections, DeviceLost>;

std::string Encode(const ToExecutor& message);
std::string Encode(const FromExecutor& message);
// Errors: kInvalidArgument.
Result<ToExecutor> DecodeToExecutor(std::string_view bytes);
Result<FromExecutor> DecodeFromExecutor(std::string_view bytes);

}  // namespace meshwright::worker
