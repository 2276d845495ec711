// Where the devices of a runtime are while a step runs, and what they were busy with.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "tests/unit/worker/program_maker.h"

namespace meshwright::worker {
namespace {

using ::testing::ElementsAre;

// A source that answers once it is opened.
class HeldRows final : public ops::TokenSource {
 public:
  Status ReadSample(const std::string&, int64_t, std::span<int32_t> row) override {
    if (opened_.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      return DeadlineExceeded("it was not opened");
    }
    std::fill(row.begin(), row.end(), 1);
    return OkStatus();
  }
  void Open() { open_.set_value(); }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
};

// Rank 1 reads a row, then both sum something over "data".
std::vector<ir::Program> MeetingPrograms() {
  const MeshSpec pair{{{"data", 2}}, {0, 1}, 2};
  const auto sum = GraphOf(R"(graph "sum" {
    %0 = input {name="x"} : f32[4]
    %1 = all_reduce(%0) {axes=["data"], kind="sum"} : f32[4]
    output "y" %1
  })");
  std::vector<ir::Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    ProgramMaker maker("step", rank, pair);
    const SlotId x = maker.Persistent("x", F32({4}));
    if (rank == 1) {
      maker.Run(maker.Executable(R"(graph "feed" {
        %0 = feed {source="tokens"} : i32[1,2]
        output "rows" %0
      })"),
                {}, {maker.Persistent("rows", {ir::DType::kI32, {1, 2}})});
    }
    maker.Run(maker.Executable(sum), {x}, {x});
    programs.push_back(maker.Finish());
  }
  return programs;
}

// Until both devices are where the rows hold them.
proto::MeshMarks AwaitHeld(const MeshRecord& record) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (;;) {
    proto::MeshMarks marks = record.Read(::getpid(), SystemClock().NowNs());
    const bool held = marks.ranks.size() == 2 && marks.ranks[0].groups.at(0).entered == 1 &&
                      marks.ranks[1].awaits_rows;
    if (held || std::chrono::steady_clock::now() > end) return marks;
    std::this_thread::yield();
  }
}

TEST(JobRuntimeMarks, SayWhoWaitsInACollectiveAndWhoForRows) {
  MeshRecord record = MeshRecord::Create().value();
  HeldRows rows;
  RuntimeOptions options = LocalOptions(2, MeetingPrograms());
  options.record = &record;
  options.feed = &rows;
  auto runtime = MustLoad(std::move(options));
  auto launch = std::async(std::launch::async, [&] { return runtime->Launch({"step", 7, 1}); });
  const proto::MeshMarks held = AwaitHeld(record);
  const int64_t held_ns = SystemClock().NowNs();
  ASSERT_EQ(held.ranks.size(), 2u);
  EXPECT_EQ(held.ranks[0].instruction, 0);
  EXPECT_EQ(held.ranks[0].step, 7);
  EXPECT_FALSE(held.ranks[0].awaits_rows);
  EXPECT_THAT(held.ranks[0].groups, ElementsAre(proto::GroupMarks{"data=2/data/0-1", 1, 0}));
  EXPECT_EQ(held.ranks[1].instruction, 0);
  EXPECT_THAT(held.ranks[1].groups, ElementsAre(proto::GroupMarks{"data=2/data/0-1", 0, 0}));
  const double held_seconds = static_cast<double>(SystemClock().NowNs() - held_ns) * 1e-9;
  rows.Open();
  const auto reports = launch.get();
  ASSERT_TRUE(reports.has_value()) << reports.error();
  const proto::MeshMarks after = record.Read(::getpid(), SystemClock().NowNs());
  for (const proto::RankMarks& rank : after.ranks) {
    EXPECT_FALSE(rank.in_step);
    EXPECT_FALSE(rank.awaits_rows);
    EXPECT_THAT(rank.groups, ElementsAre(proto::GroupMarks{"data=2/data/0-1", 1, 1}));
  }
  // Who waits for another is not busy; who waits for its own rows is.
  const std::vector<RankBusy> busy = runtime->Busy();
  ASSERT_EQ(busy.size(), 2u);
  EXPECT_EQ(busy[0].rank, 0);
  EXPECT_LE(busy[0].seconds.at(0), reports->at(0).seconds - held_seconds);
  EXPECT_GE(busy[1].seconds.at(0), held_seconds);
}

TEST(JobRuntimeMarks, ProgramsOfADeviceCountInOneMarkOfAGroup) {
  MeshRecord record = MeshRecord::Create().value();
  HeldRows rows;
  rows.Open();
  RuntimeOptions options = LocalOptions(2, MeetingPrograms());
  for (ir::Program again : MeetingPrograms()) {
    again.name = "again";
    options.programs.push_back(std::move(again));
  }
  options.record = &record;
  options.feed = &rows;
  auto runtime = MustLoad(std::move(options));
  ASSERT_TRUE(runtime->Launch({"step", 0, 2}).has_value());
  ASSERT_TRUE(runtime->Launch({"again", 0, 1}).has_value());
  const proto::MeshMarks marks = record.Read(::getpid(), SystemClock().NowNs());
  for (const proto::RankMarks& rank : marks.ranks) {
    EXPECT_EQ(rank.steps_begun, 3);
    EXPECT_THAT(rank.groups, ElementsAre(proto::GroupMarks{"data=2/data/0-1", 3, 3}));
  }
}

}  // namespace
}  // namespace meshwright::worker
