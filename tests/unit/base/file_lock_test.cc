#include "base/file_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace meshwright {
namespace {

TEST(LockFile, HasOneHolderUntilTheDescriptorIsClosed) {
  const auto folder = TempDir::Make();
  ASSERT_TRUE(folder.has_value()) << folder.error();
  const std::string path = folder->File("a.lock");
  auto first = LockFile(path, 0);
  ASSERT_TRUE(first.has_value()) << first.error();
  const auto second = LockFile(path, 30);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(second.error().message().find(path), std::string::npos);
  *first = UniqueFd();
  EXPECT_TRUE(LockFile(path, 0).has_value());
  EXPECT_TRUE(FileExists(path));
}

TEST(LockFile, FollowsNoLinkAndNamesThePath) {
  const auto folder = TempDir::Make();
  ASSERT_TRUE(folder.has_value()) << folder.error();
  const std::string link = folder->File("link.lock");
  ASSERT_EQ(::symlink(folder->File("elsewhere").c_str(), link.c_str()), 0);
  const auto lock = LockFile(link, 0);
  ASSERT_FALSE(lock.has_value());
  EXPECT_NE(lock.error().message().find(link), std::string::npos);
  EXPECT_FALSE(FileExists(folder->File("elsewhere")));
}

}  // namespace
}  // namespace meshwright
