// Jobs with one instruction dropped, repeated or moved, and the promise that the verifier keeps
// about them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ir/program.h"
#include "tests/property/ir_program_interpreter.h"

namespace meshwright::ir::testing {

struct Mutant {
  std::vector<Program> programs;
  std::string description;
};

Mutant Drop(const std::vector<Program>& programs, size_t program, size_t at);
// A copy of the instruction `at` goes before position `to`.
Mutant Duplicate(const std::vector<Program>& programs, size_t program, size_t at, size_t to);
Mutant Swap(const std::vector<Program>& programs, size_t program, size_t a, size_t b);

struct Tally {
  int mutants = 0;
  int accepted = 0;
};

// Fails the test when the verifier accepts a mutant that does not mean the same as the job.
void CheckMutant(const std::string& job, const Meaning& meaning, const Mutant& mutant,
                 Tally& tally);

}  // namespace meshwright::ir::testing
