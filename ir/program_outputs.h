// Outputs of programs that are inputs of others: they stay on the devices between calls.
//
// Such an output is a tensor of the state, with a name that no weight has: the program that gives
// it out writes it in the sharding in which it is made, the others read it. Thread rule: pure
// functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/job.h"

namespace meshwright::ir {

// The name of the tensor of the state, "@encode/h#6": unlike that of any other output.
std::string OutputStateName(const ProgramOutput& output);
bool IsOutputState(std::string_view param);

bool ReadsOutputs(const JobRequest& job);

// Programs whose outputs others read, each behind those that it reads itself. REQUIRES a valid job.
std::vector<std::string> ProgramsRead(const JobRequest& job);

// Errors: kInvalidArgument naming program and input: no such program or output, another shape or
// dtype, a program that is trained, that a driver runs or that reads itself, stages.
Status CheckOutputsRead(const JobRequest& job);

}  // namespace meshwright::ir
