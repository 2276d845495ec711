// A forecast as a Chrome trace, JSON object form, and the events that the record of a step has in
// common with it (report/step_trace.h): a viewer shows both in the same rows under the same names.
//
// pid = stage, tid = device; a RUN is an "X" event with ts and dur in microseconds (three
// decimals), microbatch and instruction as args.
//
// Thread rule: pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/program.h"
#include "planner/forecast.h"
#include "report/memory_series.h"

namespace meshwright::report {

// "M" events that name stages and devices.
void AddTraceNames(std::span<const ir::Program> programs, std::vector<std::string>& events);

// REQUIRES that the instruction is a RUN.
std::string TraceRun(const ir::Program& program, int instruction, double begin_s, double end_s);

// other: members of "otherData", as JSON; empty: there are none.
std::string TraceDocument(const std::vector<std::string>& events, const std::string& other = "");

// Of a simulation (displayTimeUnit ms). `programs` as simulated; `memory`, where it has any, is
// shown as counters, one per device and memory.
std::string ToChromeTrace(std::span<const ir::Program> programs,
                          const planner::Simulation& simulation,
                          const MemoriesOverTime& memory = {});
// With memory counters, to look at in a viewer of Chrome traces.
std::string ForecastTrace(const planner::Plan& plan, const planner::Forecast& forecast);

}  // namespace meshwright::report
