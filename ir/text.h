// Text forms with exact round trip: Parse(Format(x)) == x, Format(Parse(t)) == t for canonical t.
//
// Graph grammar; ids count up from %0:
//   graph  := 'graph' string '{' node* output* '}'
//   node   := ids '=' op ['(' ids ')'] [attrs] ['@layer' int] ['@' phase] ':' types
//   attrs  := '{' name '=' value (', ' name '=' value)* '}'
//   value  := int | real | string | [ints] | ["strs", ...]
//   types  := type (', ' type)*                       type: f32[8,128]
//   output := 'output' string '%N' ['mean']
// Phase forward, layer -1 and the reduction of an output that is a sum are not printed. Reals print
// in the shortest form that reads back equal and always contain a dot, an 'e', "inf" or "nan". An
// empty list of integers is [], of strings strs[]. Attribute and axis names that are not words,
// [A-Za-z_][A-Za-z0-9_.]*, are quoted. Strings escape quotes and backslashes with a backslash and
// control characters as \xhh.
// Parsing checks the form (ids, order, dims); ir/verify.h checks the meaning. Program grammar:
// ir/program.h.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright::ir {

std::string FormatGraph(const Graph& graph);
// Errors: kInvalidArgument "line 12: ..." . Safe on any input.
Result<Graph> ParseGraph(std::string_view text);

std::string FormatProgram(const Program& program);
Result<Program> ParseProgram(std::string_view text);

std::string FormatInstruction(const Program& program, const Instruction& instruction);
// For messages, in a few words however many operands it has: "RUN stage0/f of microbatch 2", "RECV
// from rank 1", "FREE".
std::string NameInstruction(const Program& program, const Instruction& instruction);

}  // namespace meshwright::ir
