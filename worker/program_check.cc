#include "worker/program_check.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "device/device.h"
#include "ir/verify.h"

namespace meshwright::worker {
namespace {

using ir::Instruction;
using ir::Opcode;
using ir::Program;

constexpr int64_t kMaxBytes = int64_t{1} << 50;

template <typename Id, typename Items>
bool InRange(Id id, const Items& items) {
  return id.index() < items.size();
}

bool IsScalarReport(const ir::TensorType& type) {
  return type.elements() == 1 && (type.dtype == ir::DType::kF32 || type.dtype == ir::DType::kF64);
}

// Bytes of a type with dims >= 1, or -1 when they are not sane.
int64_t CheckedBytes(const ir::TensorType& type) {
  int64_t bytes = ir::DTypeBytes(type.dtype);
  for (int64_t dim : type.dims) {
    if (dim < 1 || __builtin_mul_overflow(bytes, dim, &bytes) || bytes > kMaxBytes) return -1;
  }
  return bytes;
}

// A persistent slot says which part of a tensor its first elements are (ir::Slot::part), or
// nothing.
bool HoldsItsPart(const ir::Slot& slot) {
  const size_t rank = slot.type.dims.size();
  if (slot.box.offset.empty() && slot.box.size.empty()) return true;
  if (slot.global_dims.size() != rank || slot.box.offset.size() != rank ||
      slot.box.size.size() != rank) {
    return false;
  }
  for (size_t d = 0; d < rank; ++d) {
    const int64_t size = slot.box.size[d];
    const int64_t offset = slot.box.offset[d];
    if (size < 0 || size > slot.type.dims[d] || offset < 0) return false;
    if (offset > slot.global_dims[d] || size > slot.global_dims[d] - offset) return false;
  }
  return true;
}

Status CheckMesh(const Program& program) {
  int64_t devices = 1;
  if (program.axes.size() != program.coords.size()) {
    return InvalidArgument(fmt::format("{} axes and {} coords; one coord per axis is needed",
                                       program.axes.size(), program.coords.size()));
  }
  int64_t position = 0;
  for (size_t i = 0; i < program.axes.size(); ++i) {
    const ir::MeshAxis& axis = program.axes[i];
    if (axis.size < 1 || axis.size > program.device_count || program.coords[i] < 0 ||
        program.coords[i] >= axis.size) {
      return InvalidArgument(fmt::format("axis {} of size {} with coord {} on {} devices",
                                         axis.name, axis.size, program.coords[i],
                                         program.device_count));
    }
    position = position * axis.size + program.coords[i];
    devices *= axis.size;
    if (devices > program.device_count) break;
  }
  if (devices != static_cast<int64_t>(program.mesh_devices.size()) ||
      program.mesh_devices[static_cast<size_t>(position)] != program.device) {
    return InvalidArgument(
        fmt::format("the mesh has {} positions and {} devices; device {} must stand at its coords",
                    devices, program.mesh_devices.size(), program.device.value()));
  }
  std::set<DeviceIndex> distinct;
  for (DeviceIndex device : program.mesh_devices) {
    if (device.value() < 0 || device.value() >= program.device_count ||
        !distinct.insert(device).second) {
      return InvalidArgument(fmt::format("mesh device {} is repeated or not one of {} devices",
                                         device.value(), program.device_count));
    }
  }
  if (program.microbatches < 1) {
    return InvalidArgument(fmt::format("{} microbatches; at least 1", program.microbatches));
  }
  return OkStatus();
}

// [offset, offset + bytes) inside the arena and aligned.
Status CheckArenaRange(int64_t arena_bytes, const std::string& what, int64_t offset,
                       int64_t bytes) {
  if (offset >= 0 && offset % device::kAlignmentBytes == 0 && bytes >= 0 && bytes <= arena_bytes &&
      offset <= arena_bytes - bytes) {
    return OkStatus();
  }
  return InvalidArgument(
      fmt::format("{}: {} bytes at offset {} do not fit an arena of {} bytes at 64-byte alignment",
                  what, bytes, offset, arena_bytes));
}

Status CheckSlots(const Program& program) {
  if (program.arena_bytes < 0 || program.arena_bytes > kMaxBytes) {
    return InvalidArgument(fmt::format("an arena of {} bytes", program.arena_bytes));
  }
  MW_TRY(CheckArenaRange(program.arena_bytes, "workspace", program.workspace_offset,
                         program.workspace_bytes));
  std::set<std::string> persistent;
  for (size_t i = 0; i < program.slots.size(); ++i) {
    const ir::Slot& slot = program.slots[i];
    const std::string name = fmt::format("slot s{} '{}' {}", i, slot.name, slot.type.ToString());
    const int64_t bytes = CheckedBytes(slot.type);
    if (bytes < 0) return InvalidArgument(name + ": dims must be >= 1 and the bytes sane");
    if (!slot.persistent) {
      if (slot.space == ir::Space::kDisk) {
        return InvalidArgument(name + ": only what is persistent is on a disk");
      }
      const bool host = slot.space == ir::Space::kHost;
      MW_TRY(
          CheckArenaRange(host ? kMaxBytes : program.arena_bytes, name, slot.offset_bytes, bytes));
    } else if (slot.name.empty() || !persistent.insert(slot.name).second) {
      return InvalidArgument(name + ": a persistent slot needs a name of its own");
    } else if (!HoldsItsPart(slot)) {
      return InvalidArgument(name + ": its part is not within it and the whole tensor");
    }
  }
  return OkStatus();
}

Status CheckExecutables(const Program& program) {
  for (size_t i = 0; i < program.executables.size(); ++i) {
    const ir::Graph* graph = program.executables[i].graph.get();
    if (graph == nullptr) return InvalidArgument(fmt::format("executable e{} has no graph", i));
    MW_TRY(ir::VerifyGraph(*graph).WithContext(fmt::format("executable e{}", i)));
    for (const ir::Value& value : graph->values) {
      if (CheckedBytes(value.type) < 0) {
        return InvalidArgument(fmt::format(
            "executable e{}: {}: dims must be >= 1 and the bytes sane", i, value.type.ToString()));
      }
    }
    const ir::WorkspacePlan plan = ir::PlanWorkspace(*graph);
    if (plan.bytes > program.workspace_bytes) {
      return InvalidArgument(
          fmt::format("executable e{} '{}' needs a workspace of {} bytes, the program has {}", i,
                      graph->name, plan.bytes, program.workspace_bytes));
    }
  }
  return OkStatus();
}

Status CheckChannels(const Program& program) {
  for (size_t i = 0; i < program.channels.size(); ++i) {
    const ir::ChannelEnd& end = program.channels[i];
    const bool known = end.peer.value() >= 0 && end.peer.value() < program.device_count;
    if (!known || end.peer == program.device || end.capacity < 1 || end.max_message_bytes < 1 ||
        end.name.empty()) {
      return InvalidArgument(
          fmt::format("channel c{} '{}' to device {}, capacity {}, {} bytes: needs a name, another "
                      "device of the {} and positive sizes",
                      i, end.name, end.peer.value(), end.capacity, end.max_message_bytes,
                      program.device_count));
    }
  }
  return OkStatus();
}

Status CheckSlotType(const Program& program, SlotId id, const ir::TensorType& want,
                     ir::Space space) {
  if (program.slot(id).space != space) {
    return InvalidArgument(
        fmt::format("slot s{} is not in the {}'s memory", id.value(), ir::SpaceName(space)));
  }
  if (program.slot(id).type == want) return OkStatus();
  return InvalidArgument(fmt::format("slot s{} is {}, the executable has {}", id.value(),
                                     program.slot(id).type.ToString(), want.ToString()));
}

Status CheckRun(const Program& program, const Instruction& run) {
  if (!InRange(run.executable, program.executables)) {
    return InvalidArgument(fmt::format("executable e{} does not exist", run.executable.value()));
  }
  if (run.microbatch < 0 || run.microbatch >= program.microbatches) {
    return InvalidArgument(
        fmt::format("microbatch {} of {}", run.microbatch, program.microbatches));
  }
  const ir::Graph& graph = *program.executables[run.executable.index()].graph;
  const std::vector<NodeId> inputs = graph.NodesOf(ir::Op::kInput);
  if (inputs.size() != run.inputs.size() || graph.outputs.size() != run.outputs.size()) {
    return InvalidArgument(fmt::format("{} inputs and {} outputs; the executable has {} and {}",
                                       run.inputs.size(), run.outputs.size(), inputs.size(),
                                       graph.outputs.size()));
  }
  for (const auto* const ids : {&run.inputs, &run.outputs}) {
    for (const SlotId id : *ids) {
      if (InRange(id, program.slots)) continue;
      return InvalidArgument(fmt::format("slot s{} does not exist", id.value()));
    }
  }
  const bool on_host = ir::RunsOnHost(program, run);
  const ir::Space space = on_host ? ir::Space::kHost : ir::Space::kDevice;
  if (on_host && ir::PlanWorkspace(graph).bytes > 0) {
    return InvalidArgument(fmt::format("the host runs {}, which has temporaries", graph.name));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    MW_TRY(
        CheckSlotType(program, run.inputs[i], graph.type(graph.node(inputs[i]).outputs[0]), space));
  }
  std::set<SlotId> distinct;
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    MW_TRY(CheckSlotType(program, run.outputs[i], graph.type(graph.outputs[i].value), space));
    if (!distinct.insert(run.outputs[i]).second) {
      return InvalidArgument(fmt::format("two outputs in slot s{}", run.outputs[i].value()));
    }
  }
  return OkStatus();
}

Status CheckTransfer(const Program& program, const Instruction& transfer) {
  if (!InRange(transfer.slot, program.slots) || !InRange(transfer.channel, program.channels)) {
    return InvalidArgument(fmt::format("slot s{} or channel c{} does not exist",
                                       transfer.slot.value(), transfer.channel.value()));
  }
  const ir::Slot& slot = program.slot(transfer.slot);
  const ir::ChannelEnd& end = program.channels[transfer.channel.index()];
  if (end.outgoing != (transfer.op == Opcode::kSend)) {
    return InvalidArgument(fmt::format("the channel goes {}", end.outgoing ? "out" : "in"));
  }
  const ir::Box& box = transfer.box;
  const size_t rank = slot.type.dims.size();
  int64_t bytes = slot.type.bytes();
  if (!box.offset.empty() || !box.size.empty()) {
    if (box.offset.size() != rank || box.size.size() != rank) {
      return InvalidArgument(fmt::format("a box of other rank than {}", slot.type.ToString()));
    }
    bytes = ir::DTypeBytes(slot.type.dtype);
    for (size_t d = 0; d < rank; ++d) {
      if (box.offset[d] < 0 || box.size[d] < 1 || box.size[d] > slot.type.dims[d] ||
          box.offset[d] > slot.type.dims[d] - box.size[d]) {
        return InvalidArgument(fmt::format("the box leaves {} in dim {}", slot.type.ToString(), d));
      }
      bytes *= box.size[d];
    }
  }
  if (bytes > end.max_message_bytes) {
    return InvalidArgument(
        fmt::format("a message of {} bytes on a channel for {}", bytes, end.max_message_bytes));
  }
  return OkStatus();
}

Status CheckTierCopy(const Program& program, const Instruction& copy) {
  const bool named = copy.inputs.size() == 1 && copy.outputs.size() == 1 &&
                     InRange(copy.inputs[0], program.slots) &&
                     InRange(copy.outputs[0], program.slots);
  if (!named) return InvalidArgument("a copy names one slot, and another that it goes to");
  const bool far = program.slot(copy.inputs[0]).space != ir::Space::kDevice;
  if (far == (program.slot(copy.outputs[0]).space != ir::Space::kDevice)) {
    return InvalidArgument("a copy goes between the device's memory and a farther one");
  }
  if (program.slot(copy.inputs[0]).type == program.slot(copy.outputs[0]).type) return OkStatus();
  return InvalidArgument(fmt::format("slot s{} is copied to s{} of another type",
                                     copy.inputs[0].value(), copy.outputs[0].value()));
}

Status CheckInstruction(const Program& program, const Instruction& instruction) {
  switch (instruction.op) {
    case Opcode::kRun:
      return CheckRun(program, instruction);
    case Opcode::kSend:
    case Opcode::kRecv:
      return CheckTransfer(program, instruction);
    case Opcode::kPrefetch:
    case Opcode::kOffload:
      return CheckTierCopy(program, instruction);
    case Opcode::kFree:
      for (SlotId id : instruction.inputs) {
        if (!InRange(id, program.slots)) {
          return InvalidArgument(fmt::format("slot s{} does not exist", id.value()));
        }
      }
      return OkStatus();
  }
  return InvalidArgument(fmt::format("opcode {}", static_cast<int>(instruction.op)));
}

Status CheckParts(const Program& program) {
  if (program.name.empty() || program.device.value() < 0 ||
      program.device.value() >= program.device_count) {
    return InvalidArgument(
        fmt::format("needs a name and a device of the job's {}", program.device_count));
  }
  MW_TRY(CheckMesh(program));
  MW_TRY(CheckSlots(program));
  MW_TRY(CheckExecutables(program));
  MW_TRY(CheckChannels(program));
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (Status status = CheckInstruction(program, program.instructions[i]); !status.ok()) {
      return status.WithContext(fmt::format("instruction {}", i));
    }
  }
  for (const Program::Report& report : program.reports) {
    if (!InRange(report.slot, program.slots) || !IsScalarReport(program.slot(report.slot).type)) {
      return InvalidArgument(fmt::format("report '{}' from slot s{}: must be one f32 or f64",
                                         report.name, report.slot.value()));
    }
  }
  for (const Program::Report& output : program.outputs) {
    if (!InRange(output.slot, program.slots) || program.slot(output.slot).persistent) {
      return InvalidArgument(fmt::format("output '{}' from slot s{}: must be a transient slot",
                                         output.name, output.slot.value()));
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckProgram(const ir::Program& program) {
  const Status status = CheckParts(program);
  if (status.ok()) return status;
  return status.WithContext(fmt::format("program {}/{}", program.name, program.device.value()));
}

}  // namespace meshwright::worker
