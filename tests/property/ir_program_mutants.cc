#include "tests/property/ir_program_mutants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "ir/text.h"
#include "ir/verify.h"

namespace meshwright::ir::testing {
namespace {

std::string Describe(const std::vector<Program>& programs, size_t program, size_t at) {
  return fmt::format("{} {}", at,
                     FormatInstruction(programs[program], programs[program].instructions[at]));
}

}  // namespace

Mutant Drop(const std::vector<Program>& programs, size_t program, size_t at) {
  Mutant mutant{programs,
                fmt::format("device {}: drop {}", program, Describe(programs, program, at))};
  auto& list = mutant.programs[program].instructions;
  list.erase(list.begin() + static_cast<ptrdiff_t>(at));
  return mutant;
}

Mutant Duplicate(const std::vector<Program>& programs, size_t program, size_t at, size_t to) {
  Mutant mutant{programs, fmt::format("device {}: duplicate {} before {}", program,
                                      Describe(programs, program, at), to)};
  auto& list = mutant.programs[program].instructions;
  const Instruction copy = list[at];
  list.insert(list.begin() + static_cast<ptrdiff_t>(to), copy);
  return mutant;
}

Mutant Swap(const std::vector<Program>& programs, size_t program, size_t a, size_t b) {
  Mutant mutant{programs,
                fmt::format("device {}: swap {} and {}", program, Describe(programs, program, a),
                            Describe(programs, program, b))};
  auto& list = mutant.programs[program].instructions;
  std::swap(list[a], list[b]);
  return mutant;
}

void CheckMutant(const std::string& job, const Meaning& meaning, const Mutant& mutant,
                 Tally& tally) {
  ++tally.mutants;
  if (!VerifyPrograms(mutant.programs).ok()) return;
  ++tally.accepted;
  for (const uint64_t interleaving : {1, 2, 3}) {
    ASSERT_EQ(Interpret(mutant.programs, interleaving), meaning)
        << job << "\n"
        << mutant.description << "\ninterleaving " << interleaving;
  }
}

}  // namespace meshwright::ir::testing
