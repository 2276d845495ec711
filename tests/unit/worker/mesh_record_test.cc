#include "worker/mesh_record.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/file.h"

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
