// Collectives beside what computes, on programs by hand: who runs what, and that whatever fails on
// either thread of a device ends the launch of all, with its named cause.
#include "worker/step_lanes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

using ::testing::HasSubstr;

const MeshSpec kPair{{{"data", 2}}, {0, 1}, 2};

// Rows of a table are summed over "data" while a bias is doubled; then the two are added.
constexpr char kLookGraph[] = R"(graph "look" {
  %0 = input {name="table"} : f32[8,4]
  %1 = input {name="ids"} : i32[2]
  %2 = input {name="bias"} : f32[2,4]
  %3 = embedding(%0, %1) : f32[2,4]
  %4 = all_reduce(%3) {axes=["data"], kind="sum"} : f32[2,4]
  %5 = add(%2, %2) : f32[2,4]
  %6 = add(%4, %5) : f32[2,4]
  output "y" %6
})";

void RunLook(ProgramMaker& maker) {
  const SlotId table = maker.Persistent("table", F32({8, 4}));
  const SlotId ids = maker.Persistent("ids", {ir::DType::kI32, {2}});
  const SlotId bias = maker.Persistent("bias", F32({2, 4}));
  maker.Run(maker.Executable(kLookGraph), {table, ids, bias}, {maker.Persistent("y", F32({2, 4}))});
}

std::vector<ir::Program> LookPrograms() {
  std::vector<ir::Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    ProgramMaker maker("step", rank, kPair);
    RunLook(maker);
    programs.push_back(maker.Finish());
    programs.back().overlap = ir::OverlapMode::kOn;
  }
  return programs;
}

// By op, the threads that ran it.
class ThreadsOfOps final : public ops::NodeObserver {
 public:
  void OnNode(const ir::Graph& graph, NodeId node, double) override {
    const MutexLock lock(mutex_);
    threads_[graph.node(node).op].insert(std::this_thread::get_id());
  }
  std::set<std::thread::id> Of(ir::Op op) const {
    const MutexLock lock(mutex_);
    const auto it = threads_.find(op);
    return it == threads_.end() ? std::set<std::thread::id>() : it->second;
  }

 private:
  mutable Mutex mutex_;
  std::map<ir::Op, std::set<std::thread::id>> threads_ MW_GUARDED_BY(mutex_);
};

bool Disjoint(const std::set<std::thread::id>& a, const std::set<std::thread::id>& b) {
  return std::none_of(a.begin(), a.end(), [&](const auto& id) { return b.contains(id); });
}

TEST(StepLanes, ACollectiveHasItsThreadAndTheSameResult) {
  std::vector<std::vector<float>> results;
  for (const ir::OverlapMode mode : {ir::OverlapMode::kOff, ir::OverlapMode::kOn}) {
    std::vector<ir::Program> programs = LookPrograms();
    for (ir::Program& program : programs) program.overlap = mode;
    ThreadsOfOps threads;
    RuntimeOptions options = LocalOptions(2, std::move(programs));
    options.observer = &threads;
    auto runtime = MustLoad(std::move(options));
    for (int rank = 0; rank < 2; ++rank) {
      Write(*runtime, rank, "table", Pattern(32, rank));
      Write<int32_t>(*runtime, rank, "ids", {1, 5 + rank});
      Write(*runtime, rank, "bias", Pattern(8, rank));
    }
    for (int64_t step = 0; step < 50; ++step) {
      ASSERT_TRUE(runtime->Launch({"step", step, 1}).has_value());
    }
    const bool beside = mode == ir::OverlapMode::kOn;
    const auto reducers = threads.Of(ir::Op::kAllReduce);
    EXPECT_EQ(reducers.size(), 2u);
    EXPECT_EQ(Disjoint(reducers, threads.Of(ir::Op::kAdd)), beside);
    for (int rank = 0; rank < 2; ++rank) results.push_back(ReadFloats(*runtime, rank, "y"));
    EXPECT_EQ(runtime->Stats()[0].instructions.run, 50);
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
  EXPECT_NE(results[0], std::vector<float>(8, 0.0F));
}

// Of two calls of a group one has something to run beside, the other has not: they keep their
// order, on whichever thread.
TEST(StepLanes, CallsOfAGroupKeepTheirOrder) {
  constexpr char kGraph[] = R"(graph "mix" {
    %0 = input {name="x"} : f32[16]
    %1 = add(%0, %0) : f32[16]
    %2 = all_reduce(%1) {axes=["data"], kind="sum"} : f32[16]
    %3 = add(%0, %1) : f32[16]
    %4 = all_reduce(%3) {axes=["data"], kind="max"} : f32[16]
    %5 = add(%4, %2) : f32[16]
    %6 = all_reduce(%5) {axes=["data"], kind="sum"} : f32[16]
    output "y" %6
  })";
  std::vector<ir::Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    ProgramMaker maker("step", rank, kPair);
    const SlotId x = maker.Persistent("x", F32({16}));
    maker.Run(maker.Executable(kGraph), {x}, {maker.Persistent("y", F32({16}))});
    programs.push_back(maker.Finish());
    programs.back().overlap = ir::OverlapMode::kOn;
  }
  ThreadsOfOps threads;
  RuntimeOptions options = LocalOptions(2, std::move(programs));
  options.observer = &threads;
  auto runtime = MustLoad(std::move(options));
  for (int rank = 0; rank < 2; ++rank) Write(*runtime, rank, "x", Pattern(16, rank));
  for (int64_t step = 0; step < 50; ++step) {
    const auto launched = runtime->Launch({"step", step, 1});
    ASSERT_TRUE(launched.has_value()) << launched.error();
  }
  EXPECT_EQ(threads.Of(ir::Op::kAllReduce).size(), 4u) << "both threads of both devices";
  const std::vector<float> a = Pattern(16, 0);
  const std::vector<float> b = Pattern(16, 1);
  std::vector<float> expected(16);
  for (size_t i = 0; i < 16; ++i) {
    expected[i] = 2 * (3 * std::max(a[i], b[i]) + 2 * (a[i] + b[i]));
  }
  EXPECT_EQ(ReadFloats(*runtime, 0, "y"), expected);
  EXPECT_EQ(ReadFloats(*runtime, 1, "y"), expected);
}

// Rank 1's collective waits on its thread for rank 0, whose kernel fails.
TEST(StepLanes, AKernelsErrorEndsTheCollectivesOfPeers) {
  auto runtime = MustLoad(LocalOptions(2, LookPrograms()));
  ASSERT_TRUE(runtime->Launch({"step", 0, 2}).has_value());
  Write<int32_t>(*runtime, 0, "ids", {1, 99});
  const auto start = std::chrono::steady_clock::now();
  const auto failed = runtime->Launch({"step", 2, 5});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(),
              HasSubstr("rank 0, program 'step', step 2, instruction 0 (RUN look of microbatch 0): "
                        "%3 = embedding of 'look'"));
  const auto again = runtime->Launch({"step", 2, 1});
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error(), failed.error());
}

// A source of rows for rank 1 that says when it is asked, and answers as it is told.
class StoppedRows final : public ops::TokenSource {
 public:
  Status ReadSample(const std::string&, int64_t, std::span<int32_t> row) override {
    asked_.set_value();
    const bool told =
        told_.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    if (throws_) throw std::runtime_error("disk on fire");
    std::fill(row.begin(), row.end(), 0);
    return told ? OkStatus() : DeadlineExceeded("nobody went on");
  }
  void Throw() { throws_ = true; }
  void GoOn() { told_.set_value(); }
  bool WaitAsked() {
    return asked_.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  }

 private:
  std::atomic<bool> throws_{false};
  std::promise<void> asked_;
  std::promise<void> told_;
};

// As LookPrograms(), but rank 1 reads rows before its RUN.
std::vector<ir::Program> HeldPrograms() {
  std::vector<ir::Program> programs = LookPrograms();
  constexpr char kMadeGraph[] = R"(graph "feed" {
    %0 = feed {source="tokens"} : i32[1,2]
    output "rows" %0
  })";
  ProgramMaker maker("step", 1, kPair);
  const SlotId rows = maker.Persistent("rows", {ir::DType::kI32, {1, 2}});
  maker.Run(maker.Executable(kMadeGraph), {}, {rows});
  RunLook(maker);
  programs[1] = maker.Finish();
  programs[1].overlap = ir::OverlapMode::kOn;
  return programs;
}

TEST(StepLanes, AnAbortFromOutsideEndsBothThreads) {
  StoppedRows feed;
  RuntimeOptions options = LocalOptions(2, HeldPrograms());
  options.feed = &feed;
  auto runtime = MustLoad(std::move(options));
  auto launch = std::async(std::launch::async, [&] { return runtime->Launch({"step", 0, 1}); });
  ASSERT_TRUE(feed.WaitAsked());
  const Status lost = Aborted("controller: worker w7 was lost");
  runtime->Abort(lost);
  feed.GoOn();
  ASSERT_EQ(launch.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  EXPECT_EQ(launch.get().error(), lost);
}

TEST(StepLanes, AnExceptionEndsBothThreads) {
  StoppedRows feed;
  RuntimeOptions options = LocalOptions(2, HeldPrograms());
  options.feed = &feed;
  auto runtime = MustLoad(std::move(options));
  feed.Throw();
  feed.GoOn();
  const auto result = runtime->Launch({"step", 0, 1});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), StatusCode::kInternal);
  EXPECT_THAT(result.error().message(), HasSubstr("disk on fire"));
}

TEST(StepLanes, ADeadlineNamesTheCollective) {
  StoppedRows feed;
  RuntimeOptions options = LocalOptions(2, HeldPrograms());
  options.feed = &feed;
  options.fabric.operation_timeout_ms = 200;
  auto runtime = MustLoad(std::move(options));
  auto launch = std::async(std::launch::async, [&] { return runtime->Launch({"step", 0, 1}); });
  ASSERT_TRUE(feed.WaitAsked());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  feed.GoOn();
  const auto result = launch.get();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(result.error().message(), HasSubstr("rank 0, program 'step', step 0, instruction 0"));
  EXPECT_THAT(result.error().message(), HasSubstr("all_reduce"));
}

}  // namespace
}  // namespace meshwright::worker
