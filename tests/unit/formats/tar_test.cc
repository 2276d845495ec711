#include "formats/tar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/subprocess.h"

namespace meshwright::formats {
namespace {

// tar(1) is the judge.
TEST(Tar, IsReadByTar) {
  const TempDir dir = TempDir::Make().value();
  const std::string whole(512, 'x');
  const std::string tar = TarOf(
      {{"a/empty", ""}, {"a/short", "text\n"}, {"a/whole", whole}, {"a/more", whole + "y"}}, 1'000);
  EXPECT_EQ(tar.size() % 512, 0U);
  ASSERT_TRUE(WriteFileAtomic(dir.File("a.tar"), tar).ok());
  SubprocessOptions options;
  options.args = {"tar", "-xvf", dir.File("a.tar"), "-C", dir.path()};
  const auto output = RunProcess(options, 60'000);
  ASSERT_TRUE(output.has_value()) << output.error();
  EXPECT_EQ(output->exit.code, 0) << output->stderr_text;
  EXPECT_EQ(output->stdout_text, "a/empty\na/short\na/whole\na/more\n");
  EXPECT_EQ(ReadFile(dir.File("a/empty")).value(), "");
  EXPECT_EQ(ReadFile(dir.File("a/short")).value(), "text\n");
  EXPECT_EQ(ReadFile(dir.File("a/whole")).value(), whole);
  EXPECT_EQ(ReadFile(dir.File("a/more")).value(), whole + "y");
}

TEST(TarDeathTest, DoesNotLeadOutOfItsFolder) {
  EXPECT_DEATH(TarOf({{"../a", ""}}, 0), "../a");
  EXPECT_DEATH(TarOf({{"/etc/a", ""}}, 0), "/etc/a");
}

}  // namespace
}  // namespace meshwright::formats
