#include "controller/save_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;

constexpr MeshGeneration kSaveGen{7};

checkpoint::Shards Half(int64_t begin, const std::string& file) {
  checkpoint::Shards shards;
  shards.files.push_back({file, 1000});
  shards.tensors["w"] = {{ir::DType::kF32, {8}},
                         ir::MemoryKind::kWeights,
                         {{{{begin}, {4}}, 0, 64, {checkpoint::Digest{1, 2}}}}};
  return shards;
}

proto::StateSaved Saved(uint64_t save, const checkpoint::Shards& shards) {
  return {kSaveGen, LaunchSeq(save), {}, checkpoint::FormatShards(shards)};
}

SaveTable Begun() {
  SaveTable table;
  SaveRequest request;
  request.save = LaunchSeq(5);
  request.step = 120;
  request.temporary = "step-00000120.tmp-7-5";
  request.head.step = 120;
  request.keep = 3;
  table.Begin(request, 2);
  return table;
}

TEST(SaveTable, TheLastMemberBringsTheCommitAndTheCommitTheStep) {
  SaveTable table = Begun();
  auto commit = table.On(1, Saved(5, Half(4, "b")), kSaveGen);
  ASSERT_TRUE(commit.has_value() && !commit->has_value());
  EXPECT_FALSE(table.On(1, Saved(5, Half(4, "b")), kSaveGen)->has_value()) << "a repeated message";
  EXPECT_FALSE(table.On(0, Saved(4, Half(0, "a")), kSaveGen)->has_value()) << "of another save";
  EXPECT_FALSE(table.On(proto::CheckpointCommitted{kSaveGen, LaunchSeq(5), {}})->has_value())
      << "nobody was asked to commit";
  commit = table.On(0, Saved(5, Half(0, "a")), kSaveGen);
  ASSERT_TRUE(commit.has_value() && commit->has_value());
  EXPECT_EQ((*commit)->temporary, "step-00000120.tmp-7-5");
  EXPECT_EQ((*commit)->keep, 3);
  const auto manifest = checkpoint::ParseManifest((*commit)->manifest);
  ASSERT_TRUE(manifest.has_value()) << manifest.error();
  EXPECT_EQ(manifest->tensors.at("w").boxes.size(), 2U);
  EXPECT_TRUE(table.busy());
  EXPECT_EQ(table.On(proto::CheckpointCommitted{kSaveGen, LaunchSeq(5), {}})->value_or(-1), 120);
  EXPECT_FALSE(table.busy());
}

TEST(SaveTable, NoCommitOfWhatIsNoCover) {
  SaveTable table = Begun();
  ASSERT_TRUE(table.On(0, Saved(5, Half(0, "a")), kSaveGen).has_value());
  const auto commit = table.On(1, Saved(5, Half(2, "b")), kSaveGen);
  ASSERT_FALSE(commit.has_value());
  EXPECT_THAT(commit.error().message(), HasSubstr("tensor 'w'"));
  EXPECT_FALSE(table.busy());
}

TEST(SaveTable, AMembersErrorEndsTheSave) {
  SaveTable table = Begun();
  proto::StateSaved failed = Saved(5, {});
  failed.error = proto::MakeError(proto::ErrorKind::kSaveFailed, ResourceExhausted("full"), "w1");
  EXPECT_EQ(table.On(0, failed, kSaveGen).error().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(table.busy());
  EXPECT_FALSE(table.On(1, Saved(5, Half(4, "b")), kSaveGen)->has_value());
}

TEST(SaveTable, NonsenseOfAWorkerIsAnError) {
  SaveTable table = Begun();
  proto::StateSaved odd = Saved(5, {});
  odd.shards = "{\"files\": 3}";
  EXPECT_EQ(table.On(0, odd, kSaveGen).error().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace meshwright::controller
