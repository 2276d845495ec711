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
std::vector<BytesByKind> BytesPerTick(const ir::Program& program, const planner::SlotSpans& spans,
                                      ir::Space space) {
  std::vector<BytesByKind> ticks(static_cast<size_t>(spans.end) + 2);
  for (size_t s = 0; s < program.slots.size(); ++s) {
    const ir::Slot& slot = program.slots[s];
    if (slot.space != space) continue;
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

bool HasSlots(const ir::Program& program, ir::Space space) {
  return std::any_of(program.slots.begin(), program.slots.end(),
                     [space](const ir::Slot& slot) { return slot.space == space; });
}

// When a device runs something, on planner/memory.h's clock: from `begin` until before `end`.
struct RunTicks {
  int instruction = 0;
  size_t begin = 0;
  size_t end = 0;
};

std::vector<RunTicks> TicksOfRuns(const ir::Program& program) {
  std::vector<RunTicks> runs;
  size_t tick = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const size_t begin = tick++;
    const ir::Instruction& instruction = program.instructions[i];
    if (instruction.op != ir::Opcode::kRun) continue;
    tick += program.executables[instruction.executable.index()].graph->nodes.size();
    if (ir::RunsOnHost(program, instruction)) continue;
    runs.push_back({static_cast<int>(i), begin, tick});
  }
  return runs;
}

// The first of the fullest from `begin` until before `end`, which is not empty.
const BytesByKind& Fullest(const std::vector<BytesByKind>& ticks, size_t begin, size_t end) {
  size_t fullest = begin;
  int64_t most_bytes = TotalOf(ticks[begin]);
  for (size_t t = begin + 1; t < end; ++t) {
    const int64_t bytes = TotalOf(ticks[t]);
    if (bytes > most_bytes) fullest = t;
    most_bytes = std::max(most_bytes, bytes);
  }
  return ticks[fullest];
}

void AddWorkspace(const ir::Program& program, std::vector<RunMemory>& runs) {
  std::vector<int64_t> bytes;
  for (const ir::Executable& executable : program.executables) {
    bytes.push_back(ir::PlanWorkspace(*executable.graph).bytes);
  }
  for (RunMemory& run : runs) {
    const auto i = static_cast<size_t>(run.instruction);
    run.peak[static_cast<size_t>(ir::MemoryKind::kWorkspace)] +=
        bytes[program.instructions[i].executable.index()];
  }
}

// A step begins and ends with what is persistent, also where a device runs nothing then.
void AddEnds(const ir::Program& program, ir::Space space, double end_s, MemorySeries& series) {
  BytesByKind kept = {};
  for (const ir::Slot& slot : program.slots) {
    if (slot.persistent && slot.space == space) kept[KindOf(slot)] += slot.type.bytes();
  }
  series.insert(series.begin(), {0, kept});
  series.push_back({std::max(end_s, series.back().time_s), kept});
}

}  // namespace

int64_t TotalOf(const BytesByKind& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

std::vector<RunMemory> MemoryOfRuns(const ir::Program& program, ir::Space space) {
  if (!HasSlots(program, space)) return {};
  const std::vector<BytesByKind> ticks = BytesPerTick(program, planner::SpansOf(program), space);
  const std::vector<RunTicks> of_runs = TicksOfRuns(program);
  std::vector<RunMemory> runs;
  for (size_t r = 0; r < of_runs.size(); ++r) {
    const auto [instruction, begin, end] = of_runs[r];
    MW_CHECK(end < ticks.size()) << "instruction " << instruction << " ends at tick " << end;
    // What comes to the device behind a RUN is for the next one, whose peak has it.
    size_t until = end + 1;
    if (space != ir::Space::kDevice) {
      until = r + 1 < of_runs.size() ? std::max(until, of_runs[r + 1].begin) : ticks.size();
    }
    runs.push_back({instruction, Fullest(ticks, begin, end), Fullest(ticks, end, until)});
  }
  if (space == ir::Space::kDevice) AddWorkspace(program, runs);
  return runs;
}

std::vector<MemorySeries> MemoryOverTime(std::span<const ir::Program> programs,
                                         const planner::Simulation& simulation, ir::Space space) {
  const bool has_any =
      std::any_of(programs.begin(), programs.end(),
                  [space](const ir::Program& program) { return HasSlots(program, space); });
  if (!has_any) return std::vector<MemorySeries>(programs.size());
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
    runs[static_cast<size_t>(i)] = MemoryOfRuns(programs[firsts[static_cast<size_t>(i)]], space);
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
  for (size_t p = 0; p < programs.size(); ++p) {
    if (space == ir::Space::kDevice || !HasSlots(programs[p], space)) continue;
    AddEnds(programs[p], space, simulation.makespan_s, series[p]);
  }
  return series;
}

MemoriesOverTime AllMemoryOverTime(std::span<const ir::Program> programs,
                                   const planner::Simulation& simulation) {
  MemoriesOverTime memories;
  for (size_t space = 0; space < memories.size(); ++space) {
    memories[space] = MemoryOverTime(programs, simulation, static_cast<ir::Space>(space));
  }
  return memories;
}

}  // namespace meshwright::report
