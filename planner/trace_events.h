// Events of a Chrome trace, JSON object form, as the forecast of a step has them and the record of
// one (report/step_trace.h): a viewer shows both in the same rows under the same names.
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

namespace meshwright::planner {

// "M" events that name stages and devices.
void AddTraceNames(std::span<const ir::Program> programs, std::vector<std::string>& events);

// REQUIRES that the instruction is a RUN.
std::string TraceRun(const ir::Program& program, int instruction, double begin_s, double end_s);

// other: members of "otherData", as JSON; empty: there are none.
std::string TraceDocument(const std::vector<std::string>& events, const std::string& other = "");

}  // namespace meshwright::planner
