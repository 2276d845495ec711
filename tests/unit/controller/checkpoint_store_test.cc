// The controller's own checkpoint root: what may be written and read below it, by which names.
#include "controller/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "checkpoint/reader.h"

namespace meshwright::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kStoredShard = "sharded/shard-00001-model-00001-of-00001.safetensors";

class CheckpointStoreTest : public ::testing::Test {
 protected:
  explicit CheckpointStoreTest(int64_t keep_free = 0)
      : store_(CheckpointStore::Open(dir_.File("root"), keep_free).value()) {}

  static std::string Temporary(int64_t step) { return checkpoint::TemporaryName(step, 5) + "-2"; }

  // One tensor in one file, written and committed.
  Status Save(int64_t step, int64_t keep = 0) {
    const std::vector<std::byte> bytes(4096, static_cast<std::byte>(step));
    const ir::TensorType type{ir::DType::kF32, {1024}};
    MW_ASSIGN_OR_RETURN(
        const auto images,
        checkpoint::MakeShards(0, {{"w", type, ir::MemoryKind::kWeights, {{0}, {1024}}, bytes}}));
    checkpoint::Shards written;
    for (const checkpoint::ShardImage& image : images) {
      MW_ASSIGN_OR_RETURN(auto writer,
                          store_->Create("gpt/7", Temporary(step), image.name, image.bytes));
      MW_TRY(writer.Append(image.header));
      for (const auto part : image.parts) {
        MW_TRY(writer.Append({reinterpret_cast<const char*>(part.data()), part.size()}));
      }
      MW_TRY(writer.Finish());
      checkpoint::AddShard(written, image);
    }
    checkpoint::Manifest manifest;
    manifest.step = step;
    MW_TRY(checkpoint::AddShards(manifest, written));
    commit_ = {MeshGeneration(5),
               LaunchSeq(2),
               {ir::kControllerRoot, "gpt/7"},
               Temporary(step),
               checkpoint::FormatManifest(manifest),
               "job",
               keep};
    return store_->Commit(commit_);
  }
  StatusCode CodeOfCreate(const std::string& folder, const std::string& temporary,
                          const std::string& name) {
    const auto created = store_->Create(folder, temporary, name, 10);
    return created.has_value() ? StatusCode::kOk : created.error().code();
  }

  TempDir dir_ = TempDir::Make().value();
  std::unique_ptr<CheckpointStore> store_;
  proto::CommitCheckpoint commit_;
};

TEST_F(CheckpointStoreTest, KeepsTheNewestAndReadsThemBack) {
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(Save(step, 2).ok());
  EXPECT_THAT(store_->Steps("gpt/7").value(), ElementsAre(3, 2));
  const auto file = store_->OpenToRead("gpt/7/step-00000003", kStoredShard);
  ASSERT_TRUE(file.has_value()) << file.error();
  EXPECT_GT(file->bytes, 4096);
  EXPECT_TRUE(checkpoint::Reader::OpenFolder(store_->root() + "/gpt/7/step-00000003")
                  .value()
                  ->Verify()
                  .ok());
  EXPECT_TRUE(store_->Remove("gpt/7", 3).ok());
  EXPECT_THAT(store_->Steps("gpt/7").value(), ElementsAre(2));
}

TEST_F(CheckpointStoreTest, ACommitLeavesASaveAloneThatBeganBehindIt) {
  const std::string folder = store_->root() + "/gpt/7/";
  const std::string later[] = {"step-00000009.tmp-5-3", "step-00000001.tmp-6-1"};
  const std::string over[] = {"step-00000009.tmp-5-1", "step-00000009.tmp-4-30",
                              "step-00000009.tmp-0"};
  for (const std::string& name : later) ASSERT_TRUE(MakeDirs(folder + name).ok());
  for (const std::string& name : over) ASSERT_TRUE(MakeDirs(folder + name).ok());
  ASSERT_TRUE(Save(3, 2).ok());
  for (const std::string& name : later) EXPECT_TRUE(FileExists(folder + name)) << name;
  for (const std::string& name : over) EXPECT_FALSE(FileExists(folder + name)) << name;
}

TEST_F(CheckpointStoreTest, ACommitThatNobodyHeardOfIsFoundDone) {
  ASSERT_TRUE(Save(4).ok());
  ASSERT_TRUE(RemoveAll(store_->root() + "/gpt/7/latest").ok());
  const Status again = store_->Commit(commit_);
  EXPECT_TRUE(again.ok()) << again;
  EXPECT_EQ(ReadFile(store_->root() + "/gpt/7/latest").value(), "step-00000004\n");
  // Another state of that step is none that was committed.
  commit_.manifest = checkpoint::FormatManifest([&] {
    checkpoint::Manifest other = checkpoint::ParseManifest(commit_.manifest).value();
    other.cause = "end";
    return other;
  }());
  EXPECT_EQ(store_->Commit(commit_).code(), StatusCode::kDataLoss);
}

TEST_F(CheckpointStoreTest, ASaveOfWhichNothingComesLeavesNothing) {
  ASSERT_TRUE(Save(1).ok());
  ASSERT_TRUE(store_->Create("gpt/7", Temporary(2), kStoredShard, 10).has_value());
  const std::string temporary = dir_.File("root") + "/gpt/7/" + Temporary(2);
  ASSERT_TRUE(FileExists(temporary));
  commit_.temporary = Temporary(2);
  commit_.manifest = "no manifest";
  EXPECT_EQ(store_->CommitGuarded(commit_).error.kind, proto::ErrorKind::kSaveFailed);
  EXPECT_FALSE(FileExists(temporary));
  store_->Discard("gpt/7", "step-00000001");
  EXPECT_THAT(store_->Steps("gpt/7").value(), ElementsAre(1)) << "that is no save under way";
}

TEST_F(CheckpointStoreTest, NamesThatLeadElsewhereAreRefused) {
  EXPECT_EQ(CodeOfCreate("gpt/7", Temporary(1), kStoredShard), StatusCode::kOk);
  for (const char* folder : {"../out", "/etc", "gpt/../../out", ""}) {
    EXPECT_EQ(CodeOfCreate(folder, Temporary(1), kStoredShard), StatusCode::kInvalidArgument)
        << folder;
  }
  for (const char* temporary :
       {"", "..", "step-00000001", "step-00000001.tmp-", "step-00000001.tmp-5/../../x", "x.tmp-1",
        "step-00000001.tmp-5-2/sub"}) {
    EXPECT_EQ(CodeOfCreate("gpt/7", temporary, kStoredShard), StatusCode::kInvalidArgument)
        << temporary;
  }
  for (const char* name : {"", "manifest.json", "job", "sharded/../../x", "sharded/", "state/.x",
                           "other/x.safetensors", "sharded/a/b", "/etc/passwd"}) {
    EXPECT_EQ(CodeOfCreate("gpt/7", Temporary(1), name), StatusCode::kInvalidArgument) << name;
  }
  for (const char* name : {"../latest", "latest", "sharded/../manifest.json"}) {
    EXPECT_EQ(store_->OpenToRead("gpt/7/step-00000001", name).error().code(),
              StatusCode::kInvalidArgument)
        << name;
  }
}

TEST_F(CheckpointStoreTest, LinksOutOfTheRootAreNotFollowed) {
  ASSERT_TRUE(MakeDirs(dir_.File("elsewhere")).ok());
  std::filesystem::create_directory_symlink(dir_.File("elsewhere"), store_->root() + "/gpt");
  EXPECT_EQ(CodeOfCreate("gpt/7", Temporary(1), kStoredShard), StatusCode::kPermissionDenied);
  EXPECT_EQ(store_->OpenToRead("gpt/step-00000001", "job").error().code(),
            StatusCode::kPermissionDenied);
}

TEST_F(CheckpointStoreTest, AFileHasTheBytesThatWereSaid) {
  auto writer = store_->Create("gpt/7", Temporary(1), kStoredShard, 10).value();
  EXPECT_TRUE(writer.Append("12345").ok());
  EXPECT_EQ(writer.Append("1234567").code(), StatusCode::kInvalidArgument);
  auto again = store_->Create("gpt/7", Temporary(1), kStoredShard, 10).value();
  EXPECT_TRUE(again.Append("12345").ok());
  EXPECT_EQ(again.Finish().code(), StatusCode::kDataLoss);
}

// The controller's own state needs room when checkpoints have none.
class NearlyFullStore : public CheckpointStoreTest {
 protected:
  NearlyFullStore() : CheckpointStoreTest(int64_t{1} << 60) {}
};

TEST_F(NearlyFullStore, SaysHowMuchIsLeftAndWhatToDo) {
  const Status status = Save(1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("are kept free"));
  EXPECT_THAT(status.message(), HasSubstr("--checkpoint-root"));
}

}  // namespace
}  // namespace meshwright::controller
