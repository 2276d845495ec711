#include "planner/simulate_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "mesh/sharding.h"
#include "planner/cost_model.h"
#include "planner/simulate.h"

namespace meshwright::planner {
namespace {

template <typename IdType>
bool InRange(IdType id, size_t count) {
  return id.index() < count;
}

class SetupMaker {
 public:
  SetupMaker(std::span<const ir::Program> programs, const SimulationCosts& costs)
      : programs_(programs), costs_(costs) {}

  Result<SimSetup> Run() {
    for (size_t i = 0; i < programs_.size(); ++i) {
      const int32_t device = programs_[i].device.value();
      if (!position_of_.emplace(device, static_cast<int>(i)).second) {
        return Fail(InvalidArgument(
            fmt::format("simulate: two programs are for device {}; give one per device", device)));
      }
    }
    for (const ir::Program& program : programs_) {
      MW_TRY(CheckMesh(program));
      for (size_t i = 0; i < program.instructions.size(); ++i) MW_TRY(CheckInstruction(program, i));
    }
    MW_TRY(PairChannels());
    for (const ir::Program& program : programs_) MW_TRY(ResolveExecutables(program));
    return std::move(setup_);
  }

 private:
  Status CheckMesh(const ir::Program& program) const {
    int64_t count = 1;
    bool valid = program.coords.size() == program.axes.size();
    for (size_t a = 0; valid && a < program.axes.size(); ++a) {
      valid = program.axes[a].size >= 1 && program.coords[a] >= 0 &&
              program.coords[a] < program.axes[a].size;
      count *= program.axes[a].size;
    }
    if (valid && static_cast<int64_t>(program.mesh_devices.size()) == count) return OkStatus();
    return InvalidArgument(
        fmt::format("simulate: device {}: {} axes, {} coordinates and {} mesh devices do not fit "
                    "together",
                    program.device.value(), program.axes.size(), program.coords.size(),
                    program.mesh_devices.size()));
  }

  Status CheckInstruction(const ir::Program& program, size_t index) const {
    const ir::Instruction& instruction = program.instructions[index];
    const auto wrong = [&](std::string_view what) {
      return InvalidArgument(fmt::format("simulate: device {}: instruction {} names {}",
                                         program.device.value(), index, what));
    };
    switch (instruction.op) {
      case ir::Opcode::kRun:
        if (!InRange(instruction.executable, program.executables.size())) {
          return wrong(fmt::format("executable {} of {}", instruction.executable.value(),
                                   program.executables.size()));
        }
        break;
      case ir::Opcode::kSend:
      case ir::Opcode::kRecv: {
        if (!InRange(instruction.slot, program.slots.size())) {
          return wrong(
              fmt::format("slot {} of {}", instruction.slot.value(), program.slots.size()));
        }
        if (!InRange(instruction.channel, program.channels.size())) {
          return wrong(fmt::format("channel {} of {}", instruction.channel.value(),
                                   program.channels.size()));
        }
        const auto channel = instruction.channel.index();
        if (program.channels[channel].outgoing != (instruction.op == ir::Opcode::kSend)) {
          return wrong(fmt::format("channel {} against its direction", channel));
        }
        break;
      }
      case ir::Opcode::kPrefetch:
      case ir::Opcode::kOffload:
        if (instruction.inputs.size() != 1 || instruction.outputs.size() != 1 ||
            !InRange(instruction.inputs[0], program.slots.size()) ||
            !InRange(instruction.outputs[0], program.slots.size())) {
          return wrong("other than two slots");
        }
        break;
      case ir::Opcode::kFree:
        break;
    }
    return OkStatus();
  }

  Status PairChannels() {
    std::map<std::string, int> index_of;
    setup_.channel_of.resize(programs_.size());
    for (size_t i = 0; i < programs_.size(); ++i) {
      for (const ir::ChannelEnd& end : programs_[i].channels) {
        const auto [it, fresh] =
            index_of.emplace(end.name, static_cast<int>(setup_.channels.size()));
        if (fresh) setup_.channels.push_back({end.name, end.capacity, -1, -1});
        SimChannel& channel = setup_.channels[static_cast<size_t>(it->second)];
        int& mine = end.outgoing ? channel.sender : channel.receiver;
        if (mine >= 0) {
          return InvalidArgument(fmt::format("simulate: channel \"{}\" has two {} ends", end.name,
                                             end.outgoing ? "sending" : "receiving"));
        }
        mine = static_cast<int>(i);
        channel.capacity = std::min(channel.capacity, end.capacity);
        setup_.channel_of[i].push_back(it->second);
      }
    }
    for (const SimChannel& channel : setup_.channels) {
      if (channel.sender < 0 || channel.receiver < 0) {
        return InvalidArgument(fmt::format("simulate: channel \"{}\" has no {} end", channel.name,
                                           channel.sender < 0 ? "sending" : "receiving"));
      }
      if (channel.capacity < 1) {
        return InvalidArgument(fmt::format("simulate: channel \"{}\" has capacity {}; at least 1",
                                           channel.name, channel.capacity));
      }
    }
    return OkStatus();
  }

  Status ResolveExecutables(const ir::Program& program) {
    std::vector<SimExecutable>& resolved = setup_.executables.emplace_back();
    for (size_t e = 0; e < program.executables.size(); ++e) {
      const ir::Executable& executable = program.executables[e];
      if (executable.graph == nullptr) {
        return InvalidArgument(fmt::format("simulate: device {}: executable {} has no graph",
                                           program.device.value(), e));
      }
      SimExecutable& out = resolved.emplace_back();
      out.piece = ExecutablePiece(executable);
      out.cost_s = costs_.run_s(program, executable);
      if (!(out.cost_s >= 0) || !std::isfinite(out.cost_s)) {
        return InvalidArgument(fmt::format("simulate: device {}: executable {} costs {} s",
                                           program.device.value(), executable.graph->name,
                                           out.cost_s));
      }
      MW_ASSIGN_OR_RETURN(out.group, GroupOf(program, *executable.graph));
    }
    return OkStatus();
  }

  // The devices that differ from this one in the axes of any collective of the graph.
  Result<int> GroupOf(const ir::Program& program, const ir::Graph& graph) {
    std::set<std::string> named;
    for (const ir::Node& node : graph.nodes) {
      if (!IsCollective(node.op)) continue;
      for (std::string& axis : node.attrs.Strs("axes")) named.insert(std::move(axis));
    }
    if (named.empty()) return -1;
    const mesh::Mesh mesh{program.axes, program.mesh_devices};
    int64_t at = 0;
    for (size_t a = 0; a < program.axes.size(); ++a) {
      at = at * program.axes[a].size + program.coords[a];
    }
    SimGroup group;
    for (DeviceIndex device : mesh.GroupOf(at, mesh::AxisList(named.begin(), named.end()))) {
      const auto it = position_of_.find(device.value());
      if (it == position_of_.end() && costs_.stand_for_others) continue;
      if (it == position_of_.end()) {
        return Fail(InvalidArgument(fmt::format(
            "simulate: device {}: the collectives of {} need device {}, which has no program",
            program.device.value(), graph.name, device.value())));
      }
      group.members.push_back(it->second);
    }
    std::sort(group.members.begin(), group.members.end());
    if (group.members.size() == 1) return -1;
    const auto [it, fresh] =
        group_of_.emplace(group.members, static_cast<int>(setup_.groups.size()));
    if (fresh) setup_.groups.push_back(std::move(group));
    return it->second;
  }

  std::span<const ir::Program> programs_;
  const SimulationCosts& costs_;
  std::map<int32_t, int> position_of_;
  std::map<std::vector<int>, int> group_of_;
  SimSetup setup_;
};

}  // namespace

Result<SimSetup> MakeSimSetup(std::span<const ir::Program> programs, const SimulationCosts& costs) {
  return SetupMaker(programs, costs).Run();
}

int64_t MessageBytes(const ir::Program& program, const ir::Instruction& instruction) {
  const ir::TensorType& type = program.slot(instruction.slot).type;
  if (instruction.box.size.empty()) return type.bytes();
  int64_t bytes = ir::DTypeBytes(type.dtype);
  for (int64_t size : instruction.box.size) bytes *= size;
  return bytes;
}

}  // namespace meshwright::planner
