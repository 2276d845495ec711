// Steps of emulated GPUs: what is recorded, how much is given, what is said of failures, and that
// nothing is freed that a device still uses.
#include "worker/queued_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/unit/worker/gpu_mesh.h"

namespace meshwright::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr device::cuda::Code kInvalidValue = 1;

constexpr char kFill[] = R"(graph "fill" {
  %0 = constant {value=7.0} : f32[2]
  output "x" %0
})";
constexpr char kFeedRows[] = R"(graph "feed" {
  %0 = feed {source="tokens"} : i32[1,2]
  output "rows" %0
})";

// One device that fills the same slot so many times, an instruction each.
ir::Program Fills(int count) {
  ProgramMaker maker("step", 0);
  const SlotId x = maker.Persistent("x", F32({2}));
  const ExecutableIndex fill = maker.Executable(kFill);
  for (int i = 0; i < count; ++i) maker.Run(fill, {}, {x});
  return maker.Finish();
}

// Two devices that add up; rank 1 reads a row before.
std::vector<ir::Program> Sums(const std::string& kind = "sum") {
  const auto graph = GraphOf(R"(graph "sum" {
    %0 = input {name="x"} : f32[4]
    %1 = all_reduce(%0) {axes=["data"], kind=")" +
                             kind + R"("} : f32[4]
    output "y" %1
  })");
  std::vector<ir::Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    ProgramMaker maker("step", rank, {{{"data", 2}}, {}, 0});
    const SlotId x = maker.Persistent("x", F32({4}));
    const SlotId y = maker.Persistent("y", F32({4}));
    if (rank == 1) {
      const SlotId rows = maker.Persistent("rows", {ir::DType::kI32, {1, 2}});
      maker.Run(maker.Executable(kFeedRows), {}, {rows});
    }
    maker.Run(maker.Executable(graph), {x}, {y});
    programs.push_back(maker.Finish());
  }
  return programs;
}

// Rows of one number; does something first.
class Feed final : public ops::TokenSource {
 public:
  explicit Feed(std::function<void()> before = {}, int32_t number = 0)
      : before_(std::move(before)), number_(number) {}
  Status ReadSample(const std::string&, int64_t, std::span<int32_t> row) override {
    if (before_) before_();
    std::fill(row.begin(), row.end(), number_);
    return OkStatus();
  }

 private:
  const std::function<void()> before_;
  const int32_t number_;
};

void ExpectNothingIsLeft(const GpuMesh& gpus) {
  EXPECT_THAT(gpus.driver.misuse(), IsEmpty());
  EXPECT_THAT(gpus.network.misuse(), IsEmpty());
  for (const char* kind : {"allocation", "host", "stream", "event", "graph"}) {
    EXPECT_EQ(gpus.driver.alive(kind), 0) << kind;
  }
}

// ---- Recordings ---------------------------------------------------------------------------------

TEST(QueuedStep, IsRecordedBeforeItsFirstRun) {
  GpuMesh gpus(1);
  auto runtime = GpuMesh::Start(gpus.Options({Fills(3)}));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  EXPECT_EQ(gpus.driver.calls("StartCapture"), 1);
  EXPECT_EQ(gpus.driver.calls("LaunchGraph"), 0);
  ASSERT_TRUE((*runtime)->Launch({"step", 0, 3}).has_value());
  EXPECT_EQ(gpus.driver.calls("StartCapture"), 1);
  EXPECT_EQ(gpus.driver.calls("LaunchGraph"), 3);
  EXPECT_EQ(ReadFloats(**runtime, 0, "x"), (std::vector<float>{7, 7}));
}

// A kernel that stands alone between two collectives is loaded all the same, and so are the copies
// around collectives; a recording of either is not kept.
TEST(QueuedStep, LoadsWhatItDoesNotReplay) {
  const auto graph = GraphOf(R"(graph "gather" {
    %0 = input {name="x"} : f32[2,4]
    %1 = all_gather(%0) {axes=["data"], dim=1} : f32[2,8]
    output "y" %1
  })");
  std::vector<ir::Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    ProgramMaker maker("step", rank, {{{"data", 2}}, {}, 0});
    const SlotId x = maker.Persistent("x", F32({2, 4}));
    maker.Run(maker.Executable(graph), {x}, {maker.Persistent("y", F32({2, 8}))});
    programs.push_back(maker.Finish());
  }
  GpuMesh gpus(2);
  auto runtime = GpuMesh::Start(gpus.Options(std::move(programs)));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  EXPECT_EQ(gpus.driver.calls("StartCapture"), 2);
  EXPECT_EQ(gpus.driver.calls("Scatter"), 4) << "two blocks of each rank, in the capture";
  EXPECT_EQ(gpus.driver.alive("graph"), 0);
  Write<float>(**runtime, 0, "x", {0, 1, 2, 3, 8, 9, 10, 11});
  Write<float>(**runtime, 1, "x", {4, 5, 6, 7, 12, 13, 14, 15});
  ASSERT_TRUE((*runtime)->Launch({"step", 0, 2}).has_value());
  std::vector<float> all(16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  EXPECT_EQ(ReadFloats(**runtime, 1, "y"), all);
  EXPECT_EQ(gpus.driver.calls("StartCapture"), 2);
}

// As every library could do it before it was recorded at load.
TEST(QueuedStep, WhatCannotBeRecordedAtLoadIsRecordedInTheSecondStep) {
  GpuMesh gpus(1);
  gpus.driver.Fail("FinishCapture", kInvalidValue);
  auto runtime = GpuMesh::Start(gpus.Options({Fills(3)}));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  ASSERT_TRUE((*runtime)->Launch({"step", 0, 1}).has_value());
  EXPECT_EQ(gpus.driver.calls("LaunchGraph"), 0);
  EXPECT_EQ(ReadFloats(**runtime, 0, "x"), (std::vector<float>{7, 7}));
  ASSERT_TRUE((*runtime)->Launch({"step", 1, 3}).has_value());
  EXPECT_EQ(gpus.driver.calls("StartCapture"), 2);
  EXPECT_EQ(gpus.driver.calls("LaunchGraph"), 3);
}

TEST(QueuedStep, WhatCanNeverBeRecordedIsGivenItemByItem) {
  GpuMesh gpus(1);
  gpus.driver.Fail("FinishCapture", kInvalidValue, 0, 1000);
  auto runtime = GpuMesh::Start(gpus.Options({Fills(3)}));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  const auto done = (*runtime)->Launch({"step", 0, 4});
  ASSERT_TRUE(done.has_value()) << done.error();
  EXPECT_EQ(gpus.driver.calls("StartCapture"), 2) << "once at load, once more in the second step";
  EXPECT_EQ(gpus.driver.calls("LaunchGraph"), 0);
  EXPECT_EQ(ReadFloats(**runtime, 0, "x"), (std::vector<float>{7, 7}));
}

TEST(QueuedStep, ADeviceThatIsLostWhileItRecordsFailsTheLoad) {
  GpuMesh gpus(1);
  gpus.driver.Fail("FinishCapture", device::cuda::kLaunchFailure);
  const auto runtime = JobRuntime::Load(gpus.Options({Fills(3)}));
  ASSERT_FALSE(runtime.has_value());
  EXPECT_EQ(runtime.error().blame(), Blame::kHardware);
  EXPECT_THAT(runtime.error().message(), HasSubstr("rank 0, program 'step'"));
}

// ---- How much is given --------------------------------------------------------------------------

TEST(QueuedStep, GivesNoMoreThanADriverTakes) {
  for (const bool record : {false, true}) {
    GpuMesh gpus(1, {.most_launches = 300});
    RuntimeOptions options = gpus.Options({Fills(3000)});
    options.gpus.record = record;
    auto runtime = GpuMesh::Start(std::move(options));
    ASSERT_TRUE(runtime.has_value()) << runtime.error();
    const auto done = (*runtime)->Launch({"step", 0, 2});
    ASSERT_TRUE(done.has_value()) << done.error();
    EXPECT_THAT(gpus.driver.misuse(), IsEmpty());
    // 6000 items with their marks are recordings of 2000.
    EXPECT_EQ(gpus.driver.calls("LaunchGraph"), record ? 6 : 0);
    EXPECT_GT(gpus.driver.most_outstanding(), record ? 0 : 100);
  }
}

// ---- What the host runs -------------------------------------------------------------------------

ir::Instruction CopyOf(ir::Opcode op, SlotId from, SlotId to) {
  ir::Instruction copy;
  copy.op = op;
  copy.inputs = {from};
  copy.outputs = {to};
  return copy;
}

// The device gets a row, which goes out; the host finds it in a table of its own, writes that down
// and gives it back.
ir::Program FindsOnHost() {
  ProgramMaker maker("step", 0);
  const SlotId rows = maker.Persistent("rows", {ir::DType::kI32, {1, 2}});
  const SlotId gone = maker.Persistent("gone", {ir::DType::kI32, {1, 2}});
  const SlotId table = maker.Persistent("table", F32({3, 1}));
  const SlotId found = maker.Persistent("found", F32({1, 2, 1}));
  const SlotId back = maker.Persistent("back", F32({1, 2, 1}));
  maker.Run(maker.Executable(kFeedRows), {}, {rows});
  maker.Run(maker.Executable(R"(graph "find" {
    %0 = input {name="table"} : f32[3,1]
    %1 = input {name="gone"} : i32[1,2]
    %2 = embedding(%0, %1) : f32[1,2,1]
    output "found" %2
  })"),
            {table, gone}, {found});
  ir::Program program = maker.Finish();
  for (const SlotId id : {gone, table, found}) program.slots[id.index()].space = ir::Space::kHost;
  program.instructions.insert(program.instructions.begin() + 1,
                              CopyOf(ir::Opcode::kOffload, rows, gone));
  program.instructions.push_back(CopyOf(ir::Opcode::kPrefetch, found, back));
  return program;
}

TEST(QueuedStep, TheHostRunsWhatIsInItsMemory) {
  for (const uint64_t seed : {1, 2, 3}) {
    GpuMesh gpus(1, {.seed = seed});
    Feed feed({}, 2);
    RuntimeOptions options = gpus.Options({FindsOnHost()});
    options.feed = &feed;
    auto runtime = GpuMesh::Start(std::move(options));
    ASSERT_TRUE(runtime.has_value()) << runtime.error();
    for (const float value : {5.0f, 6.0f}) {
      Write<float>(**runtime, 0, "table", {0, 1, value});
      const auto ran = (*runtime)->Launch({"step", 0, 1});
      ASSERT_TRUE(ran.has_value()) << ran.error();
      EXPECT_EQ(ReadFloats(**runtime, 0, "back"), (std::vector<float>{value, value}));
    }
    EXPECT_EQ(gpus.driver.calls("CallHost"), 2);
    runtime->reset();
    ExpectNothingIsLeft(gpus);
  }
}

TEST(QueuedStep, AFailureOfTheHostIsOfItsInstruction) {
  GpuMesh gpus(1);
  Feed feed({}, 7);
  RuntimeOptions options = gpus.Options({FindsOnHost()});
  options.feed = &feed;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  const auto failed = (*runtime)->Launch({"step", 0, 2});
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(), HasSubstr("step 0, instruction 2 (RUN"));
  EXPECT_THAT(failed.error().message(), HasSubstr("id 7"));
  EXPECT_EQ(gpus.driver.calls("CallHost"), 1);
  runtime->reset();
  ExpectNothingIsLeft(gpus);
}

// ---- Failures -----------------------------------------------------------------------------------

// The call that shows it was for another instruction.
TEST(QueuedStep, AnErrorThatShowsLaterIsOfTheInstructionBehindTheMark) {
  GpuMesh gpus(1);
  RuntimeOptions options = gpus.Options({Fills(3)});
  options.gpus.record = false;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  gpus.driver.Fail("Mark", device::cuda::kIllegalAddress, 2);
  const auto lost = (*runtime)->Launch({"step", 0, 1});
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().blame(), Blame::kHardware);
  EXPECT_THAT(lost.error().message(), HasSubstr("step 0, instruction 0 (RUN"));
}

TEST(QueuedStep, AnErrorOfOneCallIsOfItsOwnInstruction) {
  GpuMesh gpus(1);
  RuntimeOptions options = gpus.Options({Fills(3)});
  options.gpus.record = false;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  gpus.driver.Fail("Mark", kInvalidValue, 2);
  const auto failed = (*runtime)->Launch({"step", 0, 1});
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(), HasSubstr("step 0, instruction 2 (RUN"));
  runtime->reset();
  ExpectNothingIsLeft(gpus);
}

// Work that fails while the host waits for room: it had given much more by then.
TEST(QueuedStep, ADeviceThatFailsBehindTheHostIsNamedWhereItIs) {
  GpuMesh gpus(1);
  RuntimeOptions options = gpus.Options({Fills(500)});
  options.gpus.record = false;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  // The step's state, then a fill and a mark each.
  gpus.driver.SpoilDevice(0, device::cuda::kIllegalAddress, 1 + 2 * 10);
  const auto lost = (*runtime)->Launch({"step", 0, 1});
  ASSERT_FALSE(lost.has_value());
  EXPECT_THAT(lost.error().message(), HasSubstr("step 0, instruction 10 (RUN"));
}

TEST(QueuedStep, AFailureOfTheHostsPartIsOfNoInstruction) {
  GpuMesh gpus(2);
  RuntimeOptions options = gpus.Options(Sums());
  options.feed = nullptr;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  const auto failed = (*runtime)->Launch({"step", 0, 1});
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(), HasSubstr("rank 1, program 'step', step 0: "));
  EXPECT_THAT(failed.error().message(), HasSubstr("no data source"));
  runtime->reset();
  ExpectNothingIsLeft(gpus);
}

// ---- Devices that stand still -------------------------------------------------------------------

TEST(QueuedStep, ADeviceThatFinishesNothingIsGivenUpAndKeepsItsMemory) {
  GpuMesh gpus(1);
  RuntimeOptions options = gpus.Options({Fills(3)});
  options.gpus.stall_timeout_ms = 50;
  options.gpus.drain_timeout_ms = 50;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  const int64_t allocations = gpus.driver.alive("allocation");
  gpus.driver.Hang(0, true);
  const auto stalled = (*runtime)->Launch({"step", 0, 1});
  ASSERT_FALSE(stalled.has_value());
  EXPECT_EQ(stalled.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(stalled.error().blame(), Blame::kPeerVictim);
  EXPECT_THAT(stalled.error().message(),
              HasSubstr("rank 0, program 'step', step 0, instruction 0 (RUN"));
  EXPECT_THAT(stalled.error().message(),
              HasSubstr("cuda:0 (rank 0) has finished no work for 0.05"));
  const Status end = (*runtime)->Close();
  EXPECT_EQ(end.blame(), Blame::kHardware);
  EXPECT_THAT(end.message(), HasSubstr("did not end with the job"));
  EXPECT_EQ((*runtime)->Close(), end);
  runtime->reset();
  EXPECT_THAT(gpus.driver.misuse(), IsEmpty());
  EXPECT_EQ(gpus.driver.alive("allocation"), allocations);
  EXPECT_EQ(gpus.driver.alive("graph"), 1);
  const auto again = JobRuntime::Load(gpus.Options({Fills(3)}));
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().blame(), Blame::kHardware);
}

// The peer's host reads its rows all the time: only one device can speak.
TEST(QueuedStep, ADeviceThatWaitsForAPeerIsAVictimAndWaitsTwiceAsLong) {
  GpuMesh gpus(2);
  const Deadline deadline = Deadline::After(20'000);
  Feed feed([&] {
    while (gpus.nccl.count("CommAbort") == 0 && !deadline.expired()) std::this_thread::yield();
  });
  RuntimeOptions options = gpus.Options(Sums());
  options.feed = &feed;
  options.gpus.stall_timeout_ms = 1'000;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  const auto stalled = (*runtime)->Launch({"step", 0, 1});
  ASSERT_FALSE(stalled.has_value());
  EXPECT_EQ(stalled.error().blame(), Blame::kPeerVictim);
  EXPECT_THAT(stalled.error().message(),
              HasSubstr("rank 0, program 'step', step 0, instruction 0 (RUN"));
  EXPECT_THAT(stalled.error().message(), HasSubstr("for 2 s; it waits for another device"));
  runtime->reset();
  ExpectNothingIsLeft(gpus);
}

// Both stand still: the one that hangs is the cause.
TEST(QueuedStep, TheDeviceThatHangsIsNamedAndNotItsVictim) {
  GpuMesh& gpus = MeshForEver(2);
  Feed feed;
  RuntimeOptions options = gpus.Options(Sums());
  options.feed = &feed;
  options.gpus.stall_timeout_ms = 1'000;
  options.gpus.drain_timeout_ms = 50;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  gpus.driver.Hang(1, true);
  const auto stalled = (*runtime)->Launch({"step", 0, 1});
  ASSERT_FALSE(stalled.has_value());
  EXPECT_THAT(stalled.error().message(),
              HasSubstr("rank 1, program 'step', step 0, instruction 0 (RUN"));
  EXPECT_NE(stalled.error().blame(), Blame::kPeerVictim);
  runtime->reset();
  // Nobody waits for the aborts of what is kept.
  const Deadline deadline = Deadline::After(20'000);
  while (gpus.network.alive() > 0 && !deadline.expired()) std::this_thread::yield();
  EXPECT_EQ(gpus.network.alive(), 0);
  EXPECT_THAT(gpus.driver.misuse(), IsEmpty());
}

// ---- The end ------------------------------------------------------------------------------------

// Rank 0 has given all of its step when the abort comes, and its device is at none of it.
TEST(QueuedStep, AnAbortFreesNothingBeforeTheQueuesAreEmpty) {
  GpuMesh gpus(2);
  JobRuntime* to_abort = nullptr;
  int before = 0;
  const Deadline deadline = Deadline::After(20'000);
  Feed feed([&] {
    while (gpus.nccl.count("AllReduce") == before && !deadline.expired()) {
      std::this_thread::yield();
    }
    to_abort->Abort(Aborted("by the user"));
  });
  RuntimeOptions options = gpus.Options(Sums());
  options.feed = &feed;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  to_abort = runtime->get();
  before = gpus.nccl.count("AllReduce");
  const auto aborted = (*runtime)->Launch({"step", 0, 1});
  ASSERT_FALSE(aborted.has_value());
  EXPECT_EQ(aborted.error(), Aborted("by the user"));
  EXPECT_TRUE((*runtime)->Close().ok());
  ExpectNothingIsLeft(gpus);
}

TEST(QueuedStep, AnAbortedStepStillFindsOutThatItsDeviceIsLost) {
  GpuMesh gpus(2);
  JobRuntime* to_abort = nullptr;
  Feed feed([&] {
    gpus.driver.SpoilDevice(1, device::cuda::kIllegalAddress);
    to_abort->Abort(Aborted("by the user"));
  });
  RuntimeOptions options = gpus.Options(Sums());
  options.feed = &feed;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  to_abort = runtime->get();
  EXPECT_EQ((*runtime)->Launch({"step", 0, 1}).error(), Aborted("by the user"));
  EXPECT_EQ((*runtime)->DeviceStatus().blame(), Blame::kHardware);
}

// Only a new process gets rid of what such an error leaves behind; a peer's death is none.
TEST(QueuedStep, AnErrorOfTheSystemInNcclNeedsAnotherProcess) {
  for (const auto code :
       {collective::nccl::Code::kSystemError, collective::nccl::Code::kRemoteError}) {
    GpuMesh gpus(2);
    Feed feed;
    RuntimeOptions options = gpus.Options(Sums());
    options.feed = &feed;
    auto runtime = GpuMesh::Start(std::move(options));
    ASSERT_TRUE(runtime.has_value()) << runtime.error();
    gpus.nccl.Fail("AllReduce", code);
    ASSERT_FALSE((*runtime)->Launch({"step", 0, 1}).has_value());
    const bool system = code == collective::nccl::Code::kSystemError;
    EXPECT_EQ((*runtime)->DeviceStatus().blame() == Blame::kHardware, system);
    EXPECT_EQ((*runtime)->Close().blame() == Blame::kHardware, system);
    ExpectNothingIsLeft(gpus);
  }
}

// Its threads wait for each other inside NCCL: none comes back in time.
TEST(QueuedStep, AnAbortThatDoesNotEndNeedsAnotherProcess) {
#if defined(MW_ADDRESS_SANITIZER)
  GTEST_SKIP() << "what NCCL may still use is never freed";
#endif
  GpuMesh& gpus = MeshForEver(2);
  Feed feed;
  RuntimeOptions options = gpus.Options(Sums());
  options.feed = &feed;
  options.gpus.timing.end_ms = 50;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  gpus.nccl.set_aborts_together(99);
  const int communicators = gpus.network.alive();
  const int64_t allocations = gpus.driver.alive("allocation");
  (*runtime)->Abort(Aborted("by the user"));
  const Deadline deadline = Deadline::After(20'000);
  while (gpus.nccl.count("CommAbort") < communicators && !deadline.expired()) {
    std::this_thread::yield();
  }
  const Status end = (*runtime)->Close();
  EXPECT_EQ(end.blame(), Blame::kHardware);
  EXPECT_THAT(end.message(), HasSubstr("did not end in time"));
  runtime->reset();
  EXPECT_EQ(gpus.driver.alive("allocation"), allocations);
  while (gpus.network.alive() > 0 && !deadline.expired()) std::this_thread::yield();
  EXPECT_EQ(gpus.network.alive(), 0);
}

// ---- Memory of groups ---------------------------------------------------------------------------

TEST(QueuedStep, LogSumExpHasItsMemoryBeforeTheFirstStep) {
  GpuMesh gpus(2);
  Feed feed;
  RuntimeOptions options = gpus.Options(Sums("lse"));
  options.feed = &feed;
  auto runtime = GpuMesh::Start(std::move(options));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  Write<float>(**runtime, 0, "x", {0, 0, 0, 0});
  Write<float>(**runtime, 1, "x", {0, 0, 0, 0});
  const int64_t allocations = gpus.driver.calls("Allocate");
  ASSERT_TRUE((*runtime)->Launch({"step", 0, 2}).has_value());
  EXPECT_EQ(gpus.driver.calls("Allocate"), allocations);
  EXPECT_FLOAT_EQ(ReadFloats(**runtime, 0, "y")[3], 0.6931472f);
}

}  // namespace
}  // namespace meshwright::worker
