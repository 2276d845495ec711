// ProgramCheck: what a worker must know about a program before it turns slots into addresses.
//
// The controller verifies all programs of a job together (ir::VerifyPrograms). A worker sees only
// its own and trusts nobody with its memory: every index, type, box and arena range is checked
// here, so that no program can touch foreign bytes.
//
// Thread rule: pure function.
#pragma once

#include "base/result.h"
#include "ir/program.h"

namespace meshwright::worker {

// Errors: kInvalidArgument "program step/3, instruction 17 (SEND s7 ...): ...".
Status CheckProgram(const ir::Program& program);

}  // namespace meshwright::worker
