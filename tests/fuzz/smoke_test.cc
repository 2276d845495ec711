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
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <set>
#include <utility>

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

// What a signal handler may say: how to repeat the case that it came in. A case may take less than
// a microsecond, so that all but its number is written once, and the number by the handler.
struct RepeatHint {
  std::array<char, 160> before{};
  std::array<char, 80> between{};
  std::atomic<uint64_t> number{0};
};
RepeatHint repeat_hint;

void Say(const char* text, size_t bytes) {
  const ssize_t ignored = ::write(STDERR_FILENO, text, bytes);
  (void)ignored;
}

void SayNumber(uint64_t number) {
  std::array<char, 20> digits{};
  size_t at = digits.size();
  do {
    digits[--at] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0);
  Say(digits.data() + at, digits.size() - at);
}

void SayHowToRepeat(int signal_number) {
  const uint64_t number = repeat_hint.number;
  Say(repeat_hint.before.data(), std::strlen(repeat_hint.before.data()));
  SayNumber(number);
  Say(repeat_hint.between.data(), std::strlen(repeat_hint.between.data()));
  SayNumber(number);
  constexpr char kEnd[] = " MESHWRIGHT_FUZZ_CASES=1\n";
  Say(kEnd, sizeof kEnd - 1);
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

void NoteTarget(const Target& target, uint64_t seed) {
  std::snprintf(repeat_hint.before.data(), repeat_hint.before.size(),
                "\nfuzz target %s, seed %llu, case ", target.name.c_str(),
                static_cast<unsigned long long>(seed));
  std::snprintf(
      repeat_hint.between.data(), repeat_hint.between.size(),
      ": MESHWRIGHT_FUZZ_SEED=%llu MESHWRIGHT_FUZZ_FIRST=", static_cast<unsigned long long>(seed));
}

class Fuzz : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (const int number : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) {
      ::signal(number, SayHowToRepeat);
    }
  }
};

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

double ProcessorSeconds(const Target& target, const std::string& input) {
  const std::clock_t begun = std::clock();
  target.run(input);
  return static_cast<double>(std::clock() - begun) / static_cast<double>(CLOCKS_PER_SEC);
}

TEST_P(Fuzz, MutatedInputsAreRefusedOrRead) {
  const Target& target = *FindTarget(GetParam());
  const std::vector<std::string> seeds = target.seeds();
  ASSERT_FALSE(seeds.empty());
  const uint64_t seed = NumberOf("MESHWRIGHT_FUZZ_SEED", kSmokeSeed);
  const uint64_t first = NumberOf("MESHWRIGHT_FUZZ_FIRST", 0);
  const auto usual = static_cast<uint64_t>(kSanitizedBuild ? target.cases / 8 : target.cases);
  const uint64_t cases = NumberOf("MESHWRIGHT_FUZZ_CASES", usual);
  const Mutator mutator(seeds, seed);
  NoteTarget(target, seed);
  const auto begun = std::chrono::steady_clock::now();
  auto before = begun;
  double slowest = 0;
  uint64_t slowest_case = 0;
  std::string input;
  for (uint64_t number = first; number < first + cases; ++number) {
    repeat_hint.number.store(number, std::memory_order_relaxed);
    mutator.MakeInto(number, input);
    // Nothing behind it that could be read unseen.
    if (kSanitizedBuild) input.shrink_to_fit();
    try {
      target.run(input);
      const auto now = std::chrono::steady_clock::now();
      const double seconds = Seconds(now - std::exchange(before, now));
      if (seconds > slowest) {
        slowest = seconds;
        slowest_case = number;
      }
      // By the time of the day it hangs: by that of the processor it must not.
      if (seconds > kHangSeconds) {
        EXPECT_LT(ProcessorSeconds(target, input), kHangSeconds) << "case " << number;
        before = std::chrono::steady_clock::now();
      }
    } catch (const std::exception& error) {
      FAIL() << "case " << number << " threw: " << error.what();
    }
  }
  std::printf("%s: %llu cases, seed %llu, %.0f/s, slowest %.4f s (case %llu)\n",
              target.name.c_str(), static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(seed),
              static_cast<double>(cases) / std::max(1e-9, Seconds(before - begun)), slowest,
              static_cast<unsigned long long>(slowest_case));
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
  std::string used = "what was in it before";
  for (uint64_t number = 0; number < 1000; ++number) {
    const std::string made = mutator.Make(number);
    mutator.MakeInto(number, used);
    EXPECT_EQ(made, used);
    EXPECT_LE(made.size(), Mutator::kMostBytes);
    seen.insert(made);
  }
  EXPECT_GT(seen.size(), 700u);
}

}  // namespace
}  // namespace meshwright::fuzz
