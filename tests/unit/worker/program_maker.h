// ProgramMaker: small programs by hand, with slots laid out one after the other. Job: a runtime
// with all ranks local.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ir/text.h"
#include "worker/runtime.h"

namespace meshwright::worker {

inline ir::TensorType F32(ir::Dims dims) { return {ir::DType::kF32, std::move(dims)}; }

inline std::shared_ptr<const ir::Graph> GraphOf(const std::string& text) {
  auto graph = ir::ParseGraph(text);
  MW_CHECK(graph.has_value()) << graph.error() << "\n" << text;
  return std::make_shared<const ir::Graph>(std::move(*graph));
}

struct MeshSpec {
  std::vector<ir::MeshAxis> axes;
  std::vector<int> ranks;  // row-major; empty: 0, 1, ...
  int device_count = 0;    // of the job; 0: as many as the mesh
};

class ProgramMaker {
 public:
  ProgramMaker(std::string name, int rank, const MeshSpec& mesh = {}) {
    p_.name = std::move(name);
    p_.device = DeviceIndex(rank);
    p_.axes = mesh.axes;
    int64_t count = 1;
    for (const ir::MeshAxis& axis : mesh.axes) count *= axis.size;
    int64_t position = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int device =
          mesh.ranks.empty() ? static_cast<int>(i) : mesh.ranks[static_cast<size_t>(i)];
      p_.mesh_devices.emplace_back(device);
      if (device == rank) position = i;
    }
    if (count == 1) p_.mesh_devices = {DeviceIndex(rank)};
    p_.coords.resize(mesh.axes.size());
    for (size_t i = mesh.axes.size(); i-- > 0;) {
      p_.coords[i] = position % mesh.axes[i].size;
      position /= mesh.axes[i].size;
    }
    p_.device_count = mesh.device_count != 0 ? mesh.device_count : static_cast<int32_t>(count);
  }

  SlotId Persistent(const std::string& name, ir::TensorType type) {
    ir::Slot slot;
    slot.type = std::move(type);
    slot.persistent = true;
    slot.kind = ir::MemoryKind::kWeights;
    slot.name = name;
    return AddSlot(std::move(slot));
  }

  SlotId Transient(ir::TensorType type, ir::MemoryKind kind = ir::MemoryKind::kActivations) {
    ir::Slot slot;
    slot.type = std::move(type);
    slot.kind = kind;
    slot.offset_bytes = p_.arena_bytes;
    slot.name = "t" + std::to_string(p_.slots.size());
    p_.arena_bytes += (slot.type.bytes() + 63) / 64 * 64;
    return AddSlot(std::move(slot));
  }

  ExecutableIndex Executable(std::shared_ptr<const ir::Graph> graph) {
    p_.executables.push_back({std::move(graph)});
    return ExecutableIndex(static_cast<int32_t>(p_.executables.size()) - 1);
  }
  ExecutableIndex Executable(const std::string& text) { return Executable(GraphOf(text)); }

  ChannelId Channel(bool outgoing, int peer, const std::string& name, int64_t bytes,
                    int capacity = 2) {
    p_.channels.push_back({outgoing, DeviceIndex(peer), capacity, bytes, name});
    return ChannelId(static_cast<int32_t>(p_.channels.size()) - 1);
  }

  void Run(ExecutableIndex executable, std::vector<SlotId> inputs, std::vector<SlotId> outputs,
           int microbatch = 0) {
    ir::Instruction run;
    run.op = ir::Opcode::kRun;
    run.executable = executable;
    run.microbatch = microbatch;
    run.inputs = std::move(inputs);
    run.outputs = std::move(outputs);
    p_.instructions.push_back(std::move(run));
  }
  void Send(SlotId slot, ChannelId channel, ir::Box box = {}) {
    Transfer(ir::Opcode::kSend, slot, channel, std::move(box));
  }
  void Recv(SlotId slot, ChannelId channel, ir::Box box = {}) {
    Transfer(ir::Opcode::kRecv, slot, channel, std::move(box));
  }
  void Free(std::vector<SlotId> slots) {
    ir::Instruction free;
    free.op = ir::Opcode::kFree;
    free.inputs = std::move(slots);
    p_.instructions.push_back(std::move(free));
  }
  void Report(const std::string& name, SlotId slot) { p_.reports.push_back({name, slot}); }
  void Microbatches(int count) { p_.microbatches = count; }

  ir::Program Finish() {
    p_.workspace_offset = p_.arena_bytes;
    for (const ir::Executable& executable : p_.executables) {
      p_.workspace_bytes = std::max(p_.workspace_bytes, ir::PlanWorkspace(*executable.graph).bytes);
    }
    p_.arena_bytes += p_.workspace_bytes;
    return std::move(p_);
  }

 private:
  SlotId AddSlot(ir::Slot slot) {
    p_.slots.push_back(std::move(slot));
    return SlotId(static_cast<int32_t>(p_.slots.size()) - 1);
  }
  void Transfer(ir::Opcode op, SlotId slot, ChannelId channel, ir::Box box) {
    ir::Instruction transfer;
    transfer.op = op;
    transfer.slot = slot;
    transfer.channel = channel;
    transfer.box = std::move(box);
    p_.instructions.push_back(std::move(transfer));
  }

  ir::Program p_;
};

// Options of a runtime that has all `ranks` ranks in this process.
inline RuntimeOptions LocalOptions(int ranks, std::vector<ir::Program> programs) {
  RuntimeOptions options;
  options.programs = std::move(programs);
  for (int rank = 0; rank < ranks; ++rank) {
    options.fabric.members.push_back({"test", "", collective::LocalHostId(), 1});
    options.fabric.local_ranks.push_back(rank);
  }
  options.fabric.cluster_id = "test";
  options.fabric.operation_timeout_ms = 20'000;
  options.backend = ops::Backend::kReference;
  return options;
}

inline std::unique_ptr<JobRuntime> MustLoad(RuntimeOptions options) {
  auto runtime = JobRuntime::Load(std::move(options));
  MW_CHECK(runtime.has_value()) << runtime.error();
  const Status connected = (*runtime)->Connect({""});
  MW_CHECK(connected.ok()) << connected;
  return std::move(*runtime);
}

inline std::vector<float> ReadFloats(JobRuntime& runtime, int rank, const std::string& slot) {
  auto tensor = runtime.ReadPersistent(rank, slot);
  MW_CHECK(tensor.has_value()) << tensor.error();
  std::vector<float> values(tensor->data.size() / sizeof(float));
  std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  return values;
}

template <typename T>
std::vector<std::byte> AsBytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
void Write(JobRuntime& runtime, int rank, const std::string& slot, const std::vector<T>& values) {
  const Status status = runtime.WritePersistent(rank, slot, AsBytes(values));
  MW_CHECK(status.ok()) << status;
}

// Values that differ everywhere and whose sums are exact.
inline std::vector<float> Pattern(int64_t count, int rank) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i * 7 + static_cast<size_t>(rank) * 31) % 251) - 100.0f;
  }
  return values;
}

}  // namespace meshwright::worker
