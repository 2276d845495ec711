// Every target survives some thousand mutated inputs, the same ones in each run.
//
//   MESHWRIGHT_FUZZ_CASES=1000000   so many cases of each target, not those of the table
//   MESHWRIGHT_FUZZ_SEED=7          other ones
//   MESHWRIGHT_FUZZ_FIRST=123456    from this case on, to repeat one
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <set>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/target.h"
#include "tests/scale.h"

namespace meshwright::fuzz {
namespace {

constexpr uint64_t kSmokeSeed = 20261127;
// Nothing a parser does with 64 KiB takes so much of a processor, however slow it is; what others
// on the machine take does not count.
constexpr double kHangSeconds = 20;

uint64_t NumberOf(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// What a signal handler may say: how to repeat the case that it came in.
std::array<char, 256> repeat_hint{};

void SayHowToRepeat(int signal_number) {
  const ssize_t ignored =
      ::write(STDERR_FILENO, repeat_hint.data(), std::strlen(repeat_hint.data()));
  (void)ignored;
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

void NoteCase(const Target& target, uint64_t seed, uint64_t number) {
  std::snprintf(repeat_hint.data(), repeat_hint.size(),
                "\nfuzz target %s, seed %llu, case %llu: MESHWRIGHT_FUZZ_SEED=%llu "
                "MESHWRIGHT_FUZZ_FIRST=%llu MESHWRIGHT_FUZZ_CASES=1\n",
                target.name.c_str(), static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(number), static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(number));
}

class Fuzz : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (const int number : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) {
      ::signal(number, SayHowToRepeat);
    }
  }
};

TEST_P(Fuzz, MutatedInputsAreRefusedOrRead) {
  const Target& target = *FindTarget(GetParam());
  const std::vector<std::string> seeds = target.seeds();
  ASSERT_FALSE(seeds.empty());
  const uint64_t seed = NumberOf("MESHWRIGHT_FUZZ_SEED", kSmokeSeed);
  const uint64_t first = NumberOf("MESHWRIGHT_FUZZ_FIRST", 0);
  const auto usual = static_cast<uint64_t>(kSanitizedBuild ? target.cases / 8 : target.cases);
  const uint64_t cases = NumberOf("MESHWRIGHT_FUZZ_CASES", usual);
  const Mutator mutator(seeds, seed);
  double slowest = 0;
  uint64_t slowest_case = 0;
  for (uint64_t number = first; number < first + cases; ++number) {
    NoteCase(target, seed, number);
    const std::string input = mutator.Make(number);
    const std::clock_t begun = std::clock();
    try {
      target.run(input);
    } catch (const std::exception& error) {
      FAIL() << "case " << number << " threw: " << error.what();
    }
    const double seconds =
        static_cast<double>(std::clock() - begun) / static_cast<double>(CLOCKS_PER_SEC);
    if (seconds > slowest) {
      slowest = seconds;
      slowest_case = number;
    }
  }
  EXPECT_LT(slowest, kHangSeconds) << "case " << slowest_case;
  std::printf("%s: %llu cases, seed %llu, slowest %.4f s (case %llu)\n", target.name.c_str(),
              static_cast<unsigned long long>(cases), static_cast<unsigned long long>(seed),
              slowest, static_cast<unsigned long long>(slowest_case));
}

std::vector<std::string> NamesOfTargets() {
  std::vector<std::string> names;
  for (const Target& target : AllTargets()) names.push_back(target.name);
  return names;
}

std::string TestNameOf(const ::testing::TestParamInfo<std::string>& target) {
  std::string name = target.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Fuzz, ::testing::ValuesIn(NamesOfTargets()), TestNameOf);

TEST(FuzzTargets, HaveNamesOfTheirOwn) {
  const std::vector<std::string> names = NamesOfTargets();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

// Else the smoke would look at nothing: what our own writers make has to be read.
TEST(FuzzTargets, MutationsDependOnTheirNumberAlone) {
  const Mutator mutator({"{\"a\":[1,2,3]}", "abc"}, 7);
  std::set<std::string> seen;
  for (uint64_t number = 0; number < 1000; ++number) {
    EXPECT_EQ(mutator.Make(number), mutator.Make(number));
    EXPECT_LE(mutator.Make(number).size(), Mutator::kMostBytes);
    seen.insert(mutator.Make(number));
  }
  EXPECT_GT(seen.size(), 700u);
}

}  // namespace
}  // namespace meshwright::fuzz
