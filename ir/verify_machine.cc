#include "ir/verify_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace meshwright::ir {
namespace {

// Notes a tile of a value at one end of a channel. Offsets must grow, so that both ends agree on
// which tile is which.
template <typename FlowMap>
Status NoteTile(FlowMap& flows, const Content& content, SlotId slot, const Dims& offset) {
  const auto [it, first] = flows.try_emplace({content.name, content.microbatch});
  auto& flow = it->second;
  if (!first && (flow.slot != slot || flow.offset >= offset)) {
    return InvalidArgument(
        fmt::format("tiles of \"{}\" on one channel must be of one slot (s{}) and in growing order",
                    content.name, flow.slot.value()));
  }
  flow.slot = slot;
  flow.offset = offset;
  return OkStatus();
}

}  // namespace

VerifyMachine::VerifyMachine(std::vector<Member> members, bool one_per_mesh)
    : members_(std::move(members)), one_per_mesh_(one_per_mesh) {
  for (const Member& member : members_) {
    by_rank_[member.program->device.value()] = devices_.size();
    devices_.push_back(
        Device{&member, SlotStates(*member.program, member.facts), {}, {}, 0, {}, {}});
  }
}

Status VerifyMachine::Connect() {
  MW_TRY(ConnectChannels());
  for (size_t i = 0; i < devices_.size(); ++i) MW_TRY(ConnectMesh(i));
  return OkStatus();
}

Status VerifyMachine::ConnectChannels() {
  struct End {
    const Program* program;
    const ChannelEnd* channel;
  };
  std::map<std::string, std::vector<End>> ends;
  for (const Device& device : devices_) {
    for (const ChannelEnd& channel : device.member->program->channels) {
      ends[channel.name].push_back({device.member->program, &channel});
    }
  }
  for (const auto& [name, pair] : ends) {
    const End& a = pair[0];
    const End& b = pair.back();
    const bool paired = pair.size() == 2 && a.channel->outgoing != b.channel->outgoing &&
                        a.channel->peer == b.program->device &&
                        b.channel->peer == a.program->device;
    if (!paired || a.channel->capacity != b.channel->capacity ||
        a.channel->max_message_bytes != b.channel->max_message_bytes) {
      return InvalidArgument(
          fmt::format("{}: channel \"{}\" needs exactly one end at device {} with the other "
                      "direction and equal capacity "
                      "and bytes",
                      ProgramPlace(*a.program), name, a.channel->peer.value()));
    }
    channels_[name] = std::make_unique<Channel>();
    channels_[name]->capacity = a.channel->capacity;
  }
  for (Device& device : devices_) {
    for (const ChannelEnd& channel : device.member->program->channels) {
      device.channels.push_back(channels_[channel.name].get());
    }
  }
  return OkStatus();
}

Status VerifyMachine::ConnectMesh(size_t index) {
  Device& device = devices_[index];
  const Program& program = *device.member->program;
  if (one_per_mesh_) {
    for (const auto& facts : device.member->facts) {
      device.groups.emplace_back(facts->collectives.size(), nullptr);
    }
    return OkStatus();
  }
  for (DeviceIndex rank : program.mesh_devices) {
    const auto peer = by_rank_.find(rank.value());
    const Program* other =
        peer == by_rank_.end() ? nullptr : devices_[peer->second].member->program;
    const bool agrees =
        other && other->axes == program.axes && other->mesh_devices == program.mesh_devices &&
        other->stage == program.stage && other->executables.size() == program.executables.size();
    if (!agrees) {
      return InvalidArgument(
          fmt::format("{}: device {} of its mesh has no program with the same stage, axes, mesh "
                      "and executables",
                      ProgramPlace(program), rank.value()));
    }
    for (size_t e = 0; e < program.executables.size(); ++e) {
      const Executable& mine = program.executables[e];
      if (mine.graph != other->executables[e].graph && !(mine == other->executables[e])) {
        return InvalidArgument(
            fmt::format("{}: executable e{} differs from that of device {} of its mesh",
                        ProgramPlace(program), e, rank.value()));
      }
    }
  }
  for (const auto& facts : device.member->facts) {
    std::vector<Group*>& groups = device.groups.emplace_back();
    for (const CollectiveFact& fact : facts->collectives) {
      MW_ASSIGN_OR_RETURN(Group * group, GroupFor(index, fact));
      groups.push_back(group);
    }
  }
  return OkStatus();
}

Result<VerifyMachine::Group*> VerifyMachine::GroupFor(size_t index, const CollectiveFact& fact) {
  if (fact.op == Op::kShardSlice) return nullptr;
  MW_ASSIGN_OR_RETURN(std::vector<int> ranks, GroupOf(*devices_[index].member->program, fact.axes));
  if (ranks.size() == 1) return nullptr;
  std::vector<std::string> axes = fact.axes;
  std::sort(axes.begin(), axes.end());
  std::unique_ptr<Group>& group = groups_[{fmt::format("{}", fmt::join(axes, ",")), ranks}];
  if (!group) {
    group = std::make_unique<Group>();
    MW_CHECK(ranks.size() > 1) << "a group of one waits for nobody";
    group->ranks = ranks;
  }
  return group.get();
}

Status VerifyMachine::Run() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (size_t i = 0; i < devices_.size(); ++i) MW_TRY(Advance(i, moved));
  }
  return CheckFinished();
}

Status VerifyMachine::Advance(size_t index, bool& moved) {
  Device& device = devices_[index];
  const Program& program = *device.member->program;
  while (device.pc < program.instructions.size()) {
    const std::optional<size_t> collective = device.collective;
    auto progress = Step(index);
    if (!progress) return progress.error().WithContext(InstructionPlace(program, device.pc));
    moved = moved || *progress == Progress::kDone || device.collective != collective;
    if (*progress == Progress::kBlocked) return OkStatus();
    ++device.pc;
  }
  return OkStatus();
}

Result<VerifyMachine::Progress> VerifyMachine::Step(size_t index) {
  Device& device = devices_[index];
  const Instruction& instruction = device.member->program->instructions[device.pc];
  switch (instruction.op) {
    case Opcode::kRun:
      return StepRun(index, instruction);
    case Opcode::kSend:
      return StepSend(device, instruction);
    case Opcode::kRecv:
      return StepRecv(device, instruction);
    case Opcode::kPrefetch:
      MW_TRY(device.slots.Prefetch(instruction));
      return Progress::kDone;
    case Opcode::kOffload:
      MW_TRY(device.slots.Offload(instruction));
      return Progress::kDone;
    case Opcode::kFree:
      break;
  }
  MW_TRY(device.slots.Free(instruction));
  return Progress::kDone;
}

Result<VerifyMachine::Progress> VerifyMachine::StepRun(size_t index, const Instruction& run) {
  Device& device = devices_[index];
  const auto executable = run.executable.index();
  const std::vector<CollectiveFact>& facts = device.member->facts[executable]->collectives;
  MW_CHECK(executable < device.groups.size() && device.groups[executable].size() == facts.size())
      << "executable " << executable << " is connected to other collectives than it has";
  if (!device.collective) {
    MW_TRY(device.slots.BeginRun(run));
    device.collective = 0;
  }
  for (; *device.collective < facts.size(); ++*device.collective) {
    Group* group = device.groups[executable][*device.collective];
    if (!group) continue;
    MW_ASSIGN_OR_RETURN(const Progress progress,
                        StepCollective(index, run, facts[*device.collective], *group));
    if (progress == Progress::kBlocked) return progress;
  }
  device.collective.reset();
  MW_TRY(device.slots.EndRun(run));
  return Progress::kDone;
}

Result<VerifyMachine::Progress> VerifyMachine::StepCollective(size_t index, const Instruction& run,
                                                              const CollectiveFact& fact,
                                                              Group& group) {
  Device& device = devices_[index];
  if (device.awaited_round) {
    if (group.rounds_done < *device.awaited_round) return Progress::kBlocked;
    device.awaited_round.reset();
    return Progress::kDone;
  }
  // Members share executables, so equal work means equal positions, not only equal shapes.
  const std::string signature = fmt::format("e{} mb={} node {} {}", run.executable.value(),
                                            run.microbatch, fact.node, fact.signature);
  if (group.waiting.empty()) {
    group.signature = signature;
  } else if (group.signature != signature) {
    const auto& [other, pc] = *group.waiting.begin();
    return Fail(InvalidArgument(fmt::format("collective {} of group [{}] meets {} of {}", signature,
                                            fmt::join(group.ranks, ","), group.signature,
                                            InstructionPlace(*members_[other].program, pc))));
  }
  group.waiting[index] = device.pc;
  MW_CHECK(group.waiting.size() <= group.ranks.size())
      << group.waiting.size() << " of " << group.ranks.size() << " members wait";
  if (group.waiting.size() < group.ranks.size()) {
    device.awaited_round = group.rounds_done + 1;
    return Progress::kBlocked;
  }
  group.waiting.clear();
  ++group.rounds_done;
  return Progress::kDone;
}

Result<VerifyMachine::Progress> VerifyMachine::StepSend(Device& device, const Instruction& send) {
  MW_CHECK(send.channel.index() < device.channels.size()) << "channel " << send.channel;
  Channel& channel = *device.channels[send.channel.index()];
  if (channel.messages.size() >= static_cast<size_t>(channel.capacity)) return Progress::kBlocked;
  const TensorType& type = device.member->program->slot(send.slot).type;
  MW_ASSIGN_OR_RETURN(const Box box, ResolveBox(send.box, type.dims));
  Message message;
  MW_TRY(device.slots.Send(send, message.content));
  if (!one_per_mesh_) MW_TRY(NoteTile(channel.sent, message.content, send.slot, box.offset));
  message.type = TensorType{type.dtype, box.size};
  channel.messages.push_back(std::move(message));
  return Progress::kDone;
}

Result<VerifyMachine::Progress> VerifyMachine::StepRecv(Device& device, const Instruction& recv) {
  MW_CHECK(recv.channel.index() < device.channels.size()) << "channel " << recv.channel;
  Channel& channel = *device.channels[recv.channel.index()];
  if (channel.messages.empty()) return Progress::kBlocked;
  const Message message = std::move(channel.messages.front());
  channel.messages.pop_front();
  const TensorType& type = device.member->program->slot(recv.slot).type;
  MW_ASSIGN_OR_RETURN(const Box box, ResolveBox(recv.box, type.dims));
  const TensorType wanted{type.dtype, box.size};
  if (message.type != wanted) {
    return Fail(InvalidArgument(fmt::format("receives {} of \"{}\" into a tile of {}",
                                            message.type.ToString(), message.content.name,
                                            wanted.ToString())));
  }
  if (!one_per_mesh_) MW_TRY(NoteTile(channel.received, message.content, recv.slot, box.offset));
  MW_TRY(device.slots.Receive(recv, message.content));
  return Progress::kDone;
}

Status VerifyMachine::CheckFinished() const {
  std::string waits;
  const Device* first = nullptr;
  for (const Device& device : devices_) {
    if (device.pc == device.member->program->instructions.size()) continue;
    if (first) {
      waits += fmt::format("; {}", InstructionPlace(*device.member->program, device.pc));
    } else {
      first = &device;
    }
  }
  if (first) {
    return InvalidArgument(
        fmt::format("{}: waits for ever{}{}", InstructionPlace(*first->member->program, first->pc),
                    waits.empty() ? "" : ", together with ", waits.empty() ? "" : waits.substr(2)));
  }
  for (const auto& [name, channel] : channels_) {
    if (channel->messages.empty()) continue;
    return InvalidArgument(
        fmt::format("channel \"{}\": {} messages are never received (\"{}\" first)", name,
                    channel->messages.size(), channel->messages[0].content.name));
  }
  for (const Device& device : devices_) {
    MW_TRY(device.slots.CheckEnd().WithContext(
        fmt::format("{}, at the end", ProgramPlace(*device.member->program))));
  }
  return OkStatus();
}

}  // namespace meshwright::ir
