// Where a member of a mesh writes what is saved of it: below a root.
#include "worker/checkpoint_files.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/folder.h"

namespace meshwright::worker {
namespace {

TEST(FolderFiles, ASaveOfWhichNothingComesLeavesNothing) {
  const TempDir dir = TempDir::Make().value();
  const checkpoint::Roots roots = checkpoint::Roots::Open({{"r", dir.path()}}).value();
  FolderFiles files(roots);
  const std::string temporary = checkpoint::TemporaryName(3, 1);
  checkpoint::ShardImage image;
  image.name = checkpoint::ShardName(checkpoint::ShardKind::kWeights, 0);
  image.header = "header";
  image.bytes = 6;
  ASSERT_TRUE(files.Write({"r", "job"}, temporary, image).ok());
  ASSERT_TRUE(FileExists(dir.File("job/" + temporary)));
  proto::CommitCheckpoint commit;
  commit.folder = {"r", "job"};
  commit.temporary = temporary;
  // Of a file that somebody else has written elsewhere.
  checkpoint::Manifest manifest;
  manifest.step = 3;
  manifest.files = {{"sharded/elsewhere", 10}};
  commit.manifest = checkpoint::FormatManifest(manifest);
  EXPECT_FALSE(files.Commit(commit).ok());
  EXPECT_FALSE(FileExists(dir.File("job/" + temporary)));

  image.bytes = 7;  // more than comes
  EXPECT_FALSE(files.Write({"r", "job"}, temporary, image).ok());
  EXPECT_FALSE(FileExists(dir.File("job/" + temporary)));
}

}  // namespace
}  // namespace meshwright::worker
