#include "cli/predict_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PredictLines, AreTheTextsOfAFile) {
  const TempDir dir = TempDir::Make().value();
  const std::string path = dir.File("asked.jsonl");
  ASSERT_TRUE(WriteFileAtomic(path, "{\"text\":\"ab\",\"label\":1}\n\n{\"prompt\":\"c\"}").ok());
  const auto texts = TokensOfLines({path}, TextCodec::OfBytes());
  ASSERT_TRUE(texts.has_value()) << texts.error();
  EXPECT_THAT(*texts, ElementsAre(ElementsAre(97, 98), ElementsAre(99)));
}

TEST(PredictLines, WhatIsNoTextIsNamedWithItsLine) {
  const TempDir dir = TempDir::Make().value();
  const std::string path = dir.File("asked.jsonl");
  const auto why = [&](const std::string& line) {
    EXPECT_TRUE(WriteFileAtomic(path, "{\"text\":\"a\"}\n" + line).ok());
    const auto texts = TokensOfLines({path}, TextCodec::OfBytes());
    return texts.has_value() ? "none" : texts.error().message();
  };
  EXPECT_THAT(why("[1]"), HasSubstr("asked.jsonl: JSON at line 2: is no JSON object"));
  EXPECT_THAT(why("{\"label\":1}"), HasSubstr("line 2: has neither \"text\" nor \"prompt\""));
  EXPECT_THAT(why("{\"text\":\"\"}"), HasSubstr("line 2: \"text\" has no token"));
  ASSERT_TRUE(WriteFileAtomic(path, "\n").ok());
  EXPECT_THAT(TokensOfLines({path}, TextCodec::OfBytes()).error().message(),
              HasSubstr("has no text"));
}

TEST(PredictLines, PlainTextIsCutIntoWindowsOfTokens) {
  const TempDir dir = TempDir::Make().value();
  const std::string path = dir.File("held.txt");
  ASSERT_TRUE(WriteFileAtomic(path, "abcde").ok());
  const auto windows = WindowsOfTexts({path}, TextCodec::OfBytes(), 2);
  ASSERT_TRUE(windows.has_value()) << windows.error();
  EXPECT_THAT(*windows, ElementsAre(ElementsAre(97, 98), ElementsAre(99, 100), ElementsAre(101)));
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  EXPECT_THAT(WindowsOfTexts({path}, TextCodec::OfBytes(), 2).error().message(),
              HasSubstr("has no text"));
}

TEST(PredictLines, PlainTextIsToldByFormatOrNameAndBytesAreNone) {
  EXPECT_TRUE(IsPlainText({"a.txt"}, "", "uint16"));
  EXPECT_FALSE(IsPlainText({"a.txt"}, "", "bytes"));
  EXPECT_FALSE(IsPlainText({"a.txt", "b.bin"}, "", "uint16"));
  EXPECT_FALSE(IsPlainText({"a.txt"}, "uint16", "uint16"));
  EXPECT_TRUE(IsPlainText({"a.bin"}, "text", "uint16"));
}

TEST(PredictLines, AreToldByFormatOrName) {
  EXPECT_TRUE(*AreLinesOfTexts({"a.jsonl"}, ""));
  EXPECT_TRUE(*AreLinesOfTexts({"a"}, "jsonl"));
  EXPECT_FALSE(*AreLinesOfTexts({"a.jsonl"}, "bytes"));
  EXPECT_FALSE(*AreLinesOfTexts({"a.npy"}, ""));
  EXPECT_FALSE(AreLinesOfTexts({"a.npy", "b.jsonl"}, "").has_value());
}

}  // namespace
}  // namespace meshwright::cli
