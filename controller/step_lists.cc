#include "controller/step_lists.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace meshwright::controller {
namespace {

StepList ListOf(const ir::Program& program) {
  StepList list;
  list.stage = program.stage.value();
  for (const ir::ChannelEnd& end : program.channels) {
    list.channels.push_back({end.name, end.peer.value(), end.capacity});
  }
  for (const ir::Executable& executable : program.executables) {
    list.runs.push_back(executable.graph->name);
  }
  for (const ir::Instruction& instruction : program.instructions) {
    StepList::Item item{instruction.op, instruction.microbatch, 0};
    if (instruction.op == ir::Opcode::kRun) item.ref = instruction.executable.value();
    if (instruction.op == ir::Opcode::kSend || instruction.op == ir::Opcode::kRecv) {
      item.ref = instruction.channel.value();
    }
    list.items.push_back(item);
  }
  return list;
}

}  // namespace

StepLists::StepLists(const std::map<std::string, std::vector<ir::Program>, std::less<>>& programs) {
  for (const auto& [name, of_ranks] : programs) {
    std::vector<StepList>& lists = lists_[name];
    for (const ir::Program& program : of_ranks) lists.push_back(ListOf(program));
  }
}

const StepList* StepLists::Find(std::string_view program, int rank) const {
  auto it = lists_.find(program);
  // A name that was cut is the beginning of what comes next in the order.
  if (it == lists_.end()) it = lists_.lower_bound(program);
  if (it == lists_.end() || !it->first.starts_with(program)) return nullptr;
  const std::vector<StepList>& lists = it->second;
  const bool known = rank >= 0 && static_cast<size_t>(rank) < lists.size();
  return known ? &lists[static_cast<size_t>(rank)] : nullptr;
}

std::string NameItem(const StepList& list, int64_t instruction) {
  if (instruction < 0 || static_cast<size_t>(instruction) >= list.items.size()) return "";
  const StepList::Item& item = list.items[static_cast<size_t>(instruction)];
  const auto peer = [&] { return list.channels[static_cast<size_t>(item.ref)].peer; };
  switch (item.op) {
    case ir::Opcode::kRun:
      return fmt::format("RUN {} of microbatch {}", list.runs[static_cast<size_t>(item.ref)],
                         item.microbatch);
    case ir::Opcode::kSend:
      return fmt::format("SEND to rank {}", peer());
    case ir::Opcode::kRecv:
      return fmt::format("RECV from rank {}", peer());
    case ir::Opcode::kPrefetch:
      return "PREFETCH";
    case ir::Opcode::kOffload:
      return "OFFLOAD";
    case ir::Opcode::kFree:
      return "FREE";
  }
  return "";
}

int64_t CountBefore(const StepList& list, ir::Opcode op, std::string_view channel,
                    int64_t instruction) {
  const auto size = static_cast<int64_t>(list.items.size());
  const auto end = list.items.begin() + std::clamp<int64_t>(instruction, 0, size);
  return std::count_if(list.items.begin(), end, [&](const StepList::Item& item) {
    return item.op == op && list.channels[static_cast<size_t>(item.ref)].name == channel;
  });
}

int64_t CountAll(const StepList& list, ir::Opcode op, std::string_view channel) {
  return CountBefore(list, op, channel, static_cast<int64_t>(list.items.size()));
}

}  // namespace meshwright::controller
