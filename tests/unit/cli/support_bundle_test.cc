#include "cli/support_bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/sha256.h"

namespace meshwright::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSecret = "quiet-river-72";

SupportBundle MakeBundle() {
  return SupportBundle({"support", "0.1.0", "head:7700", 1'700'000'000'000}, Redactor({kSecret}));
}

// The bytes of a file of the archive; "" where there is none.
std::string FileIn(const std::string& tar, const std::string& name) {
  for (size_t at = 0; at + 512 <= tar.size();) {
    const std::string found = tar.substr(at, 100).c_str();
    if (found.empty()) return "";
    const size_t bytes = std::stoul(tar.substr(at + 124, 11), nullptr, 8);
    if (found == name) return tar.substr(at + 512, bytes);
    at += 512 + (bytes + 511) / 512 * 512;
  }
  return "";
}

TEST(SupportBundles, HaveNoSecretInAnyPart) {
  SupportBundle bundle = MakeBundle();
  bundle.Add("client/environment.txt", std::string("A=") + kSecret + "\n");
  bundle.Add("jobs/1/config.resolved.toml", std::string("description = \"") + kSecret + "\"\n");
  bundle.Add("controller", Fail(Unavailable(std::string("no controller at ") + kSecret)));
  const std::string tar = bundle.Tar();
  EXPECT_THAT(tar, Not(HasSubstr(kSecret)));
  EXPECT_EQ(bundle.left_out(), 2U);
  EXPECT_EQ(FileIn(tar, "support/client/environment.txt"), "A=(left out)\n");
}

TEST(SupportBundles, SayWhatIsInThemAndWhatIsMissing) {
  SupportBundle bundle = MakeBundle();
  bundle.Add("version.txt", std::string("meshwright 0.1.0\n"));
  bundle.Add("empty.txt", std::string());
  bundle.Add("jobs.json", Fail(Unavailable("nobody answers")));
  const std::string tar = bundle.Tar();
  const auto manifest = nlohmann::json::parse(FileIn(tar, "support/manifest.json"));
  EXPECT_EQ(manifest["made"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(manifest["controller"], "head:7700");
  ASSERT_EQ(manifest["files"].size(), 1U);
  EXPECT_EQ(manifest["files"][0]["name"], "version.txt");
  EXPECT_EQ(manifest["files"][0]["bytes"], 17);
  EXPECT_EQ(manifest["files"][0]["sha256"], Sha256Hex("meshwright 0.1.0\n"));
  EXPECT_EQ(manifest["missing"][0]["name"], "jobs.json");
  EXPECT_EQ(manifest["missing"][0]["why"], "nobody answers");
}

TEST(SupportBundles, KeepTheEndOfWhatIsLong) {
  SupportBundle bundle = MakeBundle();
  std::string log;
  for (int i = 0; log.size() <= SupportBundle::kMostBytes; ++i) {
    log += "line " + std::to_string(i) + std::string(1000, ' ') + "\n";
  }
  bundle.Add("controller.log", log + "the last line\n");
  const std::string kept = FileIn(bundle.Tar(), "support/controller.log");
  EXPECT_LE(kept.size(), SupportBundle::kMostBytes);
  EXPECT_TRUE(kept.starts_with("line ")) << "half a line";
  EXPECT_TRUE(kept.ends_with("the last line\n"));
}

}  // namespace
}  // namespace meshwright::cli
