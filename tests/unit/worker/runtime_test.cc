#include "worker/runtime.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kDouble[] = R"(graph "double" {
  %0 = input {name="x"} : f32[4]
  %1 = scale(%0) {factor=2.0} : f32[4]
  output "y" %1
})";

LaunchRequest Steps(int64_t first, int64_t count) { return {"step", first, count}; }

TEST(JobRuntime, RunReadsInputSlotsAndWritesOutputSlots) {
  ProgramMaker maker("step", 0);
  const SlotId x = maker.Persistent("x", F32({4}));
  const SlotId y = maker.Persistent("y", F32({4}));
  const SlotId mid = maker.Transient(F32({4}));
  const ExecutableIndex twice = maker.Executable(kDouble);
  maker.Run(twice, {x}, {mid});
  maker.Run(twice, {mid}, {y});
  maker.Free({mid});
  auto runtime = MustLoad(LocalOptions(1, {maker.Finish()}));
  Write<float>(*runtime, 0, "x", {1, 2, 3, 4});
  const auto reports = runtime->Launch(Steps(0, 1));
  ASSERT_TRUE(reports.has_value()) << reports.error();
  EXPECT_THAT(ReadFloats(*runtime, 0, "y"), ElementsAre(4, 8, 12, 16));
  EXPECT_THAT(ReadFloats(*runtime, 0, "x"), ElementsAre(1, 2, 3, 4));
}

TEST(JobRuntime, TemporariesLiveInTheWorkspaceAndDoNotTouchSlots) {
  ProgramMaker maker("step", 0);
  const SlotId x = maker.Persistent("x", F32({4}));
  const SlotId keep = maker.Transient(F32({4}));
  const SlotId y = maker.Persistent("y", F32({4}));
  const ExecutableIndex twice = maker.Executable(kDouble);
  const ExecutableIndex chain = maker.Executable(R"(graph "chain" {
    %0 = input {name="x"} : f32[4]
    %1 = scale(%0) {factor=3.0} : f32[4]
    %2 = add(%1, %0) : f32[4]
    %3 = mul(%2, %1) : f32[4]
    output "y" %3
  })");
  const ExecutableIndex add = maker.Executable(R"(graph "add" {
    %0 = input {name="a"} : f32[4]
    %1 = input {name="b"} : f32[4]
    %2 = add(%0, %1) : f32[4]
    output "y" %2
  })");
  maker.Run(twice, {x}, {keep});
  maker.Run(chain, {x}, {y});  // 12 x^2
  maker.Run(add, {y, keep}, {y});
  auto runtime = MustLoad(LocalOptions(1, {maker.Finish()}));
  Write<float>(*runtime, 0, "x", {1, 2, 3, -1});
  ASSERT_TRUE(runtime->Launch(Steps(0, 1)).has_value());
  EXPECT_THAT(ReadFloats(*runtime, 0, "y"), ElementsAre(14, 52, 114, 10));
}

// x: counts steps; report: its sum of squares.
std::vector<ir::Program> CountingPrograms() {
  ProgramMaker maker("step", 0);
  const SlotId x = maker.Persistent("x", F32({2}));
  const SlotId loss = maker.Transient(F32({}));
  const ExecutableIndex add = maker.Executable(R"(graph "count" {
    %0 = input {name="x"} : f32[2]
    %1 = constant {value=1.0} : f32[2]
    %2 = add(%0, %1) : f32[2]
    %3 = sum_squares(%2) : f32[]
    output "x" %2
    output "loss" %3
  })");
  maker.Run(add, {x}, {x, loss});
  maker.Report("loss", loss);
  return {maker.Finish()};
}

TEST(JobRuntime, EveryStepHasAReportWithItsNumberValuesAndTime) {
  auto runtime = MustLoad(LocalOptions(1, CountingPrograms()));
  const auto reports = runtime->Launch(Steps(10, 3));
  ASSERT_TRUE(reports.has_value()) << reports.error();
  ASSERT_EQ(reports->size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    const StepReport& report = (*reports)[static_cast<size_t>(i)];
    EXPECT_EQ(report.step, 10 + i);
    EXPECT_GT(report.seconds, 0);
    const auto n = static_cast<double>(i + 1);
    ASSERT_EQ(report.values.count("loss"), 1u);
    EXPECT_EQ(report.values.at("loss"), 2 * n * n);
  }
}

TEST(JobRuntime, PersistentSlotsLiveBetweenLaunches) {
  auto runtime = MustLoad(LocalOptions(1, CountingPrograms()));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(runtime->Launch(Steps(i, 1)).has_value());
  EXPECT_THAT(ReadFloats(*runtime, 0, "x"), ElementsAre(5, 5));
  Write<float>(*runtime, 0, "x", {1, -1});
  ASSERT_TRUE(runtime->Launch(Steps(5, 2)).has_value());
  EXPECT_THAT(ReadFloats(*runtime, 0, "x"), ElementsAre(3, 1));
}

TEST(JobRuntime, ProgramsOfADeviceSharePersistentSlotsByName) {
  ProgramMaker init("init", 0);
  const SlotId w = init.Persistent("x", F32({2}));
  init.Run(init.Executable(R"(graph "init" {
    %0 = constant {value=7.0} : f32[2]
    output "x" %0
  })"),
           {}, {w});
  std::vector<ir::Program> programs = CountingPrograms();
  programs.push_back(init.Finish());
  auto runtime = MustLoad(LocalOptions(1, std::move(programs)));
  ASSERT_TRUE(runtime->Launch({"init", 0, 1}).has_value());
  ASSERT_TRUE(runtime->Launch(Steps(0, 1)).has_value());
  EXPECT_THAT(ReadFloats(*runtime, 0, "x"), ElementsAre(8, 8));
}

TEST(JobRuntime, KernelsSeeStepAndMicrobatch) {
  class Feed final : public ops::TokenSource {
   public:
    Status ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) override {
      EXPECT_EQ(source, "tokens");
      row[0] = static_cast<int32_t>(sample);
      row[1] = -1;
      return OkStatus();
    }
  };
  ProgramMaker maker("step", 0);
  maker.Microbatches(2);
  const SlotId first = maker.Persistent("first", {ir::DType::kI32, {3, 2}});
  const SlotId second = maker.Persistent("second", {ir::DType::kI32, {3, 2}});
  const ExecutableIndex feed = maker.Executable(R"(graph "feed" {
    %0 = feed {dim_axes=["micro", ""], global_dims=[6, 2], source="tokens"} : i32[3,2]
    output "rows" %0
  })");
  maker.Run(feed, {}, {first}, 0);
  maker.Run(feed, {}, {second}, 1);
  Feed source;
  RuntimeOptions options = LocalOptions(1, {maker.Finish()});
  options.feed = &source;
  auto runtime = MustLoad(std::move(options));
  ASSERT_TRUE(runtime->Launch(Steps(5, 1)).has_value());
  EXPECT_EQ(runtime->ReadPersistent(0, "first")->data,
            AsBytes(std::vector<int32_t>{30, -1, 31, -1, 32, -1}));
  EXPECT_EQ(runtime->ReadPersistent(0, "second")->data,
            AsBytes(std::vector<int32_t>{33, -1, 34, -1, 35, -1}));
}

// Rank 0 sends the quarters of a matrix in two columns of two rows to rank 1, which puts them
// elsewhere.
TEST(JobRuntime, SendAndRecvMoveBoxesBetweenPlaces) {
  const MeshSpec mesh{{}, {}, 2};
  ProgramMaker sender("step", 0, mesh);
  const SlotId x = sender.Persistent("x", F32({4, 6}));
  const ChannelId out = sender.Channel(true, 1, "c", 4 * 24);
  sender.Send(x, out, {{0, 0}, {2, 6}});  // one run: no copy
  sender.Send(x, out, {{2, 0}, {2, 3}});
  sender.Send(x, out, {{2, 3}, {2, 3}});
  sender.Send(x, out);  // whole
  ProgramMaker receiver("step", 1, mesh);
  const SlotId y = receiver.Persistent("y", F32({4, 6}));
  const SlotId z = receiver.Persistent("z", F32({4, 6}));
  const ChannelId in = receiver.Channel(false, 0, "c", 4 * 24);
  receiver.Recv(y, in, {{2, 0}, {2, 6}});
  receiver.Recv(y, in, {{0, 3}, {2, 3}});
  receiver.Recv(y, in, {{0, 0}, {2, 3}});
  receiver.Recv(z, in);
  auto runtime = MustLoad(LocalOptions(2, {sender.Finish(), receiver.Finish()}));
  std::vector<float> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  Write(*runtime, 0, "x", values);
  for (int step = 0; step < 3; ++step) {
    const auto reports = runtime->Launch(Steps(step, 1));
    ASSERT_TRUE(reports.has_value()) << reports.error();
  }
  EXPECT_THAT(ReadFloats(*runtime, 1, "y"), ElementsAre(15, 16, 17, 12, 13, 14, 21, 22, 23, 18, 19,
                                                        20, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_EQ(ReadFloats(*runtime, 1, "z"), values);
}

TEST(JobRuntime, StatsCountInstructionsMemoryAndTransfers) {
  const MeshSpec mesh{{}, {}, 2};
  ProgramMaker sender("step", 0, mesh);
  const SlotId x = sender.Persistent("x", F32({64}));
  sender.Send(x, sender.Channel(true, 1, "c", 256));
  ProgramMaker receiver("step", 1, mesh);
  const SlotId t = receiver.Transient(F32({64}), ir::MemoryKind::kGradients);
  receiver.Recv(t, receiver.Channel(false, 0, "c", 256));
  receiver.Free({t});
  auto runtime = MustLoad(LocalOptions(2, {sender.Finish(), receiver.Finish()}));
  ASSERT_TRUE(runtime->Launch(Steps(0, 4)).has_value());
  const std::vector<DeviceStats> stats = runtime->Stats();
  ASSERT_EQ(stats.size(), 2u);
  EXPECT_EQ(stats[0].rank, 0);
  EXPECT_EQ(stats[0].instructions.send, 4);
  EXPECT_EQ(stats[1].instructions.recv, 4);
  EXPECT_EQ(stats[1].instructions.free, 4);
  EXPECT_EQ(stats[0].memory_bytes.at(ir::MemoryKind::kWeights), 256);
  EXPECT_EQ(stats[1].memory_bytes.at(ir::MemoryKind::kGradients), 256);
  ASSERT_EQ(stats[0].collectives.size(), 1u);
  EXPECT_EQ(stats[0].collectives[0].axis, "pipeline");
  EXPECT_EQ(stats[0].collectives[0].kind, collective::Kind::kSendRecv);
  EXPECT_EQ(stats[0].collectives[0].counters.calls, 4);
  EXPECT_EQ(stats[0].collectives[0].counters.bytes, 4 * 256);
}

// Two layers with dropout and an optimizer over 2 devices: everything that could depend on order or
// addresses.
std::vector<ir::Program> TrainingPrograms() {
  const MeshSpec mesh{{{"data", 2}}, {}, 0};
  const auto init = GraphOf(R"(graph "init" {
    %0 = random_normal {mean=0.0, name="w", std=0.5} : f32[8,8]
    %1 = constant {value=0.0} : f32[8,8]
    %2 = constant {value=0.0} : f32[8,8]
    output "w" %0
    output "m" %1
    output "v" %2
  })");
  const auto step = GraphOf(R"(graph "step" {
    %0 = input {name="w"} : f32[8,8]
    %1 = input {name="m"} : f32[8,8]
    %2 = input {name="v"} : f32[8,8]
    %3 = random_normal {dim_axes=["data", ""], global_dims=[8, 8], mean=0.0, name="x", std=1.0}
      : f32[4,8]
    %4 = einsum(%3, %0) {equation="bk,kn->bn"} : f32[4,8]
    %5 = dropout(%4) {dim_axes=["data", ""], global_dims=[8, 8], name="d", rate=0.25} : f32[4,8]
    %6 = sum_squares(%5) : f32[]
    %7 = einsum(%3, %5) {equation="bk,bn->kn"} : f32[8,8]
    %8, %9 = all_reduce(%7, %6) {axes=["data"], kind="sum"} : f32[8,8], f32[]
    %10 = constant {value=1.0} : f32[]
    %11 = learning_rate {lr=0.1, min_lr=0.0, schedule="constant", total_steps=10,
      warmup_steps=0} : f32[]
    %12, %13, %14 = adamw(%0, %8, %1, %2, %10, %11) {beta1=0.9, beta2=0.95, eps=1e-08,
      weight_decay=0.1} : f32[8,8], f32[8,8], f32[8,8]
    output "w" %12
    output "m" %13
    output "v" %14
    output "loss" %9
  })");
  std::vector<ir::Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    for (const char* name : {"init", "step"}) {
      ProgramMaker maker(name, rank, mesh);
      const std::vector<SlotId> state = {maker.Persistent("w", F32({8, 8})),
                                         maker.Persistent("m", F32({8, 8})),
                                         maker.Persistent("v", F32({8, 8}))};
      if (name == std::string("init")) {
        maker.Run(maker.Executable(init), {}, state);
      } else {
        const SlotId loss = maker.Transient(F32({}));
        maker.Run(maker.Executable(step), state, {state[0], state[1], state[2], loss});
        if (rank == 0) maker.Report("loss", loss);
      }
      programs.push_back(maker.Finish());
    }
  }
  return programs;
}

struct Training {
  std::vector<double> losses;
  std::vector<std::byte> weights;
};

Training Train(RuntimeOptions options, int64_t steps_per_launch) {
  auto runtime = MustLoad(std::move(options));
  MW_CHECK(runtime->Launch({"init", 0, 1}).has_value());
  Training result;
  for (int64_t step = 0; step < 6; step += steps_per_launch) {
    const auto reports = runtime->Launch(Steps(step, steps_per_launch));
    MW_CHECK(reports.has_value()) << reports.error();
    for (const StepReport& report : *reports) result.losses.push_back(report.values.at("loss"));
  }
  EXPECT_EQ(runtime->ReadPersistent(0, "w")->data, runtime->ReadPersistent(1, "w")->data);
  result.weights = runtime->ReadPersistent(0, "w")->data;
  return result;
}

TEST(JobRuntime, EqualRunsAreBitwiseEqualHoweverStepsAreLaunched) {
  for (ops::Backend backend : {ops::Backend::kReference, ops::Backend::kCpu}) {
    RuntimeOptions options = LocalOptions(2, TrainingPrograms());
    options.seed = 11;
    options.backend = backend;
    const Training once = Train(options, 1);
    const Training again = Train(options, 1);
    const Training launched = Train(options, 6);
    options.threads_per_device = 2;
    const Training threaded = Train(options, 3);
    EXPECT_EQ(once.losses, again.losses);
    EXPECT_EQ(once.losses, launched.losses);
    EXPECT_EQ(once.losses, threaded.losses);
    EXPECT_EQ(once.weights, again.weights);
    EXPECT_EQ(once.weights, launched.weights);
    EXPECT_EQ(once.weights, threaded.weights);
    EXPECT_NE(once.losses.front(), once.losses.back());
    options.seed = 12;
    EXPECT_NE(Train(options, 1).losses, once.losses);
  }
}

TEST(JobRuntime, PersistentAccessNamesRankAndSlot) {
  auto runtime = MustLoad(LocalOptions(1, CountingPrograms()));
  const auto missing = runtime->ReadPersistent(0, "nope");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("rank 0 has no persistent slot 'nope'"));
  EXPECT_EQ(runtime->ReadPersistent(3, "x").error().code(), StatusCode::kNotFound);
  const Status wrong = runtime->WritePersistent(0, "x", std::vector<std::byte>(7));
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(wrong.message(),
              HasSubstr("7 bytes written to persistent slot 'x' of rank 0, which has 8"));
}

TEST(JobRuntime, ABlockIsFilledWhereItLies) {
  auto runtime = MustLoad(LocalOptions(1, CountingPrograms()));
  std::byte before{0};
  const auto fill = [&](std::byte value) {
    return runtime->FillPersistent(0, "x", [&](std::span<std::byte> block) {
      EXPECT_EQ(block.size(), 8u);
      EXPECT_TRUE(before == std::byte{0} || block[0] == before) << "a copy, not where it lies";
      std::fill(block.begin(), block.end(), before = value);
      return OkStatus();
    });
  };
  ASSERT_TRUE(fill(std::byte{1}).ok());
  ASSERT_TRUE(fill(std::byte{2}).ok());
  EXPECT_EQ(runtime->ReadPersistent(0, "x")->data, std::vector<std::byte>(8, std::byte{2}));
  const auto fails = [](std::span<std::byte> /*block*/) { return DataLoss("half a file"); };
  EXPECT_EQ(runtime->FillPersistent(0, "x", fails).code(), StatusCode::kDataLoss);
  EXPECT_EQ(runtime->FillPersistent(0, "nope", fails).code(), StatusCode::kNotFound);
}

TEST(JobRuntime, LaunchRefusesWhatItCannotRun) {
  auto runtime = JobRuntime::Load(LocalOptions(1, CountingPrograms()));
  ASSERT_TRUE(runtime.has_value()) << runtime.error();
  EXPECT_EQ((*runtime)->Launch(Steps(0, 1)).error().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE((*runtime)->Connect({""}).ok());
  EXPECT_EQ((*runtime)->Launch({"eval", 0, 1}).error().code(), StatusCode::kNotFound);
  EXPECT_EQ((*runtime)->Launch(Steps(0, 0)).error().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE((*runtime)->Launch(Steps(0, 1)).has_value());
}

TEST(JobRuntime, LoadNamesAnOpWithoutKernel) {
  ProgramMaker maker("step", 0);
  const SlotId x = maker.Persistent("x", F32({2}));
  maker.Run(maker.Executable(R"(graph "p" {
    %0 = param {decay=0, export_name="p", init="zeros", name="p", std=0.0} : f32[2]
    output "x" %0
  })"),
            {}, {x});
  const auto runtime = JobRuntime::Load(LocalOptions(1, {maker.Finish()}));
  ASSERT_FALSE(runtime.has_value());
  EXPECT_EQ(runtime.error().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(runtime.error().message(), HasSubstr("program step/0: %0 = param of 'p'"));
}

TEST(JobRuntime, LoadRefusesMoreMemoryThanTheDeviceHas) {
  ProgramMaker maker("step", 0);
  maker.Persistent("x", F32({1024, 1024}));
  RuntimeOptions options = LocalOptions(1, {maker.Finish()});
  options.memory_limit_bytes = 1 << 20;
  const auto runtime = JobRuntime::Load(std::move(options));
  ASSERT_FALSE(runtime.has_value());
  EXPECT_EQ(runtime.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(runtime.error().message(), HasSubstr("4194304 bytes asked for (weights 4194304)"));
}

}  // namespace
}  // namespace meshwright::worker
