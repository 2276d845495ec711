#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace meshwright {
namespace {

TEST(Utf8, ACutNeverSplitsACharacter) {
  const std::string text = "aé€😀z";  // 1, 2, 3, 4 and 1 bytes
  const size_t ends[] = {0, 1, 3, 6, 10, 11};
  for (size_t limit = 0; limit <= text.size() + 1; ++limit) {
    const std::string_view cut = TruncateUtf8(text, limit);
    EXPECT_LE(cut.size(), limit);
    EXPECT_EQ(cut, text.substr(0, cut.size()));
    size_t best = 0;
    for (const size_t end : ends) best = end <= limit ? end : best;
    EXPECT_EQ(cut.size(), best) << limit;
  }
}

TEST(Utf8, WhatIsNoUtf8LosesAtMostThreeBytes) {
  const std::string bytes(100, '\x80');
  EXPECT_EQ(TruncateUtf8(bytes, 50).size(), 47u);
  EXPECT_EQ(TruncateUtf8(bytes, 2).size(), 0u);
  EXPECT_EQ(TruncateUtf8(bytes, 100), bytes);
}

TEST(Utf8, KnowsTheLengthOfACharacter) {
  EXPECT_EQ(Utf8Length("a"), 1u);
  EXPECT_EQ(Utf8Length("é"), 2u);
  EXPECT_EQ(Utf8Length("€€"), 3u);
  EXPECT_EQ(Utf8Length("😀"), 4u);
  for (const char* bad : {"\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
    EXPECT_EQ(Utf8Length(bad), 0u);
  }
}

TEST(AsUtf8, KeepsCharactersAndReplacesWhatBelongsToNone) {
  EXPECT_EQ(AsUtf8("caf\xc3\xa9", 10), "caf\xc3\xa9");
  EXPECT_EQ(AsUtf8("a\xff\xc3z\xe2\x82", 10), "a??z??");
  EXPECT_EQ(AsUtf8("caf\xc3\xa9", 4), "caf");
  EXPECT_EQ(AsUtf8("", 4), "");
}

TEST(Utf8, WhatATerminalWouldObeyIsEscaped) {
  for (const char* plain : {"", "job 7", "größe €😀", "\\x1b"}) {
    EXPECT_TRUE(IsPrintable(plain)) << plain;
    EXPECT_EQ(Printable(plain), plain);
  }
  const std::pair<const char*, const char*> cases[] = {{"a\x1b[2Jb", "a\\x1b[2Jb"},
                                                       {"a\nb\r\t", "a\\x0ab\\x0d\\x09"},
                                                       {"\x7f", "\\x7f"},
                                                       {"\xC2\x9B"
                                                        "31m",
                                                        "\\u009b31m"},
                                                       {"a\xE2\x80\xAE"
                                                        "b",
                                                        "a\\u202eb"},
                                                       {"\xE2\x80\xA8", "\\u2028"},
                                                       {"bad \xff", "bad \\xff"}};
  for (const auto& [text, shown] : cases) {
    EXPECT_FALSE(IsPrintable(text)) << shown;
    EXPECT_EQ(Printable(text), shown);
    EXPECT_TRUE(IsPrintable(Printable(text)));
  }
}

}  // namespace
}  // namespace meshwright
