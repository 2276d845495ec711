// Checks of one program that need neither its peers nor its order of execution.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/check.h"
#include "ir/lifetime.h"
#include "ir/schema_table.h"
#include "ir/verify_facts.h"

namespace meshwright::ir {
namespace {

constexpr int64_t kMaxArenaBytes = int64_t{1} << 60;

template <typename IdType, typename List>
bool InRange(IdType id, const List& list) {
  return id.index() < list.size();
}

Status CheckSlotsOf(const Program& program, const Instruction& run) {
  for (const auto& [name, ids] :
       {std::pair("input", &run.inputs), std::pair("output", &run.outputs)}) {
    for (size_t i = 0; i < ids->size(); ++i) {
      if (InRange((*ids)[i], program.slots)) continue;
      return InvalidArgument(fmt::format("{} {}: s{} is not a slot", name, i, (*ids)[i].value()));
    }
  }
  return OkStatus();
}

// The host has neither the device's workspace nor its groups.
Status CheckHostRun(const ExecutableFacts& facts) {
  if (!facts.collectives.empty()) {
    return InvalidArgument(fmt::format("the host runs {}, which meets other devices at node {}",
                                       facts.graph->name, facts.collectives.front().node));
  }
  if (facts.workspace_bytes == 0) return OkStatus();
  return InvalidArgument(fmt::format("the host runs {}, which has {} bytes of temporaries",
                                     facts.graph->name, facts.workspace_bytes));
}

class ProgramChecker {
 public:
  ProgramChecker(const Program& program,
                 const std::vector<std::shared_ptr<const ExecutableFacts>>& facts)
      : p_(program), facts_(facts) {}

  Status Run(int64_t budget_bytes) const {
    MW_CHECK(facts_.size() == p_.executables.size())
        << facts_.size() << " facts for " << p_.executables.size() << " executables";
    for (const auto& check : {&ProgramChecker::CheckMesh, &ProgramChecker::CheckSlots,
                              &ProgramChecker::CheckChannels, &ProgramChecker::CheckExecutables}) {
      MW_TRY((this->*check)().WithContext(ProgramPlace(p_)));
    }
    MW_TRY(CheckMemory(budget_bytes).WithContext(ProgramPlace(p_)));
    for (size_t i = 0; i < p_.instructions.size(); ++i) {
      const Status status = CheckInstruction(p_.instructions[i]);
      if (!status.ok()) return status.WithContext(InstructionPlace(p_, i));
    }
    return CheckRuns();
  }

 private:
  Status CheckMesh() const {
    if (p_.device_count < 1 || p_.device.value() < 0 || p_.device.value() >= p_.device_count) {
      return InvalidArgument(
          fmt::format("device {} is not one of {}", p_.device.value(), p_.device_count));
    }
    if (p_.microbatches < 1) {
      return InvalidArgument(fmt::format("microbatches {} must be at least 1", p_.microbatches));
    }
    if (p_.axes.size() != p_.coords.size()) {
      return InvalidArgument(
          fmt::format("{} mesh axes but {} coordinates", p_.axes.size(), p_.coords.size()));
    }
    int64_t size = 1;
    int64_t index = 0;
    std::set<std::string> names;
    for (size_t i = 0; i < p_.axes.size(); ++i) {
      const MeshAxis& axis = p_.axes[i];
      const bool fits = axis.size >= 1 && axis.size <= p_.device_count && p_.coords[i] >= 0 &&
                        p_.coords[i] < axis.size && size <= p_.device_count;
      if (!fits || axis.name == "micro" || !names.insert(axis.name).second) {
        return InvalidArgument(
            fmt::format("mesh axis \"{}\" of size {} at coordinate {} is not valid", axis.name,
                        axis.size, p_.coords[i]));
      }
      size *= axis.size;
      index = index * axis.size + p_.coords[i];
    }
    if (static_cast<int64_t>(p_.mesh_devices.size()) != size) {
      return InvalidArgument(
          fmt::format("{} mesh devices, the axes need {}", p_.mesh_devices.size(), size));
    }
    std::set<int> devices;
    for (DeviceIndex device : p_.mesh_devices) {
      if (device.value() < 0 || device.value() >= p_.device_count ||
          !devices.insert(device.value()).second) {
        return InvalidArgument(
            fmt::format("mesh device {} is repeated or out of range", device.value()));
      }
    }
    if (p_.mesh_devices[static_cast<size_t>(index)] != p_.device) {
      return InvalidArgument(fmt::format("the coordinates are those of device {}",
                                         p_.mesh_devices[static_cast<size_t>(index)].value()));
    }
    return OkStatus();
  }

  Status CheckSlots() const {
    std::set<std::string> names;
    for (size_t i = 0; i < p_.slots.size(); ++i) {
      const Slot& slot = p_.slots[i];
      MW_TRY(CheckType(slot.type).WithContext(fmt::format("slot s{}", i)));
      if (slot.space == Space::kDisk && !slot.persistent) {
        return InvalidArgument(fmt::format("slot s{}: only what is persistent is on a disk", i));
      }
      if (slot.persistent) {
        if (slot.name.empty() || !names.insert(slot.name).second) {
          return InvalidArgument(
              fmt::format("slot s{}: persistent name \"{}\" is empty or taken", i, slot.name));
        }
        continue;
      }
      const int64_t arena_bytes = slot.space == Space::kHost ? kMaxArenaBytes : p_.arena_bytes;
      const bool fits = slot.offset_bytes >= 0 && slot.offset_bytes % kSlotAlignmentBytes == 0 &&
                        slot.offset_bytes <= arena_bytes &&
                        slot.type.bytes() <= arena_bytes - slot.offset_bytes;
      if (!fits) {
        return InvalidArgument(fmt::format(
            "slot s{}: {} bytes at {} must be 64-byte aligned and inside the arena of {} bytes", i,
            slot.type.bytes(), slot.offset_bytes, arena_bytes));
      }
    }
    for (const Program::Report& report : p_.reports) {
      if (!InRange(report.slot, p_.slots) || p_.slot(report.slot).type.elements() != 1) {
        return InvalidArgument(
            fmt::format("report \"{}\" reads s{}, which is not a slot with a scalar", report.name,
                        report.slot.value()));
      }
      if (p_.slot(report.slot).space == Space::kDisk) {
        return InvalidArgument(fmt::format("report \"{}\" reads s{}, which is on the disk",
                                           report.name, report.slot.value()));
      }
    }
    for (const Program::Report& output : p_.outputs) MW_TRY(CheckOutput(output));
    return OkStatus();
  }

  // An output says which block of its tensor it is: nobody else knows.
  Status CheckOutput(const Program::Report& output) const {
    if (!InRange(output.slot, p_.slots) || p_.slot(output.slot).persistent) {
      return InvalidArgument(fmt::format("output \"{}\" reads s{}, which is not a transient slot",
                                         output.name, output.slot.value()));
    }
    const Slot& slot = p_.slot(output.slot);
    const Status fits = [&]() -> Status {
      if (slot.box.size != slot.type.dims) {
        return InvalidArgument(fmt::format("its slot is {}, its part {} elements per dim",
                                           slot.type.ToString(), fmt::join(slot.box.size, ",")));
      }
      MW_TRY(ResolveBox(slot.box, slot.global_dims));
      return OkStatus();
    }();
    return fits.WithContext(fmt::format("output \"{}\"", output.name));
  }

  Status CheckChannels() const {
    for (size_t i = 0; i < p_.channels.size(); ++i) {
      const ChannelEnd& channel = p_.channels[i];
      const int peer = channel.peer.value();
      if (channel.capacity >= 1 && channel.max_message_bytes >= 0 && peer >= 0 &&
          peer < p_.device_count && peer != p_.device.value()) {
        continue;
      }
      return InvalidArgument(
          fmt::format("channel c{} \"{}\" to device {} of capacity {}: the peer must be another "
                      "device and the capacity "
                      "at least 1",
                      i, channel.name, peer, channel.capacity));
    }
    return OkStatus();
  }

  Status CheckExecutables() const {
    for (size_t i = 0; i < facts_.size(); ++i) {
      const ExecutableFacts& facts = *facts_[i];
      if (facts.workspace_bytes > p_.workspace_bytes) {
        return InvalidArgument(
            fmt::format("executable e{} needs {} bytes of workspace, there are {}", i,
                        facts.workspace_bytes, p_.workspace_bytes));
      }
      for (const CollectiveFact& collective : facts.collectives) {
        auto group = GroupOf(p_, collective.axes);
        if (!group) {
          return group.error().WithContext(
              fmt::format("executable e{}, node {}", i, collective.node));
        }
        if (collective.ratio == 0 || collective.ratio == static_cast<int64_t>(group->size()))
          continue;
        return InvalidArgument(fmt::format(
            "executable e{}, node {}: {} has shapes for a group of {}, axes [{}] have {}", i,
            collective.node, collective.signature, collective.ratio,
            fmt::join(collective.axes, ","), group->size()));
      }
    }
    return OkStatus();
  }

  Status CheckMemory(int64_t budget_bytes) const {
    if (p_.arena_bytes < 0 || p_.arena_bytes > kMaxArenaBytes || p_.workspace_offset < 0 ||
        p_.workspace_bytes < 0 || p_.workspace_offset % kSlotAlignmentBytes != 0 ||
        p_.workspace_offset > p_.arena_bytes ||
        p_.workspace_bytes > p_.arena_bytes - p_.workspace_offset) {
      return InvalidArgument(fmt::format(
          "workspace of {} bytes at {} must be 64-byte aligned and inside the arena of {} bytes",
          p_.workspace_bytes, p_.workspace_offset, p_.arena_bytes));
    }
    int64_t total = p_.arena_bytes;
    for (const Slot& slot : p_.slots) {
      if (!slot.persistent || slot.space != Space::kDevice) continue;
      if (__builtin_add_overflow(total, slot.type.bytes(), &total)) {
        total = std::numeric_limits<int64_t>::max();
        break;
      }
    }
    if (total <= budget_bytes) return OkStatus();
    return InvalidArgument(
        fmt::format("needs {} bytes of memory, the budget is {}", total, budget_bytes));
  }

  Status CheckInstruction(const Instruction& instruction) const {
    switch (instruction.op) {
      case Opcode::kRun:
        return CheckRun(instruction);
      case Opcode::kSend:
      case Opcode::kRecv:
        return CheckTransfer(instruction);
      case Opcode::kPrefetch:
      case Opcode::kOffload:
        return CheckTierCopy(instruction);
      case Opcode::kFree:
        return CheckFree(instruction);
    }
    return InvalidArgument("opcode out of range");
  }

  Status CheckRun(const Instruction& run) const {
    if (!InRange(run.executable, p_.executables)) return InvalidArgument("no such executable");
    if (run.microbatch < 0 || run.microbatch >= p_.microbatches) {
      return InvalidArgument(fmt::format("microbatch must be in [0, {})", p_.microbatches));
    }
    const ExecutableFacts& facts = *facts_[run.executable.index()];
    const size_t output_count = facts.graph->outputs.size();
    MW_TRY(CheckSlotsOf(p_, run));
    const bool on_host = RunsOnHost(p_, run);
    if (on_host) MW_TRY(CheckHostRun(facts));
    const Space space = on_host ? Space::kHost : Space::kDevice;
    if (run.inputs.size() != facts.inputs.size() || run.outputs.size() != output_count) {
      return InvalidArgument(fmt::format("{} inputs and {} outputs, the executable has {} and {}",
                                         run.inputs.size(), run.outputs.size(), facts.inputs.size(),
                                         output_count));
    }
    for (size_t i = 0; i < run.inputs.size(); ++i) {
      MW_TRY(CheckOperand(run.inputs[i], facts.input_type(i), space, "input", i));
    }
    std::set<SlotId> outputs;
    for (size_t o = 0; o < run.outputs.size(); ++o) {
      MW_TRY(CheckOperand(run.outputs[o], facts.output_type(o), space, "output", o));
      if (!outputs.insert(run.outputs[o]).second) {
        return InvalidArgument(fmt::format("s{} is written twice", run.outputs[o].value()));
      }
      for (size_t i = 0; i < run.inputs.size(); ++i) {
        if (run.inputs[i] != run.outputs[o] || facts.MayReplace(i, o)) continue;
        return InvalidArgument(fmt::format(
            "s{} is updated in place, but input {} is still needed when output {} is written",
            run.inputs[i].value(), i, o));
      }
    }
    return OkStatus();
  }

  // space: of those who run it.
  Status CheckOperand(SlotId id, const TensorType& type, Space space, const char* what,
                      size_t at) const {
    if (p_.slot(id).space != space) {
      return InvalidArgument(fmt::format("{} {}: s{} is {}: PREFETCH it, and run with the copy",
                                         what, at, id.value(), PlaceOf(p_.slot(id).space)));
    }
    if (p_.slot(id).type == type) return OkStatus();
    return InvalidArgument(fmt::format("{} {}: s{} is {}, the executable has {}", what, at,
                                       id.value(), p_.slot(id).type.ToString(), type.ToString()));
  }

  Status CheckTransfer(const Instruction& transfer) const {
    if (!InRange(transfer.slot, p_.slots)) return InvalidArgument("no such slot");
    if (p_.slot(transfer.slot).space != Space::kDevice) {
      return InvalidArgument(fmt::format("s{} is {}: PREFETCH or OFFLOAD it", transfer.slot.value(),
                                         PlaceOf(p_.slot(transfer.slot).space)));
    }
    if (!InRange(transfer.channel, p_.channels)) return InvalidArgument("no such channel");
    const ChannelEnd& channel = p_.channels[transfer.channel.index()];
    if (channel.outgoing != (transfer.op == Opcode::kSend)) {
      return InvalidArgument("the channel has the other direction");
    }
    const TensorType& type = p_.slot(transfer.slot).type;
    MW_ASSIGN_OR_RETURN(const Box box, ResolveBox(transfer.box, type.dims));
    const int64_t bytes = TensorType{type.dtype, box.size}.bytes();
    if (bytes <= channel.max_message_bytes) return OkStatus();
    return InvalidArgument(fmt::format("the tile has {} bytes, the channel takes {}", bytes,
                                       channel.max_message_bytes));
  }

  static const char* PlaceOf(Space space) {
    return space == Space::kDisk ? "on the disk" : "in the host's memory";
  }

  // Between a slot of a farther memory and a transient one of the device of the same type.
  Status CheckTierCopy(const Instruction& copy) const {
    if (copy.inputs.size() != 1 || copy.outputs.size() != 1 || !InRange(copy.inputs[0], p_.slots) ||
        !InRange(copy.outputs[0], p_.slots)) {
      return InvalidArgument("copies one slot to one slot");
    }
    const bool fetches = copy.op == Opcode::kPrefetch;
    const Slot& far = p_.slot(fetches ? copy.inputs[0] : copy.outputs[0]);
    const Slot& device = p_.slot(fetches ? copy.outputs[0] : copy.inputs[0]);
    if (far.space == Space::kDevice || device.space != Space::kDevice || device.persistent) {
      return InvalidArgument(
          "copies between a slot of the host's memory or a disk and a transient one of the device");
    }
    if (far.type == device.type) return OkStatus();
    return InvalidArgument(fmt::format("\"{}\" is {}, its copy {}", far.name, far.type.ToString(),
                                       device.type.ToString()));
  }

  Status CheckFree(const Instruction& free) const {
    if (free.inputs.empty()) return InvalidArgument("frees nothing");
    for (SlotId id : free.inputs) {
      if (!InRange(id, p_.slots))
        return InvalidArgument(fmt::format("s{} is not a slot", id.value()));
      if (p_.slot(id).persistent) {
        return InvalidArgument(
            fmt::format("s{} is persistent and outlives the program", id.value()));
      }
    }
    return OkStatus();
  }

  // Rule 1 of ir/verify.h.
  Status CheckRuns() const {
    std::vector<int32_t> next(p_.executables.size(), 0);
    for (size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& run = p_.instructions[i];
      if (run.op != Opcode::kRun) continue;
      int32_t& expected = next[run.executable.index()];
      if (run.microbatch != expected || expected >= WantedRuns(run.executable)) {
        return InvalidArgument(
            fmt::format("{}: expected microbatch {} of {}; {}", InstructionPlace(p_, i), expected,
                        WantedRuns(run.executable), CadenceText(run.executable)));
      }
      ++expected;
    }
    for (size_t e = 0; e < next.size(); ++e) {
      const ExecutableIndex id(static_cast<int32_t>(e));
      if (next[e] == WantedRuns(id)) continue;
      return InvalidArgument(fmt::format("{}: executable e{} runs {} times, expected {}; {}",
                                         ProgramPlace(p_), e, next[e], WantedRuns(id),
                                         CadenceText(id)));
    }
    return OkStatus();
  }

  int32_t WantedRuns(ExecutableIndex id) const {
    const Cadence cadence = facts_[id.index()]->cadence;
    return RunsPerMicrobatch(cadence) ? p_.microbatches : 1;
  }

  std::string CadenceText(ExecutableIndex id) const {
    const bool per_microbatch = RunsPerMicrobatch(facts_[id.index()]->cadence);
    return per_microbatch
               ? "it has forward or backward nodes, so it runs once for every microbatch in order "
                 "(once-per-step work has Phase::kUpdate nodes only)"
               : "it has update nodes or constants only, so it runs once, as microbatch 0";
  }

  const Program& p_;
  const std::vector<std::shared_ptr<const ExecutableFacts>>& facts_;
};

}  // namespace

Status CheckProgram(const Program& program,
                    const std::vector<std::shared_ptr<const ExecutableFacts>>& facts,
                    int64_t memory_budget_bytes) {
  return ProgramChecker(program, facts).Run(memory_budget_bytes);
}

}  // namespace meshwright::ir
