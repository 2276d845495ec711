#include <fmt/format.h>

#include <string>

#include "ir/text.h"
#include "planner/host_update.h"
#include "planner/plan_text.h"
#include "planner/schedule.h"
#include "planner/vocabulary_schedule.h"
#include "planner/zero_levels.h"

namespace meshwright::planner {
namespace {

std::string Mib(int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / 1048576.0);
}

std::string LayerRanges(const StageInfo& stage) {
  std::vector<std::string> ranges;
  for (const auto& [first, last] : stage.layers)
    ranges.push_back(fmt::format("{}-{}", first, last));
  return fmt::format("{}", fmt::join(ranges, ","));
}

std::string StageTable(const Plan& plan) {
  std::string text =
      fmt::format("{:<6} {:<10} {:<12} {:>16}\n", "STAGE", "LAYERS", "DEVICES", "GFLOP/STEP");
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StageInfo& stage = plan.stages[i];
    text += fmt::format(
        "{:<6} {:<10} {:<12} {:>16.3f}\n", i, LayerRanges(stage),
        FormatDevices(plan.layout, stage.mesh.devices.front().value(), stage.mesh.device_count()),
        stage.flops_per_step / 1e9);
  }
  return text;
}

std::string ParamTable(const std::vector<ParamRow>& rows) {
  size_t width = 10;
  size_t stages = 6;
  for (const ParamRow& row : rows) {
    width = std::max(width, row.name.size());
    stages = std::max(stages, row.stages.size());
  }
  std::string text =
      fmt::format("{:<{}}  {:<{}}  {}\n", "PARAM", width, "STAGES", stages, "SHARDING");
  for (const ParamRow& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n", row.name, width, row.stages, stages, row.sharding);
  }
  return text;
}

constexpr ir::MemoryKind kMemoryKinds[] = {ir::MemoryKind::kWeights,   ir::MemoryKind::kGradients,
                                           ir::MemoryKind::kOptimizer, ir::MemoryKind::kActivations,
                                           ir::MemoryKind::kWorkspace, ir::MemoryKind::kOther};

std::string MemoryNumbers(const DeviceMemory& memory) {
  std::string text;
  for (ir::MemoryKind kind : kMemoryKinds) {
    const auto it = memory.bytes.find(kind);
    text += fmt::format(" {:>12}", Mib(it == memory.bytes.end() ? 0 : it->second));
  }
  return text + fmt::format(" {:>12}", Mib(memory.total_bytes));
}

// Neighbouring devices with equal numbers are one line: "0-63".
std::string MemoryTable(const Plan& plan) {
  std::string text = fmt::format("{:<9}", "DEVICE");
  for (ir::MemoryKind kind : kMemoryKinds) text += fmt::format(" {:>12}", ir::MemoryKindName(kind));
  text += fmt::format(" {:>12}  (MiB; kinds at the fullest moment)\n", "allocated");
  for (size_t i = 0; i < plan.memory.size();) {
    const std::string numbers = MemoryNumbers(plan.memory[i]);
    const int64_t first = plan.Main()[i].device.value();
    int64_t end = first;  // behind the last device of the line
    while (i < plan.memory.size() && (end == first || (plan.Main()[i].device.value() == end &&
                                                       MemoryNumbers(plan.memory[i]) == numbers))) {
      end = plan.Main()[i].device.value() + plan.DevicesOf(plan.Main()[i]);
      ++i;
    }
    text += fmt::format("{:<9}{}\n", FormatDevices(plan.layout, first, end - first), numbers);
  }
  return text;
}

// To and from a farther memory.
int64_t CopiedBytes(const ir::Program& program, ir::Space far) {
  int64_t bytes = 0;
  for (const ir::Instruction& instruction : program.instructions) {
    if (!ir::IsTierCopy(instruction.op)) continue;
    const bool fetches = instruction.op == ir::Opcode::kPrefetch;
    const SlotId id = fetches ? instruction.inputs[0] : instruction.outputs[0];
    if (program.slot(id).space == far) bytes += program.slot(id).type.bytes();
  }
  return bytes;
}

// What is in a farther memory, of the device that has most there; empty: nothing.
std::string FarMemoryText(const Plan& plan, ir::Space far) {
  int64_t most_bytes = 0;
  std::string text;
  for (size_t i = 0; i < plan.memory.size(); ++i) {
    int64_t bytes = 0;
    std::string kinds;
    for (const auto& [kind, of_kind] : plan.memory[i].Far(far).bytes) {
      bytes += of_kind;
      kinds += fmt::format("{}{} {} MiB", kinds.empty() ? "" : ", ", ir::MemoryKindName(kind),
                           Mib(of_kind));
    }
    if (bytes <= most_bytes) continue;
    most_bytes = bytes;
    text = fmt::format("{}, per device: {}; {} MiB are copied in a step.\n",
                       far == ir::Space::kDisk ? "On the disk" : "In the host's memory", kinds,
                       Mib(CopiedBytes(plan.Main()[i], far)));
  }
  return text;
}

// What of the state in the host's memory the host renews there, of the device that has most of it;
// empty: nothing.
std::string HostUpdateText(const Plan& plan) {
  int64_t most_bytes = 0;
  std::string text;
  for (const ir::Program& program : plan.Main()) {
    int64_t host_bytes = 0;
    int64_t all_bytes = 0;
    size_t host_groups = 0;
    const std::vector<UpdateGroup> groups = UpdateGroupsOf(program);
    for (const UpdateGroup& group : groups) {
      all_bytes += group.state_bytes;
      if (group.on_host) host_bytes += group.state_bytes;
      host_groups += group.on_host ? 1 : 0;
    }
    if (host_bytes <= most_bytes) continue;
    most_bytes = host_bytes;
    text = fmt::format(
        "The host renews {} of {} MiB of this state where it lies, {} of {} groups of weights: "
        "their "
        "gradients go out, and weights come back.\n",
        Mib(host_bytes), Mib(all_bytes), host_groups, groups.size());
  }
  return text;
}

// What replicas split among them; empty: nothing.
std::string ZeroText(const Plan& plan) {
  const std::string levels = FormatZeroLevels(plan.layout);
  return levels.empty() ? "" : fmt::format("Split over replicas: {}.\n", levels);
}

std::string Orders(const Plan& plan) {
  std::string text;
  const auto schedule = MakeStepSchedule(plan.layout, /*backward=*/true);
  if (!schedule.has_value() || plan.layout.pipeline <= 1) return text;
  for (size_t i = 0; i < schedule->size(); ++i) {
    text += fmt::format("{}stage {}: {}\n", i == 0 ? "\n" : "", i, FormatSchedule((*schedule)[i]));
  }
  return text;
}

std::string PlanText(const Plan& plan, const std::string& reasons, const std::string& params) {
  std::string text = fmt::format("plan: {}\n{}\n{}\n{}\n{}{}", plan.layout.ToString(), reasons,
                                 StageTable(plan), params, MemoryTable(plan), ZeroText(plan));
  for (const ir::Space far : {ir::Space::kHost, ir::Space::kDisk}) text += FarMemoryText(plan, far);
  text += HostUpdateText(plan);
  return text;
}

std::string NoteLines(const Plan& plan) {
  std::string text;
  for (const std::string& note : plan.notes) text += fmt::format("note: {}\n", note);
  return text;
}

}  // namespace

std::string FormatPlan(const Plan& plan, bool with_programs, const std::string& reasons) {
  if (with_programs) return FormatWholePlan(plan, with_programs, reasons);
  return PlanText(plan, reasons, ParamTable(FoldedParamRows(plan))) + NoteLines(plan);
}

std::string FormatWholePlan(const Plan& plan, bool with_programs, const std::string& reasons) {
  std::string text =
      PlanText(plan, reasons, ParamTable(ParamRows(plan))) + Orders(plan) + NoteLines(plan);
  if (!with_programs) return text;
  for (const auto& [name, programs] : plan.programs) {
    for (const ir::Program& program : programs)
      text += fmt::format("\n{}", ir::FormatProgram(program));
  }
  return text;
}

}  // namespace meshwright::planner
