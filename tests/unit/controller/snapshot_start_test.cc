#include "controller/snapshot_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace meshwright::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A slot with rows first ... first + rows - 1 of tensors of 4 rows, whose digests are `salt`.
proto::HeldSlot SlotWith(uint64_t gen, int64_t step, const std::vector<std::string>& tensors,
                         int64_t first, int64_t rows, uint64_t salt = 1) {
  checkpoint::Shards shards;
  const auto name = "own/" + std::to_string(step);
  shards.files.push_back({name, rows * 4 * static_cast<int64_t>(tensors.size())});
  int64_t begin = 0;
  for (const std::string& tensor : tensors) {
    shards.tensors[tensor] = {
        {ir::DType::kF32, {4}},
        ir::MemoryKind::kWeights,
        {{{{first}, {rows}}, 0, begin, {checkpoint::Digest{salt, static_cast<uint64_t>(first)}}}}};
    begin += rows * 4;
  }
  return {MeshGeneration(gen), step, name, "secret", checkpoint::FormatShards(shards)};
}

SnapshotHolder Holder(const std::string& worker, std::vector<proto::HeldSlot> slots) {
  return {worker, worker + ":1", 7, std::move(slots)};
}

bool Always(const SnapshotId&) { return true; }

int64_t StepOf(const SnapshotChoice& choice) { return choice.start ? choice.start->id.step : -1; }

TEST(SnapshotStart, IsTheLargestStepThatIsWholeOverAllSlots) {
  // w1 was killed while it wrote step 5: its slot is torn, and not told.
  const auto choice =
      ChooseSnapshot({Holder("w0", {SlotWith(3, 5, {"a"}, 0, 2), SlotWith(3, 4, {"a"}, 0, 2)}),
                      Holder("w1", {SlotWith(3, 4, {"a"}, 2, 2), SlotWith(3, 3, {"a"}, 2, 2)})},
                     {"a"}, Always);
  EXPECT_EQ(StepOf(choice), 4);
  EXPECT_THAT(choice.notes, ElementsAre(HasSubstr("step 5 is not whole")));
}

TEST(SnapshotStart, WithoutAHolderOfATensorThereIsNone) {
  const auto slot = SlotWith(3, 4, {"a"}, 0, 4);
  EXPECT_EQ(StepOf(ChooseSnapshot({Holder("w0", {slot})}, {"a"}, Always)), 4);
  const auto lost = ChooseSnapshot({Holder("w0", {slot})}, {"a", "m"}, Always);
  EXPECT_EQ(StepOf(lost), -1);
  EXPECT_THAT(lost.notes, ElementsAre(HasSubstr("nobody holds tensor 'm'")));
  EXPECT_EQ(StepOf(ChooseSnapshot({}, {"a"}, Always)), -1);
  EXPECT_EQ(StepOf(ChooseSnapshot({Holder("w0", {slot})}, {}, Always)), -1)
      << "of a state that nobody knows";
}

TEST(SnapshotStart, AReplicaStandsForAWorkerThatIsLost) {
  const auto choice = ChooseSnapshot({Holder("w1", {SlotWith(3, 4, {"a"}, 0, 4)})}, {"a"}, Always);
  EXPECT_EQ(StepOf(choice), 4);
}

TEST(SnapshotStart, SlotsOfTwoMeshesAreNeverPutTogether) {
  // Both are of step 4, and of two layouts: they may differ in rounding.
  const auto choice = ChooseSnapshot(
      {Holder("w0", {SlotWith(3, 4, {"a"}, 0, 2)}), Holder("w1", {SlotWith(5, 4, {"a"}, 2, 2)})},
      {"a"}, Always);
  EXPECT_EQ(StepOf(choice), -1);
}

TEST(SnapshotStart, ReplicasThatDifferAreNotTrusted) {
  const auto choice = ChooseSnapshot(
      {Holder("w0", {SlotWith(3, 5, {"a"}, 0, 4, 1), SlotWith(3, 4, {"a"}, 0, 4, 1)}),
       Holder("w1", {SlotWith(3, 5, {"a"}, 0, 4, 2), SlotWith(3, 4, {"a"}, 0, 4, 1)})},
      {"a"}, Always);
  EXPECT_EQ(StepOf(choice), 4);
  EXPECT_THAT(choice.notes, ElementsAre(HasSubstr("is not the same")));
}

TEST(SnapshotStart, BoxesThatOverlapAreNoCover) {
  const auto choice = ChooseSnapshot(
      {Holder("w0", {SlotWith(3, 4, {"a"}, 0, 3)}), Holder("w1", {SlotWith(3, 4, {"a"}, 2, 2)})},
      {"a"}, Always);
  EXPECT_EQ(StepOf(choice), -1);
}

TEST(SnapshotStart, WhatIsNotAllowedIsPassedOverInSilence) {
  const std::vector<SnapshotHolder> holders = {
      Holder("w0", {SlotWith(3, 5, {"a"}, 0, 4), SlotWith(3, 4, {"a"}, 0, 4)})};
  const auto choice =
      ChooseSnapshot(holders, {"a"}, [](const SnapshotId& id) { return id.step < 5; });
  EXPECT_EQ(StepOf(choice), 4);
  EXPECT_THAT(choice.notes, IsEmpty());
}

TEST(SnapshotStart, TextThatIsNoShardsIsNoHolder) {
  proto::HeldSlot slot = SlotWith(3, 4, {"a"}, 0, 4);
  slot.shards = "{";
  EXPECT_EQ(StepOf(ChooseSnapshot({Holder("w0", {slot})}, {"a"}, Always)), -1);
}

TEST(SnapshotStart, AWorkerReadsItsOwnMemoryWhereItHoldsABox) {
  const auto choice = ChooseSnapshot({Holder("w0", {SlotWith(3, 4, {"a", "b"}, 0, 4)}),
                                      Holder("w1", {SlotWith(3, 4, {"b"}, 0, 4)})},
                                     {"a", "b"}, Always);
  ASSERT_TRUE(choice.start.has_value());
  const SnapshotFiles of_w1 = FilesFor(*choice.start, "w1");
  const auto manifest = checkpoint::ParseManifest(of_w1.manifest);
  ASSERT_TRUE(manifest.has_value()) << manifest.error();
  EXPECT_EQ(manifest->step, 4);
  ASSERT_EQ(of_w1.sources.size(), 2u);
  const auto file_of = [&](const char* tensor) {
    return static_cast<size_t>(manifest->tensors.at(tensor).boxes.at(0).file);
  };
  EXPECT_EQ(of_w1.sources[file_of("a")].address, "w0:1");
  EXPECT_EQ(of_w1.sources[file_of("b")].address, "w1:1");
  EXPECT_EQ(manifest->tensors.at("b").boxes.at(0).begin_bytes, 0) << "where w1 has it";
  EXPECT_EQ(of_w1.sources[file_of("b")].slot, "own/4");
  // Who holds all of it reads nobody else's.
  EXPECT_EQ(FilesFor(*choice.start, "w0").sources.size(), 1u);
}

}  // namespace
}  // namespace meshwright::controller
