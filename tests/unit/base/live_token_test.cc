#include "base/live_token.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/fake_clock.h"

namespace meshwright {
namespace {

TEST(LiveToken, OneThatWasSaidNeverChanges) {
  EXPECT_TRUE(LiveToken().empty());
  EXPECT_TRUE(LiveToken("").empty());
  EXPECT_EQ(LiveToken().Now(), "");
  EXPECT_FALSE(LiveToken("a").empty());
  EXPECT_EQ(LiveToken("a").Now(), "a");
}

TEST(LiveToken, OneInAFileIsReadAnewEveryTwoSeconds) {
  const TempDir dir = TempDir::Make().value();
  const std::string path = dir.File("token");
  FakeClock clock;
  EXPECT_FALSE(LiveToken::InFile(path, clock).has_value());
  const auto write = [&path](const char* text, mode_t mode) {
    ASSERT_TRUE(WriteFileAtomic(path, text, mode).ok());
  };
  write("\n", 0600);
  EXPECT_EQ(LiveToken::InFile(path, clock).error().code(), StatusCode::kInvalidArgument);
  write("one\n", 0600);
  const LiveToken token = LiveToken::InFile(path, clock).value();
  const LiveToken copy = token;
  EXPECT_EQ(token.Now(), "one");
  write("two\n", 0600);
  EXPECT_EQ(token.Now(), "one");
  clock.AdvanceMs(LiveToken::kLookMs);
  EXPECT_EQ(copy.Now(), "two");
  EXPECT_EQ(token.Now(), "two");
  // What is no token changes nothing: one that others can read, an empty file, none.
  write("three\n", 0644);
  clock.AdvanceMs(LiveToken::kLookMs);
  EXPECT_EQ(token.Now(), "two");
  write("", 0600);
  clock.AdvanceMs(LiveToken::kLookMs);
  EXPECT_EQ(token.Now(), "two");
  ASSERT_TRUE(RemoveAll(path).ok());
  clock.AdvanceMs(LiveToken::kLookMs);
  EXPECT_EQ(token.Now(), "two");
  write("four\n", 0600);
  clock.AdvanceMs(LiveToken::kLookMs);
  EXPECT_EQ(token.Now(), "four");
}

}  // namespace
}  // namespace meshwright
