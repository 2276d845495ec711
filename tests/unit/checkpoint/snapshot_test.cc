#include "checkpoint/snapshot.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "checkpoint/reader.h"
#include "tests/unit/checkpoint/random_state.h"

namespace meshwright::checkpoint {
namespace {

using ::testing::IsEmpty;

SnapshotLayout TwoBoxes() {
  SnapshotLayout layout;
  layout.Add("w", {ir::DType::kI32, {4, 6}}, ir::MemoryKind::kWeights, {{0, 0}, {4, 3}});
  layout.Add("m", {ir::DType::kI32, {700, 1024}}, ir::MemoryKind::kOptimizer,
             {{0, 0}, {700, 1024}});
  return layout;
}

void Write(SnapshotArea& area, int64_t step, bool finish = true) {
  area.Begin();
  for (size_t i = 0; i < area.layout().boxes().size(); ++i) {
    const SnapshotBox& box = area.layout().boxes()[i];
    CopyBox(area, i, ElementsOf(box.type.dims, box.box, static_cast<int32_t>(step)));
  }
  if (finish) area.Finish(step);
}

std::vector<int64_t> Steps(const SnapshotArea& area) {
  std::vector<int64_t> steps;
  for (const Snapshot& snapshot : area.Whole()) steps.push_back(snapshot.step);
  return steps;
}

// As another process sees it.
SnapshotArea Other(const SnapshotArea& area) {
  return SnapshotArea::Open(UniqueFd(::dup(area.fd()))).value();
}

TEST(Snapshot, SlotsAreWrittenInTurnAndSeenByOthers) {
  SnapshotArea area = SnapshotArea::Create().value();
  EXPECT_THAT(area.Whole(), IsEmpty());
  ASSERT_TRUE(area.SetLayout(TwoBoxes()).ok());
  EXPECT_THAT(Steps(area), IsEmpty());
  Write(area, 3);
  EXPECT_EQ(Steps(Other(area)), (std::vector<int64_t>{3}));
  Write(area, 4);
  Write(area, 5);
  const SnapshotArea other = Other(area);
  EXPECT_EQ(Steps(other), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(other.layout(), TwoBoxes());
  const auto expected = ElementsOf({4, 6}, {{0, 0}, {4, 3}}, 5);
  EXPECT_EQ(std::memcmp(other.Whole()[0].data.data(), expected.data(), expected.size()), 0);
}

TEST(Snapshot, BoxesArePlacedAndSealedPieceByPiece) {
  SnapshotArea area = SnapshotArea::Create().value();
  ASSERT_TRUE(area.SetLayout(TwoBoxes()).ok());
  area.Begin();
  for (size_t i = 0; i < 2; ++i) {
    const SnapshotBox& box = area.layout().boxes()[i];
    const auto bytes = ElementsOf(box.type.dims, box.box, 3);
    std::memcpy(area.Place(i).data(), bytes.data(), bytes.size());
    const int64_t pieces = PieceCount(box.bytes());
    for (int64_t piece = 0; piece < pieces; ++piece) area.Seal(i, piece, piece + 1);
  }
  area.Finish(3);
  SnapshotArea copied = SnapshotArea::Create().value();
  ASSERT_TRUE(copied.SetLayout(TwoBoxes()).ok());
  Write(copied, 3);
  const SnapshotArea other = Other(area);
  ASSERT_EQ(Steps(other), (std::vector<int64_t>{3}));
  EXPECT_EQ(ShardsOf(other.layout(), other.Whole()[0], "f"),
            ShardsOf(copied.layout(), copied.Whole()[0], "f"));
  EXPECT_EQ(other.OfStep(3)->data.size(), static_cast<size_t>(TwoBoxes().data_bytes()));
  EXPECT_FALSE(other.OfStep(2).has_value());
  EXPECT_FALSE(other.OfStep(-1).has_value()) << "torn slots are of no step";
}

TEST(Snapshot, ATornSlotIsNoneAndTheOtherOneStays) {
  SnapshotArea area = SnapshotArea::Create().value();
  ASSERT_TRUE(area.SetLayout(TwoBoxes()).ok());
  Write(area, 8);
  Write(area, 9);
  Write(area, 10, /*finish=*/false);  // its writer dies here
  EXPECT_EQ(Steps(Other(area)), (std::vector<int64_t>{9}));
}

// Its writer dies between bytes and their digest: what is there still looks like the old one.
TEST(Snapshot, ASlotIsNoneFromTheFirstByteThatIsWrittenOn) {
  SnapshotArea area = SnapshotArea::Create().value();
  ASSERT_TRUE(area.SetLayout(TwoBoxes()).ok());
  Write(area, 3);
  Write(area, 4);
  area.Begin();
  area.Place(0)[0] ^= std::byte{1};
  EXPECT_EQ(Steps(Other(area)), (std::vector<int64_t>{4}));
  EXPECT_FALSE(Other(area).OfStep(3).has_value());
}

TEST(Snapshot, ASlotGivesBoxesOfAManifestThatChecksItsBytes) {
  SnapshotArea area = SnapshotArea::Create().value();
  ASSERT_TRUE(area.SetLayout(TwoBoxes()).ok());
  Write(area, 7);
  const Snapshot snapshot = area.Whole()[0];
  const Shards shards = ShardsOf(area.layout(), snapshot, "w0");
  ASSERT_EQ(shards.tensors.at("m").boxes.size(), 1U);
  const StoredBox& box = shards.tensors.at("m").boxes[0];
  EXPECT_EQ(box.begin_bytes, 4 * 3 * 4);
  const auto bytes = snapshot.data.subspan(static_cast<size_t>(box.begin_bytes));
  EXPECT_EQ(box.digests, PieceDigests(bytes.first(700 * 1024 * 4)));
}

TEST(Snapshot, ADigestThatChangedMakesTheSlotNone) {
  SnapshotArea area = SnapshotArea::Create().value();
  ASSERT_TRUE(area.SetLayout(TwoBoxes()).ok());
  Write(area, 7);
  auto* const digest = const_cast<Digest*>(area.Whole()[0].digests.data());
  digest->low ^= 1;
  EXPECT_THAT(Steps(area), IsEmpty());
}

TEST(Snapshot, MemoryThatIsNoneIsRefused) {
  EXPECT_EQ(SnapshotArea::Open(UniqueFd(::memfd_create("x", 0))).error().code(),
            StatusCode::kDataLoss);
  const UniqueFd odd(::memfd_create("x", 0));
  ASSERT_EQ(::ftruncate(odd.get(), 1 << 20), 0);
  EXPECT_EQ(SnapshotArea::Open(UniqueFd(::dup(odd.get()))).error().code(), StatusCode::kDataLoss);
  SnapshotArea area = SnapshotArea::Create().value();
  ASSERT_TRUE(area.SetLayout(TwoBoxes()).ok());
  ASSERT_EQ(::ftruncate(area.fd(), area.bytes() - 4096), 0);
  EXPECT_EQ(SnapshotArea::Open(UniqueFd(::dup(area.fd()))).error().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace meshwright::checkpoint
