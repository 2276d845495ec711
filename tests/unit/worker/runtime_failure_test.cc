// One failing device, an abort from outside, a peer that does not come: every launch ends soon,
// with one named cause.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <stdexcept>

#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

using ::testing::HasSubstr;
using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// Rank 0 looks ids up and sums over "data" with rank 1; rank 2, of another stage, waits for rank
// 1's message.
std::vector<ir::Program> DependentPrograms() {
  const MeshSpec pair{{{"data", 2}}, {0, 1}, 3};
  const auto graph = GraphOf(R"(graph "look" {
    %0 = input {name="table"} : f32[8,4]
    %1 = input {name="ids"} : i32[2]
    %2 = embedding(%0, %1) : f32[2,4]
    %3 = all_reduce(%2) {axes=["data"], kind="sum"} : f32[2,4]
    output "y" %3
  })");
  std::vector<ir::Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    ProgramMaker maker("step", rank, pair);
    const SlotId table = maker.Persistent("table", F32({8, 4}));
    const SlotId ids = maker.Persistent("ids", {ir::DType::kI32, {2}});
    const SlotId y = maker.Persistent("y", F32({2, 4}));
    maker.Run(maker.Executable(graph), {table, ids}, {y});
    if (rank == 1) maker.Send(y, maker.Channel(true, 2, "c", 32));
    programs.push_back(maker.Finish());
  }
  ProgramMaker last("step", 2, {{}, {}, 3});
  last.Recv(last.Persistent("y", F32({2, 4})), last.Channel(false, 1, "c", 32));
  programs.push_back(last.Finish());
  return programs;
}

TEST(JobRuntimeFailure, OneDevicesErrorEndsAllWithItsNamedCause) {
  auto runtime = MustLoad(LocalOptions(3, DependentPrograms()));
  ASSERT_TRUE(runtime->Launch({"step", 0, 2}).has_value());
  Write<int32_t>(*runtime, 0, "ids", {1, 99});
  const SteadyClock::time_point start = SteadyClock::now();
  const auto failed = runtime->Launch({"step", 2, 5});
  EXPECT_LT(SecondsSince(start), 2);
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(),
              HasSubstr("rank 0, program 'step', step 2, instruction 0 (RUN look of microbatch 0): "
                        "%2 = embedding of 'look'"));
  EXPECT_THAT(failed.error().message(), HasSubstr("99"));
  // The job is over; its cause stays.
  Write<int32_t>(*runtime, 0, "ids", {1, 2});
  const auto again = runtime->Launch({"step", 2, 1});
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error(), failed.error());
}

constexpr char kFeedGraph[] = R"(graph "feed" {
  %0 = feed {source="tokens"} : i32[1,2]
  output "rows" %0
})";

// A source that says when it is asked and answers once it is opened.
class Gate final : public ops::TokenSource {
 public:
  Status ReadSample(const std::string&, int64_t, std::span<int32_t> row) override {
    entered_.set_value();
    if (opened_.get_future().wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      return DeadlineExceeded("the gate was not opened");
    }
    std::fill(row.begin(), row.end(), 0);
    return OkStatus();
  }
  bool WaitEntered() {
    return entered_.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  }
  void Open() { opened_.set_value(); }

 private:
  std::promise<void> entered_;
  std::promise<void> opened_;
};

// Rank 0 waits for the row that rank 1 reads.
std::vector<ir::Program> GatedPrograms() {
  const ir::TensorType rows{ir::DType::kI32, {1, 2}};
  ProgramMaker waiter("step", 0, {{}, {}, 2});
  waiter.Recv(waiter.Persistent("y", rows), waiter.Channel(false, 1, "c", 8));
  ProgramMaker sender("step", 1, {{}, {}, 2});
  const SlotId y = sender.Persistent("y", rows);
  sender.Run(sender.Executable(kFeedGraph), {}, {y});
  sender.Send(y, sender.Channel(true, 0, "c", 8));
  return {waiter.Finish(), sender.Finish()};
}

// Rank 0 reads a row and then waits for a message that never comes.
std::vector<ir::Program> ForsakenPrograms() {
  ProgramMaker waiter("step", 0, {{}, {}, 2});
  const SlotId rows = waiter.Persistent("rows", {ir::DType::kI32, {1, 2}});
  waiter.Run(waiter.Executable(kFeedGraph), {}, {rows});
  waiter.Recv(rows, waiter.Channel(false, 1, "c", 8));
  ProgramMaker idle("step", 1, {{}, {}, 2});
  idle.Channel(true, 0, "c", 8);
  return {waiter.Finish(), idle.Finish()};
}

TEST(JobRuntimeFailure, AbortFromOutsideEndsABlockedLaunch) {
  Gate gate;
  gate.Open();
  RuntimeOptions options = LocalOptions(2, ForsakenPrograms());
  options.feed = &gate;
  auto runtime = MustLoad(std::move(options));
  auto launch = std::async(std::launch::async, [&] { return runtime->Launch({"step", 0, 1}); });
  ASSERT_TRUE(gate.WaitEntered());
  const Status lost = Aborted("controller: worker w7 was lost");
  runtime->Abort(lost);
  ASSERT_EQ(launch.wait_for(std::chrono::seconds(2)), std::future_status::ready);
  EXPECT_EQ(launch.get().error(), lost);
  EXPECT_EQ(runtime->Launch({"step", 0, 1}).error(), lost);
}

TEST(JobRuntimeFailure, AnAbortBetweenLaunchesRefusesTheNext) {
  auto runtime = MustLoad(LocalOptions(3, DependentPrograms()));
  ASSERT_TRUE(runtime->Launch({"step", 0, 1}).has_value());
  runtime->Abort(Aborted("first"));
  runtime->Abort(Aborted("second"));
  EXPECT_EQ(runtime->Launch({"step", 1, 1}).error(), Aborted("first"));
}

TEST(JobRuntimeFailure, ADeadlineNamesTheWaitingInstruction) {
  Gate gate;
  gate.Open();
  RuntimeOptions options = LocalOptions(2, ForsakenPrograms());
  options.feed = &gate;
  options.fabric.operation_timeout_ms = 200;
  auto runtime = MustLoad(std::move(options));
  const auto result = runtime->Launch({"step", 0, 1});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(result.error().message(),
              HasSubstr("rank 0, program 'step', step 0, instruction 1 (RECV from rank 1)"));
  EXPECT_THAT(result.error().message(), HasSubstr("within 200 ms"));
  EXPECT_THAT(result.error().message(), HasSubstr("--collective-timeout-s"));
}

// What went wrong comes behind the place, which must not fill the message.
TEST(JobRuntimeFailure, ThePlaceDoesNotGrowWithTheOperands) {
  constexpr int kMore = 20;
  std::string graph = R"(graph "look" {
    %0 = input {name="table"} : f32[8,4]
    %1 = input {name="ids"} : i32[2]
    %2 = embedding(%0, %1) : f32[2,4]
)";
  ProgramMaker maker("step", 0);
  std::vector<SlotId> inputs = {maker.Persistent("table", F32({8, 4})),
                                maker.Persistent("ids", {ir::DType::kI32, {2}})};
  for (int i = 0; i < kMore; ++i) {
    const int value = 3 + 2 * i;
    graph += fmt::format("%{} = input {{name=\"x{}\"}} : f32[2,4]\n", value, i);
    graph += fmt::format("%{} = add(%{}, %{}) : f32[2,4]\n", value + 1, value - 1, value);
    inputs.push_back(maker.Persistent(fmt::format("x{}", i), F32({2, 4})));
  }
  graph += fmt::format("output \"y\" %{}\n}}", 2 + 2 * kMore);
  maker.Run(maker.Executable(graph), inputs, {maker.Persistent("y", F32({2, 4}))});
  auto runtime = MustLoad(LocalOptions(1, {maker.Finish()}));
  Write<int32_t>(*runtime, 0, "ids", {1, 99});
  const auto failed = runtime->Launch({"step", 0, 1});
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(), HasSubstr("instruction 0 (RUN look of microbatch 0): "));
  EXPECT_THAT(failed.error().message(), HasSubstr("99"));
}

TEST(JobRuntimeFailure, StatsCanBeReadWhileDevicesRun) {
  Gate gate;
  RuntimeOptions options = LocalOptions(2, GatedPrograms());
  options.feed = &gate;
  auto runtime = MustLoad(std::move(options));
  auto launch = std::async(std::launch::async, [&] { return runtime->Launch({"step", 0, 1}); });
  ASSERT_TRUE(gate.WaitEntered());
  const std::vector<DeviceStats> during = runtime->Stats();
  EXPECT_EQ(during[0].instructions.recv, 0);
  EXPECT_EQ(during[1].instructions.run, 0);
  gate.Open();
  ASSERT_TRUE(launch.get().has_value());
  const std::vector<DeviceStats> after = runtime->Stats();
  EXPECT_EQ(after[0].instructions.recv, 1);
  EXPECT_EQ(after[1].instructions.run, 1);
  EXPECT_EQ(after[1].instructions.send, 1);
}

TEST(JobRuntimeFailure, AnExceptionInADeviceEndsTheJob) {
  class Thrower final : public ops::TokenSource {
   public:
    Status ReadSample(const std::string&, int64_t, std::span<int32_t>) override {
      throw std::runtime_error("disk on fire");
    }
  };
  Thrower feed;
  RuntimeOptions options = LocalOptions(2, GatedPrograms());
  options.feed = &feed;
  auto runtime = MustLoad(std::move(options));
  const SteadyClock::time_point start = SteadyClock::now();
  const auto result = runtime->Launch({"step", 0, 1});
  EXPECT_LT(SecondsSince(start), 2);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), StatusCode::kInternal);
  EXPECT_THAT(result.error().message(),
              HasSubstr("rank 1: exception in the device's thread: disk on fire"));
}

}  // namespace
}  // namespace meshwright::worker
