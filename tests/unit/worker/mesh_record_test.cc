#include "worker/mesh_record.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "worker/process_state.h"

namespace meshwright::worker {
namespace {

TEST(MeshRecord, SaysInAnotherMappingWhereTheDevicesAre) {
  MeshRecord reader = MeshRecord::Create().value();
  EXPECT_EQ(reader.Last().ToString(), "while it waited for orders");
  {
    MeshRecord writer =
        MeshRecord::Open(UniqueFd(::fcntl(reader.descriptor(), F_DUPFD_CLOEXEC, 0))).value();
    writer.SetDoing(MeshDoing::kRunning);
    writer.mark(0)->Enter(4, "step", 7);
    writer.mark(0)->At(12);
    writer.mark(1)->Enter(5, "step", 7);
    writer.mark(1)->At(3);
    writer.mark(2)->Enter(6, std::string(100, 'n'), 9);
    writer.mark(3)->Enter(7, "step", 9);
    writer.mark(3)->Leave();
    EXPECT_EQ(writer.mark(MeshRecord::kMostDevices), nullptr);
  }
  const MeshPlace last = reader.Last();
  EXPECT_EQ(last.doing, MeshDoing::kRunning);
  ASSERT_EQ(last.devices.size(), 3u) << "one has left its step";
  EXPECT_EQ(last.devices[0].rank, 5) << "who is farthest behind comes first";
  EXPECT_EQ(last.devices[0].instruction, 3);
  EXPECT_EQ(last.devices[2].program.substr(0, 39), std::string(39, 'n'));
  EXPECT_EQ(last.ToString(),
            "in step 7 of program 'step': rank 5 at instruction 3, rank 4 at instruction 12, "
            "rank 6 at instruction 0");
}

TEST(MeshRecord, SaysOfEachGroupWhatWasEnteredAndDone) {
  MeshRecord record = MeshRecord::Create().value();
  DeviceMark& mark = *record.mark(2);
  GroupMark* const tensor = mark.Group("tensor/0-1");
  GroupMark* const data = mark.Group("data/0-2");
  ASSERT_NE(tensor, data);
  EXPECT_EQ(mark.Group("tensor/0-1"), tensor) << "programs of a device share it";
  EXPECT_THAT(record.Read(::getpid(), 0).ranks, testing::IsEmpty()) << "nothing has begun";
  mark.Enter(6, "step", 41);
  mark.At(12);
  tensor->Enter();
  tensor->Leave();
  tensor->Enter();
  mark.Reads(true);
  const int64_t later_ns = SystemClock().NowNs() + 5'000'000'000;
  const proto::MeshMarks read = record.Read(::getpid(), later_ns);
  EXPECT_EQ(read.pid, ::getpid());
  ASSERT_EQ(read.ranks.size(), 1u);
  const proto::RankMarks& rank = read.ranks[0];
  EXPECT_EQ(rank.rank, 6);
  EXPECT_TRUE(rank.in_step);
  EXPECT_TRUE(rank.awaits_rows);
  EXPECT_EQ(rank.program, "step");
  EXPECT_EQ(rank.step, 41);
  EXPECT_EQ(rank.steps_begun, 1);
  EXPECT_EQ(rank.instruction, 12);
  EXPECT_GE(rank.age_ms, 4'999);
  EXPECT_THAT(rank.groups, testing::ElementsAre(proto::GroupMarks{"tensor/0-1", 2, 1},
                                                proto::GroupMarks{"data/0-2", 0, 0}));
  EXPECT_EQ(rank.state, "R") << "this thread asks, so it runs";
  mark.Reads(false);
  mark.Leave();
  mark.Enter(6, "eval", 0);
  const proto::RankMarks next = record.Read(::getpid(), 0).ranks.at(0);
  EXPECT_FALSE(next.awaits_rows);
  EXPECT_EQ(next.steps_begun, 2);
  EXPECT_EQ(next.age_ms, 0) << "a clock that is behind makes no age";
}

TEST(MeshRecord, GroupsBeyondTheMostHaveNoMark) {
  MeshRecord record = MeshRecord::Create().value();
  DeviceMark& mark = *record.mark(0);
  for (size_t i = 0; i < DeviceMark::kMostGroups; ++i) {
    ASSERT_NE(mark.Group(std::string(i + 1, 'g')), nullptr);
  }
  EXPECT_EQ(mark.Group("one more"), nullptr);
}

TEST(ProcessState, IsReadBehindTheNameWhateverThatIs) {
  const std::string line =
      "4711 (a) S 9 (b) T 1 4711 4711 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 5 0 12345 0 0";
  EXPECT_EQ(ParseProcessStat(line, 100), (ProcessState{"T", 3'000}));
  EXPECT_EQ(ParseProcessStat("", 100), ProcessState());
  EXPECT_EQ(ParseProcessStat("4711 (short) R 1 2", 100), ProcessState());
  EXPECT_EQ(ParseProcessStat(line, 0), ProcessState());
}

TEST(ProcessState, OfAProcessThatIsNotThereIsUnknown) {
  EXPECT_EQ(ReadProcess(0), ProcessState());
  EXPECT_EQ(ReadProcess(::getpid()).state.size(), 1u);
}

TEST(MeshRecord, BetweenStepsItSaysWhatTheMeshDoes) {
  MeshRecord record = MeshRecord::Create().value();
  record.SetDoing(MeshDoing::kSaving);
  EXPECT_EQ(record.Last().ToString(), "while it sent the weights");
}

TEST(MeshRecord, AnotherFileIsNone) {
  const TempDir dir = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(dir.File("x"), "not a record").ok());
  const auto opened = MeshRecord::Open(UniqueFd(::open(dir.File("x").c_str(), O_RDWR | O_CLOEXEC)));
  EXPECT_EQ(opened.error().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(MeshRecord::Open(UniqueFd()).has_value());
}

}  // namespace
}  // namespace meshwright::worker
