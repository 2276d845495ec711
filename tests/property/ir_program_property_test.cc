// The verifier against random jobs and their mutants.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "ir/text.h"
#include "ir/verify.h"
#include "tests/property/ir_program_generator.h"
#include "tests/property/ir_program_interpreter.h"
#include "tests/property/ir_program_mutants.h"
#include "tests/scale.h"

namespace meshwright::ir::testing {
namespace {

constexpr uint64_t kJobs = kSanitizedBuild ? 50 : 1000;
constexpr int kSmallJobs = kSanitizedBuild ? 2 : 24;
constexpr size_t kMutantStride = kSanitizedBuild ? 20 : 1;  // every how many instructions

TEST(ProgramVerifierProperty, AcceptsEveryGeneratedJobAndItNeverHangs) {
  for (uint64_t seed = 0; seed < kJobs; ++seed) {
    const GeneratedJob job = GenerateJob(seed);
    const Status status = VerifyPrograms(job.programs);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << job.description << "\n" << status;
    const Meaning meaning = Interpret(job.programs, seed);
    ASSERT_TRUE(meaning.finished) << "seed " << seed << ": " << job.description;
    ASSERT_EQ(Interpret(job.programs, seed + 1), meaning)
        << "seed " << seed << ": depends on timing";
  }
}

// The generator's lists are right but for the room in their channels: the verifier must know
// exactly which of them hang.
TEST(ProgramVerifierProperty, AcceptsTightChannelsExactlyWhenTheJobFinishes) {
  int hanging = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const GeneratedJob job = GenerateJob(seed, Channels::kTight);
    const bool finishes = Interpret(job.programs, seed).finished;
    const Status status = VerifyPrograms(job.programs);
    ASSERT_EQ(status.ok(), finishes) << "seed " << seed << ": " << job.description << "\n"
                                     << status;
    if (finishes) continue;
    ++hanging;
    EXPECT_NE(status.message().find("waits for ever"), std::string::npos) << status;
  }
  EXPECT_GT(hanging, 0);
  EXPECT_LT(hanging, 200);
}

TEST(ProgramVerifierProperty, RejectsRandomMutantsThatChangeTheMeaning) {
  Tally tally;
  for (uint64_t seed = 0; seed < kJobs; ++seed) {
    const GeneratedJob job = GenerateJob(seed);
    const Meaning meaning = Interpret(job.programs, 0);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 12; ++i) {
      const size_t program = random() % job.programs.size();
      const size_t count = job.programs[program].instructions.size();
      const size_t a = random() % count;
      const size_t b = random() % count;
      CheckMutant(job.description, meaning, Drop(job.programs, program, a), tally);
      CheckMutant(job.description, meaning, Duplicate(job.programs, program, a, b), tally);
      CheckMutant(job.description, meaning, Swap(job.programs, program, a, b), tally);
      CheckMutant(job.description, meaning,
                  Swap(job.programs, program, a, a + 1 < count ? a + 1 : 0), tally);
      if (HasFatalFailure()) FAIL() << "seed " << seed;
    }
  }
  RecordProperty("mutants", tally.mutants);
  RecordProperty("accepted", tally.accepted);
  // Independent neighbours may change places; nearly everything else must show.
  EXPECT_LT(tally.accepted, tally.mutants / 4);
}

TEST(ProgramVerifierProperty, RejectsEveryMutantOfSmallJobsThatChangesTheMeaning) {
  Tally tally;
  int jobs = 0;
  for (uint64_t seed = 5000; jobs < kSmallJobs; ++seed) {
    const GeneratedJob job = GenerateJob(seed);
    if (job.programs.size() > 3) continue;
    ++jobs;
    const Meaning meaning = Interpret(job.programs, 0);
    for (size_t program = 0; program < job.programs.size(); ++program) {
      const size_t count = job.programs[program].instructions.size();
      for (size_t a = 0; a < count; a += kMutantStride) {
        CheckMutant(job.description, meaning, Drop(job.programs, program, a), tally);
        for (size_t b = a + 1; b <= count; ++b) {
          CheckMutant(job.description, meaning, Duplicate(job.programs, program, a, b), tally);
          if (b < count)
            CheckMutant(job.description, meaning, Swap(job.programs, program, a, b), tally);
          if (HasFatalFailure()) FAIL() << "seed " << seed;
        }
      }
    }
  }
  RecordProperty("mutants", tally.mutants);
  RecordProperty("accepted", tally.accepted);
}

// The oracle itself: it must see that mutants differ, else the tests above say nothing.
TEST(ProgramVerifierProperty, InterpreterTellsMutantsApart) {
  int changed = 0;
  int mutants = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const GeneratedJob job = GenerateJob(seed);
    const Meaning meaning = Interpret(job.programs, 0);
    for (size_t at = 0; at < job.programs[0].instructions.size(); ++at) {
      if (job.programs[0].instructions[at].op == Opcode::kFree) continue;
      ++mutants;
      changed += Interpret(Drop(job.programs, 0, at).programs, 0) == meaning ? 0 : 1;
    }
  }
  EXPECT_GT(changed, mutants * 9 / 10);
}

TEST(ProgramVerifierProperty, ProgramTextRoundTrips) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const Program& program : GenerateJob(seed).programs) {
      const std::string text = FormatProgram(program);
      const auto parsed = ParseProgram(text);
      ASSERT_TRUE(parsed.has_value()) << parsed.error() << "\n" << text;
      ASSERT_EQ(*parsed, program) << text;
      ASSERT_EQ(FormatProgram(*parsed), text);
    }
  }
}

// Random byte edits of valid text: parsing and verifying whatever still parses must not crash.
TEST(ProgramVerifierProperty, SurvivesDamagedText) {
  std::mt19937_64 random(7);
  int parsed_count = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    const GeneratedJob job = GenerateJob(seed % 50);
    std::vector<Program> programs = job.programs;
    std::string text = FormatProgram(programs[0]);
    const std::string alphabet = "0123456789-sce%@[]{}(),:=\"\\ abfmn\n";
    for (int edit = 0; edit < 2; ++edit) {
      const size_t at = random() % text.size();
      const size_t kind = random() % 3;
      if (kind == 0) text.erase(at, 1 + random() % 3);
      if (kind == 1) text[at] = alphabet[random() % alphabet.size()];
      if (kind == 2) text.insert(at, 1, alphabet[random() % alphabet.size()]);
    }
    auto parsed = ParseProgram(text);
    if (!parsed) {
      EXPECT_EQ(parsed.error().code(), StatusCode::kInvalidArgument);
      continue;
    }
    ++parsed_count;
    programs[0] = std::move(*parsed);
    const Status status = VerifyPrograms(programs);
    EXPECT_EQ(status.ok(), status.message().empty());
  }
  EXPECT_GT(parsed_count, 20);
}

}  // namespace
}  // namespace meshwright::ir::testing
