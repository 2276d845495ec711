// Bytes on a disk that end with the process.
#include "base/scratch_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "base/file.h"

namespace meshwright {
namespace {

TEST(ScratchFile, HoldsWhatIsWritten) {
  const TempDir folder = *TempDir::Make();
  const auto file = ScratchFile::Make(folder.File("new/deep"), 1000);
  ASSERT_TRUE(file.has_value()) << file.error();
  std::vector<std::byte> bytes(400, std::byte{7});
  ASSERT_TRUE(file->Write(600, bytes).ok());
  std::vector<std::byte> read(1000, std::byte{1});
  ASSERT_TRUE(file->Read(0, read).ok());
  EXPECT_EQ(std::vector<std::byte>(read.begin(), read.begin() + 600),
            std::vector<std::byte>(600, std::byte{0}));
  EXPECT_EQ(std::vector<std::byte>(read.begin() + 600, read.end()), bytes);
}

TEST(ScratchFile, LeavesNoName) {
  const TempDir folder = *TempDir::Make();
  const auto file = ScratchFile::Make(folder.path(), 1 << 20);
  ASSERT_TRUE(file.has_value()) << file.error();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ScratchFile, SaysWhatToDoWhereItCannotBe) {
  const TempDir folder = *TempDir::Make();
  ASSERT_TRUE(WriteFileAtomic(folder.File("file"), "x").ok());
  const auto no_folder = ScratchFile::Make(folder.File("file"), 1000);
  ASSERT_FALSE(no_folder.has_value());
  EXPECT_NE(no_folder.error().message().find(folder.File("file")), std::string::npos)
      << no_folder.error();
  // More than any disk has.
  const auto full = ScratchFile::Make(folder.path(), int64_t{1} << 62);
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code(), StatusCode::kResourceExhausted) << full.error();
  EXPECT_NE(full.error().message().find("--scratch-dir"), std::string::npos) << full.error();
}

}  // namespace
}  // namespace meshwright
