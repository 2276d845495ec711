// Chrome trace, JSON object form: {"displayTimeUnit":"ms","traceEvents":[...]}; "M" events name
// processes and threads, one "X" event per RUN with ts and dur in microseconds (three decimals),
// microbatch and instruction as args, and one for the collectives that begin beside what computes,
// in a thread of their own; one "C" event per sample of a device's memory, and of what it has in
// its host's and on disk, MiB by kind.
#include "report/forecast_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <map>
#include <set>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "planner/simulate.h"

namespace meshwright::report {
namespace {

using planner::Simulation;
using planner::Span;

// Behind the devices' own, which are their numbers.
constexpr int32_t kBesideThreads = 1'000'000;

// Collectives that begin beside what computes.
std::string BesideEvent(const ir::Program& program, const Span& span) {
  const double begin_us = span.begin_s * 1e6;
  return fmt::format(
      R"({{"name":"reductions","cat":"collectives","ph":"X","pid":{},"tid":{},"ts":{:.3f},)"
      R"("dur":{:.3f},"args":{{"instruction":{}}}}})",
      program.stage.value(), kBesideThreads + program.device.value(), begin_us,
      span.end_s * 1e6 - begin_us, span.instruction);
}

std::string BesideName(const ir::Program& program) {
  const int32_t device = program.device.value();
  return fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},)"
                     R"("args":{{"name":"collectives of device {}"}}}})",
                     program.stage.value(), kBesideThreads + device, device);
}

}  // namespace

std::string TraceRun(const ir::Program& program, int instruction, double begin_s, double end_s) {
  const ir::Instruction& run = program.instructions.at(static_cast<size_t>(instruction));
  MW_CHECK(run.op == ir::Opcode::kRun) << "instruction " << instruction << " is no RUN";
  const ir::Executable& executable = program.executables[run.executable.index()];
  const std::string piece = planner::ExecutablePiece(executable);
  const double begin_us = begin_s * 1e6;
  return fmt::format(
      R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
      R"("args":{{"microbatch":{},"instruction":{}}}}})",
      JsonEscape(fmt::format("{} mb={}", executable.graph->name, run.microbatch)),
      planner::PieceCategory(piece), program.stage.value(), program.device.value(), begin_us,
      end_s * 1e6 - begin_us, run.microbatch, instruction);
}

void AddTraceNames(std::span<const ir::Program> programs, std::vector<std::string>& events) {
  std::set<int32_t> stages;
  for (const ir::Program& program : programs) {
    const int32_t stage = program.stage.value();
    if (stages.insert(stage).second) {
      events.push_back(
          fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"stage {}"}}}})",
                      stage, stage));
      events.push_back(fmt::format(
          R"({{"name":"process_sort_index","ph":"M","pid":{},"args":{{"sort_index":{}}}}})", stage,
          stage));
    }
    events.push_back(fmt::format(
        R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"device {}"}}}})",
        stage, program.device.value(), program.device.value()));
  }
}

std::string TraceDocument(const std::vector<std::string>& events, const std::string& other) {
  return fmt::format("{{\"displayTimeUnit\":\"ms\",{}\"traceEvents\":[\n{}\n]}}\n",
                     other.empty() ? "" : fmt::format("\"otherData\":{{{}}},", other),
                     fmt::join(events, ",\n"));
}

namespace {

// Of one device, by ir::Space.
constexpr std::array<std::string_view, ir::kSpaceCount> kWhere = {"", " in the host's memory",
                                                                  " on disk"};

std::string CounterEvent(const ir::Program& program, std::string_view where,
                         const MemorySample& sample) {
  std::string kinds;
  for (size_t k = 0; k < sample.bytes.size(); ++k) {
    kinds += fmt::format(R"({}"{}":{:.3f})", kinds.empty() ? "" : ",",
                         ir::MemoryKindName(static_cast<ir::MemoryKind>(k)),
                         static_cast<double>(sample.bytes[k]) / 1048576.0);
  }
  return fmt::format(
      R"({{"name":"MiB of device {}{}","ph":"C","pid":{},"ts":{:.3f},"args":{{{}}}}})",
      program.device.value(), where, program.stage.value(), sample.time_s * 1e6, kinds);
}

}  // namespace

std::string ToChromeTrace(std::span<const ir::Program> programs, const Simulation& simulation,
                          const MemoriesOverTime& memory) {
  std::map<int32_t, const ir::Program*> program_of;
  for (const ir::Program& program : programs) program_of[program.device.value()] = &program;
  std::vector<std::string> events;
  AddTraceNames(programs, events);
  for (const Span& span : simulation.spans) {
    events.push_back(
        TraceRun(*program_of.at(span.device), span.instruction, span.begin_s, span.end_s));
  }
  std::set<int32_t> named;
  for (const Span& span : simulation.beside) {
    const ir::Program& program = *program_of.at(span.device);
    if (named.insert(span.device).second) events.push_back(BesideName(program));
    events.push_back(BesideEvent(program, span));
  }
  for (size_t space = 0; space < memory.size(); ++space) {
    const std::vector<MemorySeries>& of_programs = memory[space];
    for (size_t p = 0; p < of_programs.size() && p < programs.size(); ++p) {
      for (const MemorySample& sample : of_programs[p]) {
        events.push_back(CounterEvent(programs[p], kWhere[space], sample));
      }
    }
  }
  return TraceDocument(events);
}

std::string ForecastTrace(const planner::Plan& plan, const planner::Forecast& forecast) {
  return ToChromeTrace(plan.Main(), forecast.simulation,
                       AllMemoryOverTime(plan.Main(), forecast.simulation));
}

}  // namespace meshwright::report
