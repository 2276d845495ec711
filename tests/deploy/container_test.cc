// The files of deploy/container, as far as a machine without images can judge them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tests/deploy/tools.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;

// Words of the last RUN of a stage that installs packages.
std::set<std::string> PackagesOf(const std::string& stage) {
  const size_t begin = stage.find("--no-install-recommends");
  const size_t end = std::min(stage.find("&&", begin), stage.find("\nWORKDIR", begin));
  std::istringstream words(stage.substr(begin, end - begin));
  std::set<std::string> packages;
  for (std::string word; words >> word;) packages.insert(word);
  return packages;
}

std::string Stage(size_t index) {
  const std::string text = DeployFile("container/Containerfile");
  const size_t second = text.rfind("FROM ");
  return index == 0 ? text.substr(0, second) : text.substr(second);
}

TEST(Containerfile, HasThePackagesWhoseLibrariesTheBinaryNames) {
  MW_NEEDS("objdump");
  MW_NEEDS("dpkg-query");
  const std::set<std::string> packages = PackagesOf(Stage(1));
  const Answer dump = Ask({"objdump", "-p", MESHWRIGHT_BINARY});
  ASSERT_TRUE(dump.ok) << dump.text;
  const std::regex needed("NEEDED +(lib\\S+)");
  int found = 0;
  for (std::sregex_iterator it(dump.text.begin(), dump.text.end(), needed), end; it != end; ++it) {
    const Answer owner = Ask({"dpkg-query", "-S", "*/x86_64-linux-gnu/" + (*it)[1].str()});
    ASSERT_TRUE(owner.ok) << owner.text;
    const std::string package = owner.text.substr(0, owner.text.find(':'));
    // Every Debian has these.
    if (package == "libc6" || package == "libgcc-s1" || package == "diversion by") continue;
    EXPECT_TRUE(packages.contains(package)) << package << " has " << (*it)[1];
    ++found;
  }
  EXPECT_GT(found, 8);
}

TEST(Containerfile, BuildsWithThePackagesThatTheProjectNames) {
  const std::string listed =
      ReadFile(std::string(MESHWRIGHT_SOURCE_DIR) + "/tools/apt-packages.txt").value();
  for (const std::string& package : PackagesOf(Stage(0))) {
    if (package.starts_with("--") || package == "\\") continue;
    EXPECT_THAT(listed, HasSubstr("\n" + package + "\n"));
  }
}

TEST(Containerfile, CopiesEveryRoomAndRunsAsNobody) {
  const std::string text = DeployFile("container/Containerfile");
  const std::string source = MESHWRIGHT_SOURCE_DIR;
  std::set<std::string> copied;
  for (const std::string& line : Split(text, '\n')) {
    if (!line.starts_with("COPY ") || line.find("--from") != std::string::npos) continue;
    const std::vector<std::string> words = Split(line, ' ');
    for (size_t i = 1; i + 1 < words.size(); ++i) {
      EXPECT_TRUE(std::filesystem::exists(source + "/" + words[i])) << line;
      copied.insert(words[i]);
    }
  }
  const std::string rooms = ReadFile(source + "/CMakeLists.txt").value();
  const std::regex library("\nmw_library\\(([a-z]+)");
  for (std::sregex_iterator it(rooms.begin(), rooms.end(), library), end; it != end; ++it) {
    EXPECT_TRUE(copied.contains((*it)[1].str())) << (*it)[1];
  }
  EXPECT_THAT(text, HasSubstr("\nUSER 65532:65532\n"));
}

}  // namespace
}  // namespace meshwright::testing
