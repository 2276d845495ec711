#include "report/memory_series.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/parallel.h"
#include "planner/memory.h"
#include "planner/simulate.h"

namespace meshwright::report {
namespace {

size_t KindOf(const ir::Slot& slot) { return static_cast<size_t>(slot.kind); }

// Bytes by kind at every tick of planner/memory.h's clock.
std::vector<BytesByKind> BytesPerTick(const ir::Program& program, const planner::SlotSpans& spans) {
  std::vector<BytesByKind> ticks(static_cast<size_t>(spans.end) + 2);
  for (size_t s = 0; s < program.slots.size(); ++s) {
    const ir::Slot& slot = program.slots[s];
    if (slot.space != ir::Space::kDevice) continue;
    if (slot.persistent) {
      ticks[0][KindOf(slot)] += slot.type.bytes();
    } else if (spans.last[s] >= 0) {
      ticks[static_cast<size_t>(spans.first[s])][KindOf(slot)] += slot.type.bytes();
      ticks[static_cast<size_t>(spans.last[s]) + 1][KindOf(slot)] -= slot.type.bytes();
    }
  }
  for (size_t t = 1; t < ticks.size(); ++t) {
    for (size_t k = 0; k < kMemoryKindCount; ++k) ticks[t][k] += ticks[t - 1][k];
  }
  return ticks;
}

bool HaveEqualMemory(const ir::Program& a, const ir::Program& b) {
  const auto same_slot = [](const ir::Slot& x, const ir::Slot& y) {
    return x.persistent == y.persistent && x.kind == y.kind && x.space == y.space &&
           x.type == y.type;
  };
  const auto same_graph = [](const ir::Executable& x, const ir::Executable& y) {
    return x.graph == y.graph;
  };
  // Channels and boxes differ from device to device; when slots are touched does not.
  const auto same_instruction = [](const ir::Instruction& x, const ir::Instruction& y) {
    return x.op == y.op && x.executable == y.executable && x.inputs == y.inputs &&
           x.outputs == y.outputs && x.slot == y.slot;
  };
  return std::equal(a.slots.begin(), a.slots.end(), b.slots.begin(), b.slots.end(), same_slot) &&
         std::equal(a.executables.begin(), a.executables.end(), b.executables.begin(),
                    b.executables.end(), same_graph) &&
         std::equal(a.instructions.begin(), a.instructions.end(), b.instructions.begin(),
                    b.instructions.end(), same_instruction);
}

}  // namespace

int64_t TotalOf(const BytesByKind& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

std::vector<RunMemory> MemoryOfRuns(const ir::Program& program) {
  const planner::SlotSpans spans = planner::SpansOf(program);
  const std::vector<BytesByKind> ticks = BytesPerTick(program, spans);
  std::vector<int64_t> workspace_bytes;
  for (const ir::Executable& executable : program.executables) {
    workspace_bytes.push_back(ir::PlanWorkspace(*executable.graph).bytes);
  }
  constexpr auto kWorkspace = static_cast<size_t>(ir::MemoryKind::kWorkspace);
  std::vector<RunMemory> runs;
  size_t tick = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const size_t begin = tick++;
    const ir::Instruction& instruction = program.instructions[i];
    if (instruction.op != ir::Opcode::kRun) continue;
    const auto e = instruction.executable.index();
    tick = begin + program.executables[e].graph->nodes.size() + 1;
    if (ir::RunsOnHost(program, instruction)) continue;
    RunMemory& run = runs.emplace_back();
    run.instruction = static_cast<int>(i);
    int64_t most_bytes = -1;
    MW_CHECK(tick < ticks.size()) << "instruction " << i << " ends at tick " << tick;
    for (size_t t = begin; t < tick; ++t) {
      const int64_t bytes = TotalOf(ticks[t]);
      if (bytes > most_bytes) run.peak = ticks[t];
      most_bytes = std::max(most_bytes, bytes);
    }
    run.peak[kWorkspace] += workspace_bytes[e];
    run.after = ticks[tick];
  }
  return runs;
}

std::vector<MemorySeries> MemoryOverTime(std::span<const ir::Program> programs,
                                         const planner::Simulation& simulation) {
  std::vector<size_t> like(programs.size());  // in `firsts`: the program with equal memory
  std::vector<size_t> firsts;
  for (size_t p = 0; p < programs.size(); ++p) {
    const auto known = std::find_if(firsts.begin(), firsts.end(), [&](size_t first) {
      return HaveEqualMemory(programs[first], programs[p]);
    });
    like[p] = static_cast<size_t>(known - firsts.begin());
    if (known == firsts.end()) firsts.push_back(p);
  }
  std::vector<std::vector<RunMemory>> runs(firsts.size());
  constexpr int64_t kProgramsPerThread = 2;
  ParallelItems(static_cast<int64_t>(firsts.size()), kProgramsPerThread, [&](int64_t i) {
    runs[static_cast<size_t>(i)] = MemoryOfRuns(programs[firsts[static_cast<size_t>(i)]]);
  });
  std::map<int32_t, size_t> position;
  for (size_t p = 0; p < programs.size(); ++p) position[programs[p].device.value()] = p;
  std::vector<MemorySeries> series(programs.size());
  for (const planner::Span& span : simulation.spans) {
    const size_t p = position.at(span.device);
    const std::vector<RunMemory>& of_program = runs[like[p]];
    const auto found =
        std::lower_bound(of_program.begin(), of_program.end(), span.instruction,
                         [](const RunMemory& run, int at) { return run.instruction < at; });
    // What the host runs takes nothing of the device, and a record has it all the same.
    if (found == of_program.end() || found->instruction != span.instruction) continue;
    const RunMemory& run = *found;
    series[p].push_back({span.begin_s, run.peak});
    series[p].push_back({span.end_s, run.after});
  }
  return series;
}

}  // namespace meshwright::report
