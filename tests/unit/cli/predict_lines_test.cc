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

TEST(PredictLines, AreToldByFormatOrName) {
  EXPECT_TRUE(*AreLinesOfTexts({"a.jsonl"}, ""));
  EXPECT_TRUE(*AreLinesOfTexts({"a"}, "jsonl"));
  EXPECT_FALSE(*AreLinesOfTexts({"a.jsonl"}, "bytes"));
  EXPECT_FALSE(*AreLinesOfTexts({"a.npy"}, ""));
  EXPECT_FALSE(AreLinesOfTexts({"a.npy", "b.jsonl"}, "").has_value());
}

}  // namespace
}  // namespace meshwright::cli
