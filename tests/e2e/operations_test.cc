// The walk of docs/operations.md, line by line: three hosts as network namespaces, certificates, a
// job, a host whose plug is pulled, its story, two runs compared, one from Python.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/file.h"
#include "tests/e2e/doc_walk.h"
#include "tests/e2e/leftovers.h"
#include "tests/e2e/net_hosts.h"

namespace meshwright::testing {
namespace {

constexpr int kWalkHosts = 3;
constexpr const char* kWalkPage = MESHWRIGHT_SOURCE_DIR "/docs/operations.md";
constexpr const char* kWalkHeading = "## From nothing to a secured cluster";

// That of tools/install-python.sh, which has what the package needs; "": it is not there.
std::string PythonFolder() {
  const std::string folder = MESHWRIGHT_SOURCE_DIR "/build/python/bin";
  return FileExists(folder + "/python3") ? folder : "";
}

TEST(DocWalkParts, FitPatterns) {
  EXPECT_TRUE(FitsPattern("a", "a"));
  EXPECT_FALSE(FitsPattern("a", "ab"));
  EXPECT_TRUE(FitsPattern("...", ""));
  EXPECT_TRUE(FitsPattern("...one...READY...", "  one  8 READY"));
  EXPECT_FALSE(FitsPattern("...one...READY...", "READY one"));
  EXPECT_TRUE(FitsPattern("...b", "abab"));
}

TEST(DocWalkParts, StepsAreCommandsAndWhatTheyPrint) {
  const TempDir dir = TempDir::Make("mw-walk").value();
  const std::string page = dir.File("page.md");
  ASSERT_TRUE(WriteFileAtomic(page,
                              "## A\n```console\nx$ no\n```\n## B\n\n```console\n"
                              "head$ serve --here &\none$ cat > f <<E\n> a\n> E\n"
                              "out ...\ntwo# poweroff -f\n```\n```\nhead$ not this\n```\n")
                  .ok());
  const auto steps = WalkOf(page, "## B");
  ASSERT_TRUE(steps.has_value()) << steps.error();
  ASSERT_EQ(steps->size(), 3u);
  EXPECT_TRUE((*steps)[0].stays);
  EXPECT_EQ((*steps)[0].command, "serve --here");
  EXPECT_EQ((*steps)[1].host, "one");
  EXPECT_EQ((*steps)[1].command, "cat > f <<E\na\nE");
  EXPECT_EQ((*steps)[1].output, std::vector<std::string>{"out ..."});
  EXPECT_EQ((*steps)[2].command, "poweroff -f");
  EXPECT_EQ((*steps)[2].line, 13);
  EXPECT_EQ(WalkOf(page, "## C").error().code(), StatusCode::kNotFound);
}

TEST(Operations, EveryStepOfTheWalkIsTrue) {
  Leftovers leftovers;
  auto hosts = NetHosts::Make(kWalkHosts);
  if (!hosts.has_value()) {
    GTEST_SKIP() << "hosts as network namespaces need root and `ip`: " << hosts.error().message();
  }
  const auto steps = WalkOf(kWalkPage, kWalkHeading);
  ASSERT_TRUE(steps.has_value()) << steps.error();
  const TempDir dir = TempDir::Make("mw-walk").value();
  const std::string bin = std::filesystem::path(MESHWRIGHT_BINARY).parent_path().string();
  const std::string python = PythonFolder();
  WalkOptions options;
  options.dir = dir.path();
  options.hosts = {{"head", 0}, {"one", 1}, {"two", 2}};
  const std::string network = NetHosts::Address(0).substr(0, NetHosts::Address(0).rfind('.') + 1);
  options.replace = {{"10.0.0.", network}};
  options.env = {{"PATH", fmt::format("{}:{}{}/usr/sbin:/usr/bin:/sbin:/bin", bin, python,
                                      python.empty() ? "" : ":")},
                 {"PYTHONPATH", MESHWRIGHT_SOURCE_DIR "/python"},
                 {"PYTHONDONTWRITEBYTECODE", "1"}};
  DocWalk walk(**hosts, options);
  for (const WalkStep& step : *steps) {
    if (python.empty() && step.command.starts_with("python3")) {
      ASSERT_EQ(std::getenv("CI"), nullptr) << "tools/install-python.sh did not run";
      continue;
    }
    const Status taken = walk.Take(step);
    ASSERT_TRUE(taken.ok()) << taken.message();
  }
  const Status end = walk.End();
  EXPECT_TRUE(end.ok()) << end.message();
  hosts->reset();
  EXPECT_EQ(leftovers.Find(), "");
}

}  // namespace
}  // namespace meshwright::testing
