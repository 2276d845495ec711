// Kernels: what runs an op on a device. Three backends share this file: reference/ (plain loops,
// any dtype, the oracle), cpu/ (oneDNN matmul, Highway vectors), cuda/ (cuBLASLt, cuDNN and our
// own).
//
// A Kernel is made once, when a program is loaded: shapes, attributes and shard offsets are
// resolved then; Run() does no allocation and no lookup. Collectives are not kernels: the executor
// hands them to collective::Group.
//
// Kernels of a GPU put their work into a queue and return. A step may be recorded once and replayed
// ever after, so they take what changes from step to step out of the device's memory (StepState),
// and what the host must do for each step is in Prepare().
//
// Thread rule: one Run() at a time per Kernel object; a kernel splits work over `team` itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "device/device.h"
#include "ir/graph.h"
#include "ops/device_state.h"

namespace meshwright::ops {

struct Tensor {
  void* data = nullptr;
  const ir::TensorType* type = nullptr;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int64_t elements() const { return type->elements(); }
};

// Where `feed` nodes get their rows. Implemented by the worker (data files, what a client sends);
// by vectors in tests.
class FeedSource {
 public:
  virtual ~FeedSource() = default;
  // Writes row `sample` (global, 0-based: step * global_batch + row) of the input `source`: the
  // bytes of the feed's dims behind the first, in its dtype. Of a feed without rows (batch 0)
  // `sample` is the step, and `row` all of the value.
  virtual Status ReadRow(const std::string& source, int64_t sample, std::span<std::byte> row) = 0;
};

// A source whose rows are windows of tokens.
class TokenSource : public FeedSource {
 public:
  // Writes the window of tokens [row_length].
  virtual Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) = 0;
  // REQUIRES a row of whole i32, aligned.
  Status ReadRow(const std::string& source, int64_t sample, std::span<std::byte> row) final {
    return ReadSample(source, sample,
                      {reinterpret_cast<int32_t*>(row.data()), row.size() / sizeof(int32_t)});
  }
};

// Told how long each node of an executable took. Called on the device's thread.
class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  virtual void OnNode(const ir::Graph& graph, NodeId node, double seconds) = 0;
};

// OK without a fault; else what a CPU's kernel would have returned.
Status FaultStatus(const Fault& fault);

// What changes between runs of a kernel.
struct RunContext {
  uint64_t seed = 0;
  int64_t step = 0;
  int32_t microbatch = 0;
  FeedSource* feed = nullptr;
  ThreadTeam* team = nullptr;  // null: run on the calling thread
  NodeObserver* observer = nullptr;
  // Of a GPU's kernels; all in its memory but the queue.
  device::Queue* queue = nullptr;
  std::byte* scratch = nullptr;  // scratch_bytes() of the kernel, kAlignmentBytes aligned
  const StepState* state = nullptr;
  Fault* fault = nullptr;
};

// What a device knows at load: axis sizes and its coordinates. "micro" is an axis of size
// `microbatches` whose coordinate comes from RunContext.
struct DeviceCoords {
  std::vector<std::string> axes;
  std::vector<int64_t> sizes;
  std::vector<int64_t> coords;
  int32_t microbatches = 1;
};

// Offsets of the local block per dim for ir::ShardedDims; the part that depends on "micro" is kept
// as a stride: offset(dim, microbatch) = base[dim] + micro_stride[dim] * microbatch. Blocks are
// ceil(n / parts) long.
struct BlockOffsets {
  ir::Dims base;
  ir::Dims micro_stride;
  int64_t at(int dim, int32_t microbatch) const {
    return base[static_cast<size_t>(dim)] + micro_stride[static_cast<size_t>(dim)] * microbatch;
  }
};
// Local type's dims give the block sizes. Errors: kInvalidArgument naming an unknown axis.
Result<BlockOffsets> ResolveOffsets(const ir::ShardedDims& dims, const ir::Dims& local_dims,
                                    const DeviceCoords& coords);

class Kernel {
 public:
  virtual ~Kernel() = default;
  // inputs and outputs in node order. An output's data may equal an input's only as
  // ir::InPlaceOperand says.
  virtual Status Run(const RunContext& context, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs) = 0;

  // Memory of the device that a GPU's kernel uses while it runs.
  virtual int64_t scratch_bytes() const { return 0; }
  // The host's part of a step of a GPU, before any of its work is queued: for each RUN, with its
  // step and microbatch.
  virtual bool prepares() const { return false; }
  virtual Status Prepare(const RunContext&) { return OkStatus(); }
};

enum class Backend : uint8_t { kReference, kCpu, kCuda };

namespace cuda {
struct Toolkit;
}

// What kernels are made for.
struct Target {
  Target(Backend of = Backend::kCpu) : backend(of) {}  // NOLINT: a backend of the host says it all
  Target(device::Device& gpu, cuda::Toolkit& tools)
      : backend(Backend::kCuda), device(&gpu), toolkit(&tools) {}

  Backend backend;
  // Of kCuda; both outlive the kernels.
  device::Device* device = nullptr;
  cuda::Toolkit* toolkit = nullptr;
};

// kCpu falls back to the reference kernel where it has no native one for the dtype; kCuda does not.
// Errors: kUnimplemented naming op and dtypes.
Result<std::unique_ptr<Kernel>> MakeKernel(const Target& target, const ir::Graph& graph,
                                           const ir::Node& node, const DeviceCoords& coords);

// Runs a graph without collectives on the calling thread, allocating every value: the one-device
// oracle. bindings: data for `input` and `param` nodes by name attribute. Returns the outputs'
// bytes in order.
struct HostTensor {
  ir::TensorType type;
  std::vector<std::byte> data;
};
Result<std::vector<HostTensor>> Evaluate(
    const Target& target, const ir::Graph& graph,
    const std::function<Result<HostTensor>(const ir::Node&)>& bindings, const RunContext& context);

}  // namespace meshwright::ops
