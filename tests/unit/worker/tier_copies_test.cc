// Copies between memories by threads of their own: in the order of the list, and stopped with the
// step; a disk that fails ends it.
#include "worker/tier_copies.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

constexpr int64_t kTierBytes = 1 << 16;
using Bytes = std::vector<std::byte>;

Access Of(const Bytes& bytes, bool writes) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  return {begin, begin + bytes.size(), writes};
}

TierItem CopyItem(const Bytes& from, Bytes& to) {
  TierItem item;
  item.lane = TierLane::kHost;
  item.accesses = {Of(from, false), Of(to, true)};
  item.from = from.data();
  item.to = to.data();
  item.bytes = static_cast<int64_t>(from.size());
  return item;
}

TierItem ComputeItem(const Bytes& bytes, bool writes) {
  TierItem item;
  item.accesses = {Of(bytes, writes)};
  return item;
}

// Of each lane; the threads that no item needs wait for the end.
TierThreads AllThreads() {
  return StartTierThreads({TierLane::kHost, TierLane::kDisk, TierLane::kHostRuns}, "test");
}

TEST(TierCopies, KeepTheOrderOfTheList) {
  Bytes arena(kTierBytes), host(kTierBytes), other(kTierBytes);
  // arena is written, given back, written again; what was given back comes to another place.
  const std::vector<TierItem> items = {ComputeItem(arena, true), CopyItem(arena, host),
                                       ComputeItem(arena, true), CopyItem(host, other),
                                       ComputeItem(other, false)};
  TierCopies copies(items, {}, AllThreads());
  EXPECT_EQ(copies.bytes_per_step(), 2 * kTierBytes);
  for (int step = 1; step <= 50; ++step) {
    ASSERT_TRUE(copies.Begin(step).ok());
    ASSERT_TRUE(copies.Await(0).ok());
    std::memset(arena.data(), step, arena.size());
    copies.Passed(0);
    ASSERT_TRUE(copies.Await(2).ok());
    std::memset(arena.data(), 0x7f, arena.size());
    copies.Passed(2);
    ASSERT_TRUE(copies.Await(4).ok());
    EXPECT_EQ(other, Bytes(kTierBytes, std::byte(step))) << "step " << step;
    copies.Passed(4);
    ASSERT_TRUE(copies.End().ok());
  }
}

// What the host computes waits for what was given to it, and what comes back for that.
TEST(TierCopies, TheHostRunsWhenWhatItReadsIsThere) {
  Bytes arena(kTierBytes), gone(kTierBytes), state(kTierBytes), back(kTierBytes);
  TierItem run;
  run.lane = TierLane::kHostRuns;
  run.accesses = {Of(gone, false), Of(state, true)};
  run.run = [&](int64_t) {
    for (size_t i = 0; i < state.size(); ++i) {
      state[i] =
          static_cast<std::byte>(std::to_integer<int>(state[i]) + std::to_integer<int>(gone[i]));
    }
    return OkStatus();
  };
  // The arena is written again while the host is at it.
  const std::vector<TierItem> items = {
      ComputeItem(arena, true), CopyItem(arena, gone),    run,
      CopyItem(state, back),    ComputeItem(arena, true), ComputeItem(back, false)};
  TierCopies copies(items, {}, AllThreads());
  EXPECT_EQ(copies.bytes_per_step(), 2 * kTierBytes);
  for (int step = 1; step <= 20; ++step) {
    ASSERT_TRUE(copies.Begin(step).ok());
    ASSERT_TRUE(copies.Await(0).ok());
    std::memset(arena.data(), 2, arena.size());
    copies.Passed(0);
    ASSERT_TRUE(copies.Await(4).ok());
    std::memset(arena.data(), 0x7f, arena.size());
    copies.Passed(4);
    ASSERT_TRUE(copies.Await(5).ok());
    EXPECT_EQ(back, Bytes(kTierBytes, std::byte(2 * step))) << "step " << step;
    copies.Passed(5);
    ASSERT_TRUE(copies.End().ok());
  }
}

TEST(TierCopies, AFailingHostEndsTheStep) {
  Bytes state(kTierBytes);
  TierItem run;
  run.lane = TierLane::kHostRuns;
  run.accesses = {Of(state, true)};
  bool fails = true;
  run.run = [&](int64_t) -> Status { return fails ? Internal("no number") : OkStatus(); };
  TierCopies copies({run, ComputeItem(state, false)}, {}, AllThreads());
  ASSERT_TRUE(copies.Begin(1).ok());
  EXPECT_EQ(copies.Await(1).message(), "no number");
  EXPECT_EQ(copies.End().message(), "no number");
  fails = false;
  ASSERT_TRUE(copies.Begin(1).ok());
  EXPECT_TRUE(copies.Await(1).ok());
  copies.Passed(1);
  EXPECT_TRUE(copies.End().ok());
}

// Memory may be short there, too: the step ends with that, and the next one begins anew.
TEST(TierCopies, AnExceptionOfTheHostEndsTheStep) {
  Bytes state(kTierBytes);
  TierItem run;
  run.lane = TierLane::kHostRuns;
  run.accesses = {Of(state, true)};
  bool throws = true;
  run.run = [&](int64_t) -> Status {
    if (throws) throw std::bad_alloc();
    return OkStatus();
  };
  TierCopies copies({run, ComputeItem(state, false)}, {}, AllThreads());
  ASSERT_TRUE(copies.Begin(1).ok());
  const Status failed = copies.Await(1);
  EXPECT_EQ(failed.code(), StatusCode::kInternal);
  EXPECT_EQ(failed.message(),
            "instruction 0: exception in the thread \"mw-runs-test\": std::bad_alloc");
  EXPECT_EQ(copies.End(), failed);
  throws = false;
  ASSERT_TRUE(copies.Begin(1).ok());
  EXPECT_TRUE(copies.Await(1).ok());
  copies.Passed(1);
  EXPECT_TRUE(copies.End().ok());
}

// Into the file, or out of it.
TierItem FileItem(const ScratchFile& file, int64_t offset, Bytes& bytes, bool reads) {
  TierItem item;
  item.lane = TierLane::kDisk;
  item.accesses = {Of(bytes, reads)};
  if (reads) {
    item.to = bytes.data();
  } else {
    item.from = bytes.data();
  }
  item.bytes = static_cast<int64_t>(bytes.size());
  item.file = &file;
  item.file_offset = offset;
  return item;
}

// The lanes of host and disk wait for one another where they meet in the arena.
TEST(TierCopies, KeepTheOrderOfTwoMemories) {
  const TempDir folder = *TempDir::Make();
  const ScratchFile file = *ScratchFile::Make(folder.path(), 2 * kTierBytes);
  Bytes arena(kTierBytes), host(kTierBytes), other(kTierBytes);
  const std::vector<TierItem> items = {ComputeItem(arena, true),
                                       FileItem(file, kTierBytes, arena, false),
                                       CopyItem(host, arena),
                                       CopyItem(arena, other),
                                       FileItem(file, kTierBytes, arena, true),
                                       ComputeItem(arena, false)};
  TierCopies copies(items, {}, AllThreads());
  for (int step = 1; step <= 20; ++step) {
    std::memset(host.data(), 0x55, host.size());
    ASSERT_TRUE(copies.Begin(step).ok());
    ASSERT_TRUE(copies.Await(0).ok());
    std::memset(arena.data(), step, arena.size());
    copies.Passed(0);
    ASSERT_TRUE(copies.Await(5).ok());
    EXPECT_EQ(arena, Bytes(kTierBytes, std::byte(step))) << "step " << step;
    copies.Passed(5);
    ASSERT_TRUE(copies.End().ok());
    EXPECT_EQ(other, host) << "step " << step;
  }
}

// What is behind the limit of a process's files fails as a full disk does.
TEST(TierCopies, AFailingDiskEndsTheStep) {
  const TempDir folder = *TempDir::Make();
  const ScratchFile file = *ScratchFile::Make(folder.path(), 2 * kTierBytes);
  Bytes arena(kTierBytes);
  const std::vector<TierItem> items = {
      ComputeItem(arena, true), FileItem(file, kTierBytes, arena, false),
      FileItem(file, kTierBytes, arena, true), ComputeItem(arena, false)};
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  (void)signal(SIGXFSZ, SIG_IGN);
  const rlimit low{static_cast<rlim_t>(kTierBytes), old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  TierCopies copies(items, {}, AllThreads());
  ASSERT_TRUE(copies.Begin(1).ok());
  copies.Passed(0);
  const Status failed = copies.Await(3);
  copies.Stop();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(failed.code(), StatusCode::kResourceExhausted) << failed;
  EXPECT_NE(failed.message().find(folder.path()), std::string::npos) << failed;
  EXPECT_NE(failed.message().find("--scratch-dir"), std::string::npos) << failed;
  // The next step begins anew.
  ASSERT_TRUE(copies.Begin(1).ok());
  copies.Passed(0);
  EXPECT_TRUE(copies.Await(3).ok());
  EXPECT_TRUE(copies.End().ok());
}

// What goes back behind a step's last instruction is there when the next step asks for it, and no
// instruction of the next step touches what is still being copied.
TEST(TierCopies, StepsFollowOneAnother) {
  Bytes arena(kTierBytes), state(kTierBytes), gone(kTierBytes);
  std::vector<int64_t> steps;
  TierItem renew;
  renew.lane = TierLane::kHostRuns;
  renew.accesses = {Of(gone, false), Of(state, true)};
  renew.run = [&](int64_t step) {
    steps.push_back(step);
    for (size_t i = 0; i < state.size(); ++i) state[i] = gone[i];
    return OkStatus();
  };
  // What a step reads is what the one before has made of it.
  const std::vector<TierItem> items = {CopyItem(state, arena), ComputeItem(arena, true),
                                       CopyItem(arena, gone), renew};
  TierCopies copies(items, {int64_t{1} << 27, 0}, AllThreads());
  EXPECT_TRUE(copies.idle());
  constexpr int kFollowing = 40;
  for (int step = 0; step < kFollowing; ++step) {
    ASSERT_TRUE(copies.Begin(step).ok());
    EXPECT_FALSE(copies.idle());
    ASSERT_TRUE(copies.Await(1).ok());
    for (std::byte& each : arena) {
      ASSERT_EQ(std::to_integer<int>(each), step);
      each = static_cast<std::byte>(step + 1);
    }
    copies.Passed(1);
  }
  ASSERT_TRUE(copies.End().ok());
  EXPECT_TRUE(copies.idle());
  EXPECT_EQ(state, Bytes(kTierBytes, std::byte{kFollowing}));
  EXPECT_EQ(steps.size(), size_t{kFollowing});
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<int64_t>(i));
}

// A step that ends well leaves a copy behind that fails: the next one says so, or the end.
TEST(TierCopies, AFailureBehindAStepIsNotLost) {
  Bytes state(kTierBytes);
  TierItem run;
  run.lane = TierLane::kHostRuns;
  run.accesses = {Of(state, true)};
  run.run = [&](int64_t step) -> Status { return step == 3 ? Internal("no number") : OkStatus(); };
  Bytes other(kTierBytes);
  TierCopies copies({ComputeItem(other, true), run}, {}, AllThreads());
  const auto steps = [&](int64_t first, int64_t count) {
    for (int64_t step = first; step < first + count; ++step) {
      const Status begun = copies.Begin(step);
      if (!begun.ok()) return begun;
      copies.Passed(0);
    }
    return OkStatus();
  };
  ASSERT_TRUE(steps(0, 3).ok());
  ASSERT_TRUE(copies.End().ok());
  ASSERT_TRUE(steps(3, 1).ok());
  EXPECT_EQ(copies.End().message(), "no number");
  // Two steps behind it at the most.
  EXPECT_EQ(steps(3, 4).message(), "no number");
  copies.Stop();
  ASSERT_TRUE(steps(7, 2).ok());
  EXPECT_TRUE(copies.End().ok());
}

// The host's memory has x, y = 2 x is made by the device and z = 2 y by the host.
ir::Program ProgramWithTiers() {
  ProgramMaker maker("step", 0);
  const SlotId x = maker.Persistent("x", F32({4}));
  const SlotId y = maker.Persistent("y", F32({4}));
  const SlotId z = maker.Persistent("z", F32({4}));
  const SlotId near_x = maker.Transient(F32({4}));
  const SlotId near_y = maker.Transient(F32({4}));
  const std::string twice = R"(graph "double" {
    %0 = input {name="x"} : f32[4]
    %1 = scale(%0) {factor=2.0} : f32[4]
    output "y" %1
  })";
  maker.Run(maker.Executable(twice), {near_x}, {near_y});
  maker.Run(maker.Executable(twice), {y}, {z});
  ir::Program program = maker.Finish();
  for (const SlotId far : {x, y, z}) program.slots[far.index()].space = ir::Space::kHost;
  const auto copy = [](ir::Opcode op, SlotId from, SlotId to) {
    ir::Instruction instruction;
    instruction.op = op;
    instruction.inputs = {from};
    instruction.outputs = {to};
    return instruction;
  };
  auto& list = program.instructions;
  list.insert(list.begin() + 1, copy(ir::Opcode::kOffload, near_y, y));
  list.insert(list.begin(), copy(ir::Opcode::kPrefetch, x, near_x));
  return program;
}

// By name, the cores that each thread of this process may use.
std::map<std::string, int> CoresOfThreads() {
  std::map<std::string, int> cores;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const auto name = ReadFile((entry.path() / "comm").string());
    cpu_set_t set;
    const pid_t thread = std::stoi(entry.path().filename().string());
    if (!name || sched_getaffinity(thread, sizeof(set), &set) != 0) continue;
    cores[std::string(Trim(*name))] = CPU_COUNT(&set);
  }
  return cores;
}

// A thread that is started runs where the one that starts it may: copies that were kept to the core
// of the device's thread would take their time from what computes.
TEST(TierCopies, RunBesideADeviceThatIsKeptToOneCore) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof(usable), &usable), 0);
  if (CPU_COUNT(&usable) == 1) GTEST_SKIP() << "there is one core";
  int core = 0;
  while (!CPU_ISSET(static_cast<size_t>(core), &usable)) ++core;
  RuntimeOptions options = LocalOptions(1, {ProgramWithTiers()});
  options.cpus = {{core}};
  auto runtime = MustLoad(std::move(options));
  Write<float>(*runtime, 0, "x", {1, 2, 3, 4});
  const auto launched = runtime->Launch({"step", 0, 2});
  ASSERT_TRUE(launched.has_value()) << launched.error();
  EXPECT_EQ(ReadFloats(*runtime, 0, "z"), (std::vector<float>{4, 8, 12, 16}));
  const std::map<std::string, int> cores = CoresOfThreads();
  ASSERT_TRUE(cores.contains("mw-dev-0") && cores.contains("mw-host-0") &&
              cores.contains("mw-runs-0"));
  EXPECT_EQ(cores.at("mw-dev-0"), 1);
  EXPECT_EQ(cores.at("mw-host-0"), CPU_COUNT(&usable));
  EXPECT_EQ(cores.at("mw-runs-0"), CPU_COUNT(&usable));
}

// A link of a byte per second would need hours.
TEST(TierCopies, StopWithTheStep) {
  Bytes host(kTierBytes, std::byte{1}), arena(kTierBytes);
  const std::vector<TierItem> items = {CopyItem(host, arena), ComputeItem(arena, false)};
  TierCopies copies(items, {1, 1}, AllThreads());
  ASSERT_TRUE(copies.Begin(1).ok());
  copies.Stop();
  ASSERT_TRUE(copies.Begin(1).ok());
  copies.Stop();
}

}  // namespace
}  // namespace meshwright::worker
