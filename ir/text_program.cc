// Text form of programs. Grammar: ir/program.h.
#include <fmt/format.h>

#include "ir/text.h"
#include "ir/text_lexer.h"

namespace meshwright::ir {
namespace {

constexpr MemoryKind kMemoryKinds[] = {MemoryKind::kWeights,   MemoryKind::kGradients,
                                       MemoryKind::kOptimizer, MemoryKind::kActivations,
                                       MemoryKind::kWorkspace, MemoryKind::kOther};

std::string FormatBox(const Box& box) {
  return fmt::format("[{}:{}]", fmt::join(box.offset, ","), fmt::join(box.size, ","));
}

std::string FormatSlots(const std::vector<SlotId>& slots) {
  std::string text;
  for (SlotId slot : slots) text += fmt::format("{}s{}", text.empty() ? "" : ", ", slot.value());
  return text;
}

const char* FormatOverlap(OverlapMode overlap) {
  if (overlap == OverlapMode::kByDevice) return "";
  return overlap == OverlapMode::kOn ? " | overlap on" : " | overlap off";
}

std::string FormatHeader(const Program& p) {
  std::string axes;
  for (const MeshAxis& axis : p.axes)
    axes += fmt::format(" {}={}", FormatName(axis.name), axis.size);
  std::string coords;
  for (size_t i = 0; i < p.coords.size(); ++i) {
    coords +=
        fmt::format(" {}={}", i < p.axes.size() ? FormatName(p.axes[i].name) : "?", p.coords[i]);
  }
  std::string ranks;
  for (DeviceIndex device : p.mesh_devices) ranks += fmt::format(" {}", device.value());
  return fmt::format(
      "program {} device {} of {} stage {} {{\n"
      "  axes{} | coords{} | microbatches {} | arena {} | workspace {} + {}{}\n"
      "  ranks{}\n",
      QuoteText(p.name), p.device.value(), p.device_count, p.stage.value(), axes, coords,
      p.microbatches, p.arena_bytes, p.workspace_offset, p.workspace_bytes,
      FormatOverlap(p.overlap), ranks);
}

std::string FormatSlot(const Slot& slot) {
  const std::string space =
      slot.space == Space::kDevice ? "" : fmt::format(" {}", SpaceName(slot.space));
  std::string text =
      fmt::format("{} {}{} {}", slot.type.ToString(), slot.persistent ? "persistent" : "transient",
                  space, MemoryKindName(slot.kind));
  if (!slot.persistent || slot.offset_bytes != 0) text += fmt::format(" @{}", slot.offset_bytes);
  text += " " + QuoteText(slot.name);
  if (!slot.global_dims.empty() || !slot.box.offset.empty() || !slot.box.size.empty()) {
    text += fmt::format(" part {} of [{}]", FormatBox(slot.box), fmt::join(slot.global_dims, ","));
  }
  return text;
}

std::string FormatChannel(const ChannelEnd& channel) {
  return fmt::format("{} {} capacity {} bytes {} {}", channel.outgoing ? "out to" : "in from",
                     channel.peer.value(), channel.capacity, channel.max_message_bytes,
                     QuoteText(channel.name));
}

}  // namespace

std::string NameInstruction(const Program& program, const Instruction& instruction) {
  const auto peer = [&] { return program.channels[instruction.channel.index()].peer.value(); };
  switch (instruction.op) {
    case Opcode::kRun:
      return fmt::format("RUN {} of microbatch {}",
                         program.executables[instruction.executable.index()].graph->name,
                         instruction.microbatch);
    case Opcode::kSend:
      return fmt::format("SEND to rank {}", peer());
    case Opcode::kRecv:
      return fmt::format("RECV from rank {}", peer());
    case Opcode::kPrefetch:
      return fmt::format("PREFETCH of {}", program.slot(instruction.inputs[0]).name);
    case Opcode::kOffload:
      return fmt::format("OFFLOAD of {}", program.slot(instruction.outputs[0]).name);
    case Opcode::kFree:
      return "FREE";
  }
  return "";
}

std::string FormatInstruction(const Program&, const Instruction& instruction) {
  const Box& box = instruction.box;
  const bool whole = box.offset.empty() && box.size.empty();
  const std::string tile = whole ? "" : " " + FormatBox(box);
  switch (instruction.op) {
    case Opcode::kRun:
      return fmt::format("RUN e{} mb={} ({}) -> ({})", instruction.executable.value(),
                         instruction.microbatch, FormatSlots(instruction.inputs),
                         FormatSlots(instruction.outputs));
    case Opcode::kSend:
      return fmt::format("SEND s{}{} -> c{}", instruction.slot.value(), tile,
                         instruction.channel.value());
    case Opcode::kRecv:
      return fmt::format("RECV s{}{} <- c{}", instruction.slot.value(), tile,
                         instruction.channel.value());
    case Opcode::kPrefetch:
    case Opcode::kOffload:
      return fmt::format("{} {} -> {}",
                         instruction.op == Opcode::kPrefetch ? "PREFETCH" : "OFFLOAD",
                         FormatSlots(instruction.inputs), FormatSlots(instruction.outputs));
    case Opcode::kFree:
      return fmt::format("FREE ({})", FormatSlots(instruction.inputs));
  }
  return "invalid instruction";
}

std::string FormatProgram(const Program& program) {
  std::string text = FormatHeader(program);
  for (size_t i = 0; i < program.slots.size(); ++i) {
    text += fmt::format("  slot s{} : {}\n", i, FormatSlot(program.slots[i]));
  }
  for (size_t i = 0; i < program.channels.size(); ++i) {
    text += fmt::format("  channel c{} {}\n", i, FormatChannel(program.channels[i]));
  }
  for (const Instruction& instruction : program.instructions) {
    text += fmt::format("  {}\n", FormatInstruction(program, instruction));
  }
  for (const Program::Report& report : program.reports) {
    text += fmt::format("  report {} s{}\n", QuoteText(report.name), report.slot.value());
  }
  for (const Program::Report& output : program.outputs) {
    text += fmt::format("  output {} s{}\n", QuoteText(output.name), output.slot.value());
  }
  for (size_t i = 0; i < program.executables.size(); ++i) {
    const auto& graph = program.executables[i].graph;
    text += fmt::format("  executable e{} = {}\n", i,
                        graph ? FormatGraphIndented(*graph, "  ") : "none");
  }
  return text + "}\n";
}

namespace {

Result<Box> ParseBox(Lexer& lexer) {
  Box box;
  MW_TRY(lexer.Expect("["));
  MW_ASSIGN_OR_RETURN(box.offset, lexer.IntList());
  MW_TRY(lexer.Expect(":"));
  MW_ASSIGN_OR_RETURN(box.size, lexer.IntList());
  MW_TRY(lexer.Expect("]"));
  return box;
}

Result<MemoryKind> ParseKind(Lexer& lexer) {
  MW_ASSIGN_OR_RETURN(const std::string name, lexer.Word());
  for (MemoryKind kind : kMemoryKinds) {
    if (name == MemoryKindName(kind)) return kind;
  }
  return Fail(lexer.Error(fmt::format("unknown memory kind '{}'", name)));
}

class ProgramParser {
 public:
  explicit ProgramParser(std::string_view text) : lexer_(text) {}

  Result<Program> Run() {
    MW_TRY(ParseHeader());
    while (!lexer_.Take("}")) MW_TRY(ParseItem());
    if (!lexer_.AtEnd()) return Fail(lexer_.Error("expected the end of the text"));
    return std::move(p_);
  }

 private:
  Status ParseHeader() {
    MW_TRY(lexer_.Expect("program"));
    MW_ASSIGN_OR_RETURN(p_.name, lexer_.String());
    MW_TRY(lexer_.Expect("device"));
    MW_ASSIGN_OR_RETURN(const int32_t device, lexer_.Int32());
    p_.device = DeviceIndex(device);
    MW_TRY(lexer_.Expect("of"));
    MW_ASSIGN_OR_RETURN(p_.device_count, lexer_.Int32());
    MW_TRY(lexer_.Expect("stage"));
    MW_ASSIGN_OR_RETURN(const int32_t stage, lexer_.Int32());
    p_.stage = StageIndex(stage);
    MW_TRY(lexer_.Expect("{"));
    MW_TRY(ParseAxes());
    MW_TRY(lexer_.Expect("microbatches"));
    MW_ASSIGN_OR_RETURN(p_.microbatches, lexer_.Int32());
    MW_TRY(lexer_.Expect("|"));
    MW_TRY(lexer_.Expect("arena"));
    MW_ASSIGN_OR_RETURN(p_.arena_bytes, lexer_.Int());
    MW_TRY(lexer_.Expect("|"));
    MW_TRY(lexer_.Expect("workspace"));
    MW_ASSIGN_OR_RETURN(p_.workspace_offset, lexer_.Int());
    MW_TRY(lexer_.Expect("+"));
    MW_ASSIGN_OR_RETURN(p_.workspace_bytes, lexer_.Int());
    MW_TRY(ParseOverlap());
    MW_TRY(lexer_.Expect("ranks"));
    while (lexer_.PeekInt()) {
      MW_ASSIGN_OR_RETURN(const int32_t rank, lexer_.Int32());
      p_.mesh_devices.emplace_back(rank);
    }
    return OkStatus();
  }

  Status ParseOverlap() {
    if (!lexer_.Take("|")) return OkStatus();
    MW_TRY(lexer_.Expect("overlap"));
    if (lexer_.Take("on")) {
      p_.overlap = OverlapMode::kOn;
      return OkStatus();
    }
    p_.overlap = OverlapMode::kOff;
    return lexer_.Expect("off");
  }

  Status ParseAxes() {
    MW_TRY(lexer_.Expect("axes"));
    while (!lexer_.Take("|")) {
      MeshAxis axis;
      MW_ASSIGN_OR_RETURN(axis.name, lexer_.Name());
      MW_TRY(lexer_.Expect("="));
      MW_ASSIGN_OR_RETURN(axis.size, lexer_.Int());
      p_.axes.push_back(std::move(axis));
    }
    MW_TRY(lexer_.Expect("coords"));
    while (!lexer_.Take("|")) {
      MW_ASSIGN_OR_RETURN(const std::string name, lexer_.Name());
      if (p_.coords.size() >= p_.axes.size() || p_.axes[p_.coords.size()].name != name) {
        return lexer_.Error(fmt::format("coordinate '{}' must follow the order of the axes", name));
      }
      MW_TRY(lexer_.Expect("="));
      MW_ASSIGN_OR_RETURN(const int64_t coord, lexer_.Int());
      p_.coords.push_back(coord);
    }
    return OkStatus();
  }

  Status ParseItem() {
    if (lexer_.Take("slot")) return ParseSlot();
    if (lexer_.Take("channel")) return ParseChannel();
    if (lexer_.Take("report")) return ParseReport(p_.reports);
    if (lexer_.Take("output")) return ParseReport(p_.outputs);
    if (lexer_.Take("executable")) return ParseExecutable();
    if (lexer_.Take("RUN")) return ParseRun();
    if (lexer_.Take("SEND")) return ParseTransfer(Opcode::kSend, "->");
    if (lexer_.Take("RECV")) return ParseTransfer(Opcode::kRecv, "<-");
    if (lexer_.Take("PREFETCH")) return ParseTierCopy(Opcode::kPrefetch);
    if (lexer_.Take("OFFLOAD")) return ParseTierCopy(Opcode::kOffload);
    if (lexer_.Take("FREE")) return ParseFree();
    return lexer_.Error(
        "expected slot, channel, report, executable, RUN, SEND, RECV, PREFETCH, OFFLOAD, FREE or "
        "'}'");
  }

  Status ExpectNumber(char prefix, size_t number) {
    MW_ASSIGN_OR_RETURN(const int32_t id, lexer_.Numbered(prefix));
    if (id >= 0 && static_cast<size_t>(id) == number) return OkStatus();
    return lexer_.Error(
        fmt::format("{}{} must be {}{}: numbers count up", prefix, id, prefix, number));
  }

  Status ParseSlot() {
    Slot slot;
    MW_TRY(ExpectNumber('s', p_.slots.size()));
    MW_TRY(lexer_.Expect(":"));
    MW_ASSIGN_OR_RETURN(slot.type, lexer_.Type());
    slot.persistent = lexer_.Take("persistent");
    if (!slot.persistent) MW_TRY(lexer_.Expect("transient"));
    for (const Space far : {Space::kHost, Space::kDisk}) {
      if (lexer_.Take(SpaceName(far))) slot.space = far;
    }
    MW_ASSIGN_OR_RETURN(slot.kind, ParseKind(lexer_));
    if (lexer_.Take("@")) {
      MW_ASSIGN_OR_RETURN(slot.offset_bytes, lexer_.Int());
    }
    MW_ASSIGN_OR_RETURN(slot.name, lexer_.String());
    if (lexer_.Take("part")) {
      MW_ASSIGN_OR_RETURN(slot.box, ParseBox(lexer_));
      MW_TRY(lexer_.Expect("of"));
      MW_TRY(lexer_.Expect("["));
      MW_ASSIGN_OR_RETURN(slot.global_dims, lexer_.IntList());
      MW_TRY(lexer_.Expect("]"));
    }
    p_.slots.push_back(std::move(slot));
    return OkStatus();
  }

  Status ParseChannel() {
    ChannelEnd channel;
    MW_TRY(ExpectNumber('c', p_.channels.size()));
    channel.outgoing = lexer_.Take("out");
    MW_TRY(lexer_.Expect(channel.outgoing ? "to" : "in"));
    if (!channel.outgoing) MW_TRY(lexer_.Expect("from"));
    MW_ASSIGN_OR_RETURN(const int32_t peer, lexer_.Int32());
    channel.peer = DeviceIndex(peer);
    MW_TRY(lexer_.Expect("capacity"));
    MW_ASSIGN_OR_RETURN(channel.capacity, lexer_.Int32());
    MW_TRY(lexer_.Expect("bytes"));
    MW_ASSIGN_OR_RETURN(channel.max_message_bytes, lexer_.Int());
    MW_ASSIGN_OR_RETURN(channel.name, lexer_.String());
    p_.channels.push_back(std::move(channel));
    return OkStatus();
  }

  Status ParseReport(std::vector<Program::Report>& reports) {
    Program::Report report;
    MW_ASSIGN_OR_RETURN(report.name, lexer_.String());
    MW_ASSIGN_OR_RETURN(const int32_t slot, lexer_.Numbered('s'));
    report.slot = SlotId(slot);
    reports.push_back(std::move(report));
    return OkStatus();
  }

  Status ParseExecutable() {
    MW_TRY(ExpectNumber('e', p_.executables.size()));
    MW_TRY(lexer_.Expect("="));
    MW_ASSIGN_OR_RETURN(Graph graph, ParseGraphAt(lexer_));
    p_.executables.push_back({std::make_shared<const Graph>(std::move(graph))});
    return OkStatus();
  }

  Result<std::vector<SlotId>> ParseSlots() {
    std::vector<SlotId> slots;
    MW_TRY(lexer_.Expect("("));
    while (lexer_.PeekNumbered('s')) {
      MW_ASSIGN_OR_RETURN(const int32_t id, lexer_.Numbered('s'));
      slots.emplace_back(id);
      if (!lexer_.Take(",")) break;
    }
    MW_TRY(lexer_.Expect(")"));
    return slots;
  }

  Status ParseRun() {
    Instruction run;
    MW_ASSIGN_OR_RETURN(const int32_t executable, lexer_.Numbered('e'));
    run.executable = ExecutableIndex(executable);
    MW_TRY(lexer_.Expect("mb"));
    MW_TRY(lexer_.Expect("="));
    MW_ASSIGN_OR_RETURN(run.microbatch, lexer_.Int32());
    MW_ASSIGN_OR_RETURN(run.inputs, ParseSlots());
    MW_TRY(lexer_.Expect("->"));
    MW_ASSIGN_OR_RETURN(run.outputs, ParseSlots());
    p_.instructions.push_back(std::move(run));
    return OkStatus();
  }

  Status ParseTransfer(Opcode op, std::string_view arrow) {
    Instruction transfer;
    transfer.op = op;
    MW_ASSIGN_OR_RETURN(const int32_t slot, lexer_.Numbered('s'));
    transfer.slot = SlotId(slot);
    if (!lexer_.Take(arrow)) {
      MW_ASSIGN_OR_RETURN(transfer.box, ParseBox(lexer_));
      MW_TRY(lexer_.Expect(arrow));
    }
    MW_ASSIGN_OR_RETURN(const int32_t channel, lexer_.Numbered('c'));
    transfer.channel = ChannelId(channel);
    p_.instructions.push_back(std::move(transfer));
    return OkStatus();
  }

  Status ParseTierCopy(Opcode op) {
    Instruction copy;
    copy.op = op;
    MW_ASSIGN_OR_RETURN(const int32_t from, lexer_.Numbered('s'));
    MW_TRY(lexer_.Expect("->"));
    MW_ASSIGN_OR_RETURN(const int32_t to, lexer_.Numbered('s'));
    copy.inputs = {SlotId(from)};
    copy.outputs = {SlotId(to)};
    p_.instructions.push_back(std::move(copy));
    return OkStatus();
  }

  Status ParseFree() {
    Instruction free;
    free.op = Opcode::kFree;
    MW_ASSIGN_OR_RETURN(free.inputs, ParseSlots());
    p_.instructions.push_back(std::move(free));
    return OkStatus();
  }

  Lexer lexer_;
  Program p_;
};

}  // namespace

Result<Program> ParseProgram(std::string_view text) { return ProgramParser(text).Run(); }

}  // namespace meshwright::ir
