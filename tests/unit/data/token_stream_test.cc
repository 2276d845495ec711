#include <rapidcheck/gtest.h>

#include <set>

#include "data/check_contents.h"
#include "tests/unit/data/data_files.h"

namespace meshwright::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenStreamTest : public DataFilesTest {};

TEST_F(TokenStreamTest, EveryWindowComesOncePerEpochInAnotherOrder) {
  for (int64_t tokens : {11, 57, 1000, 4099}) {
    auto source = Open(Describe("uint32", {WriteCounting("a", tokens)}), {10, 5, 1 << 20});
    ASSERT_TRUE(source);
    const int64_t windows = source->Find("tokens")->counts().training_samples;
    ASSERT_EQ(windows, (tokens - 1) / 10);
    std::vector<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> starts;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < windows; ++i) {
        const std::vector<int32_t> row = Window(*source, epoch * windows + i, 11);
        for (size_t t = 1; t < row.size(); ++t) ASSERT_EQ(row[t], row[0] + static_cast<int32_t>(t));
        starts.insert(row[0]);
        order.push_back(row[0] / 10);
      }
      ASSERT_EQ(static_cast<int64_t>(starts.size()), windows);
      // One shift for all windows of the epoch, inside the file.
      EXPECT_EQ(*starts.rbegin() - *starts.begin(), (windows - 1) * 10);
      EXPECT_LE(*starts.rbegin() + 11, tokens);
      orders.push_back(order);
    }
    if (windows > 8) {
      EXPECT_NE(orders[0], orders[1]);
      EXPECT_NE(orders[1], orders[2]);
      EXPECT_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
    }
  }
}

TEST_F(TokenStreamTest, RowsAreAFunctionOfSeedAndSample) {
  const auto stream = Describe("uint32", {WriteCounting("a", 5000)}, 0.1);
  auto a = Open(stream, {16, 1, 0});
  auto b = Open(stream, {16, 1, 0});
  auto c = Open(stream, {16, 2, 0});
  int same = 0;
  for (int64_t n : {0, 1, 7, 500, 3, 123456}) {
    const auto row = Window(*a, n, 17);
    EXPECT_EQ(row, Window(*b, n, 17));
    EXPECT_EQ(row, Window(*a, n, 17));
    same += row == Window(*c, n, 17) ? 1 : 0;
  }
  EXPECT_LT(same, 3);
}

TEST_F(TokenStreamTest, TheTailIsValidatedInOrderAndNeverTrainedOn) {
  auto source = Open(Describe("uint32", {WriteCounting("a", 1000)}, 0.25), {10, 3, 0});
  const StreamCounts counts = source->Find("tokens")->counts();
  EXPECT_EQ(counts, (StreamCounts{1000, 750, 250, 74, 24}));
  for (int64_t n = 0; n < 24; ++n) {
    EXPECT_EQ(Window(*source, n, 11, "validation:tokens")[0], 750 + n * 10);
    EXPECT_EQ(Window(*source, n + 24, 11, "validation:tokens/window")[0], 750 + n * 10);
  }
  for (int64_t n = 0; n < 4 * counts.training_samples; ++n) {
    EXPECT_LT(Window(*source, n, 11).back(), 750);
  }
}

TEST_F(TokenStreamTest, ValidationFilesAreReadInOrderAndLeaveAllElseForTraining) {
  auto source =
      Open(Describe("uint32", {WriteCounting("train", 101)}, 0.5,
                    {WriteCounting("held/1", 21, 1000), WriteCounting("held/2", 10, 2000)}),
           {10, 3, 0});
  EXPECT_EQ(source->Find("tokens")->counts(), (StreamCounts{101, 101, 31, 10, 3}));
  EXPECT_EQ(Window(*source, 1, 11, "validation:tokens")[0], 1010);
  EXPECT_THAT(Window(*source, 2, 11, "validation:tokens"),
              ElementsAre(1020, 2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 2008, 2009));
  EXPECT_EQ(Window(*source, 3, 11, "validation:tokens")[0], 1000);
  for (int64_t n = 0; n < 20; ++n) EXPECT_LE(Window(*source, n, 11).back(), 100);
}

// The same tokens in one file and cut anywhere into many are the same data.
RC_GTEST_FIXTURE_PROP(TokenStreamTest, FilesAreAsIfTheyWereOne, ()) {
  const auto tokens = *rc::gen::inRange<int64_t>(40, 200);
  const auto one = Open(Describe("uint32", {WriteCounting("one", tokens)}, 0.2), {6, 9, 0});
  std::vector<std::string> paths;
  int64_t at = 0;
  while (at < tokens) {
    const int64_t count = std::min(tokens - at, *rc::gen::inRange<int64_t>(1, 30));
    paths.push_back(
        WriteCounting(fmt::format("part-{}", paths.size()), count, static_cast<uint32_t>(at)));
    at += count;
  }
  const auto many = Open(Describe("uint32", paths, 0.2), {6, 9, 0});
  RC_ASSERT(one->Find("tokens")->counts() == many->Find("tokens")->counts());
  for (int64_t n = 0; n < 60; ++n) {
    RC_ASSERT(Window(*one, n, 7) == Window(*many, n, 7));
    RC_ASSERT(Window(*one, n, 7, "validation:tokens") == Window(*many, n, 7, "validation:tokens"));
  }
}

TEST_F(TokenStreamTest, FormatsDecodeLittleEndianTokens) {
  auto bytes = Open(Describe("bytes", {Write("a", "h\xC3\xA9llo")}), {5, 0, 256});
  EXPECT_THAT(Window(*bytes, 0, 6), ElementsAre('h', 0xC3, 0xA9, 'l', 'l', 'o'));
  auto words = Open(Describe("uint16", {Write("b", std::string("\x01\x00\x34\x12\xff\xff", 6))}),
                    {2, 0, 65536});
  EXPECT_THAT(Window(*words, 0, 3), ElementsAre(1, 0x1234, 65535));
  auto wide = Open(Describe("uint32", {WriteTokens<uint32_t>("c", {7, 100000})}), {1, 0, 200000});
  EXPECT_THAT(Window(*wide, 0, 2), ElementsAre(7, 100000));
}

// Protocol and client programs of before: one blob, no streams.
TEST_F(TokenStreamTest, OneBlobIsTheStreamTokens) {
  ir::DataSpec spec;
  spec.blob = {"", 6, WriteTokens<uint16_t>("a", {3, 4, 5})};
  spec.format = "uint16";
  spec.validation_fraction = 0;
  auto source = Source::Open(spec, {2, 0, 0}, OpenLocal);
  ASSERT_TRUE(source.has_value()) << source.error();
  EXPECT_THAT(Window(**source, 0, 3), ElementsAre(3, 4, 5));
  spec.format = "utf8";
  const auto bad = Source::Open(spec, {2, 0, 0}, OpenLocal);
  ASSERT_FALSE(bad.has_value());
  EXPECT_THAT(bad.error().message(), HasSubstr("'utf8'; known: bytes, uint16, uint32"));
}

TEST_F(TokenStreamTest, OpenSaysWhatIsWrongWithAFile) {
  const auto fails = [&](const std::string& format, const std::string& path, int64_t sequence,
                         double fraction = 0) {
    return OpenFails(Describe(format, {path}, fraction), {sequence, 0, 256});
  };
  EXPECT_THAT(fails("bytes", Write("empty", ""), 4), AllOf(HasSubstr("empty is empty")));
  EXPECT_THAT(fails("uint16", Write("odd", "abc"), 1),
              HasSubstr("truncated: 3 bytes are no whole number of 2-byte tokens"));
  EXPECT_THAT(fails("uint32", WriteCounting("short", 9), 9),
              HasSubstr("9 tokens, 9 of them for training, but a row needs 10"));
  EXPECT_THAT(fails("uint32", WriteCounting("short", 10), 9, 0.5),
              HasSubstr("10 tokens, 5 of them for training, but a row needs 10"));
}

TEST_F(TokenStreamTest, ReadNamesTokensOutsideTheVocabulary) {
  const std::string first = WriteTokens<uint16_t>("first", {1, 2});
  auto source =
      Open(Describe("uint16", {first, WriteTokens<uint16_t>("b", {3, 900, 5})}), {4, 0, 500});
  EXPECT_THAT(ReadFails(*source, "tokens", 0, 20, ir::DType::kI32, StatusCode::kInvalidArgument),
              HasSubstr("token 900 at position 1 of " + dir_.File("b") +
                        " is outside the vocabulary of 500"));
  auto large = Open(Describe("uint32", {WriteTokens<uint32_t>("c", {1, 0x90000000})}), {1, 0, 0});
  EXPECT_THAT(ReadFails(*large, "tokens", 0, 8, ir::DType::kI32, StatusCode::kInvalidArgument),
              AllOf(HasSubstr("does not fit i32"), HasSubstr("position 1 of " + dir_.File("c"))));
}

TEST_F(TokenStreamTest, ReadRefusesUnknownFeedsOtherRowsAndEmptyTails) {
  auto source = Open(Describe("uint32", {WriteCounting("a", 50)}, 0.05), {4, 0, 100});
  const auto fails = [&](const char* feed, int64_t sample, size_t bytes, ir::DType dtype,
                         StatusCode code = StatusCode::kInvalidArgument) {
    return ReadFails(*source, feed, sample, bytes, dtype, code);
  };
  EXPECT_THAT(fails("images", 0, 20, ir::DType::kI32), HasSubstr("known streams: tokens"));
  EXPECT_THAT(fails("tokens/image", 0, 20, ir::DType::kI32), HasSubstr("known: window"));
  EXPECT_THAT(fails("tokens", -1, 20, ir::DType::kI32), HasSubstr("sample -1"));
  EXPECT_THAT(fails("tokens", 0, 28, ir::DType::kI32), HasSubstr("a row of 28 bytes of i32"));
  EXPECT_THAT(fails("tokens", 0, 20, ir::DType::kF32), HasSubstr("of f32"));
  EXPECT_THAT(fails("validation:tokens", 0, 20, ir::DType::kI32, StatusCode::kFailedPrecondition),
              HasSubstr("2 tokens to validate with, but a row needs 5; raise validation_fraction"));
}

// ---- What a client finds before it asks a cluster ----

TEST_F(TokenStreamTest, ContentsAreCheckedForTextAndVocabulary) {
  const auto check = [&](const std::string& format, const std::vector<std::string>& paths,
                         int64_t vocabulary) {
    const bool text = format == "bytes";
    return CheckContents(Describe(format, paths), {4, vocabulary, text}).message();
  };
  const std::string good = Write("good", "plain text");
  EXPECT_EQ(check("bytes", {good}, 256), "");
  EXPECT_THAT(check("bytes", {good, Write("bad", "plain text \xff end of text")}, 256),
              AllOf(HasSubstr(dir_.File("bad")), HasSubstr("byte offset 11 (0xff)")));
  EXPECT_THAT(check("bytes", {Write("cut", "text caf\xc3")}, 256), HasSubstr("byte offset 8"));
  const std::string tokens = WriteTokens<uint16_t>("t", {1, 2, 3, 4, 900});
  EXPECT_EQ(check("uint16", {tokens}, 901), "");
  EXPECT_EQ(check("uint16", {tokens}, 0), "");
  EXPECT_THAT(check("uint16", {tokens}, 900), HasSubstr("token 900 at position 4"));
  EXPECT_THAT(check("bytes", {good}, 100), HasSubstr("outside the vocabulary of 100"));
  EXPECT_THAT(check("uint16", {WriteTokens<uint16_t>("s", {1, 2})}, 900), HasSubstr("too short"));
}

// Characters lie over the borders of the blocks that are checked; a bad byte is found beside them.
TEST_F(TokenStreamTest, TextIsCheckedOverTheBordersOfBlocks) {
  constexpr size_t kBlock = 1 << 20;
  for (size_t shift = 0; shift < 4; ++shift) {
    std::string text(shift, 'a');
    while (text.size() < 2 * kBlock + 100) text += "\xF0\x9F\x98\x80";
    const ContentRules rules{4, 256, true};
    EXPECT_EQ(CheckContents(Describe("bytes", {Write("t", text)}), rules).message(), "");
    for (const size_t at : {kBlock - 1, kBlock, kBlock + 1, kBlock + 2, kBlock + 3, 2 * kBlock}) {
      std::string bad = text;
      bad[at] = '\xff';
      EXPECT_THAT(CheckContents(Describe("bytes", {Write("b", bad)}), rules).message(),
                  HasSubstr("is not UTF-8"))
          << shift << " " << at;
      // Bytes that continue a character, where none begins.
      bad = std::string(text.size(), 'a');
      bad[at] = '\x80';
      EXPECT_THAT(CheckContents(Describe("bytes", {Write("b", bad)}), rules).message(),
                  HasSubstr(fmt::format("byte offset {} ", at)))
          << shift;
    }
  }
}

TEST_F(TokenStreamTest, LargeDataIsCheckedInBlocksOverTheWholeFile) {
  std::vector<uint16_t> tokens(4 << 20, 5);  // 8 blocks
  tokens.back() = 700;
  const auto stream = Describe("uint16", {WriteTokens("a", tokens)});
  const Status last = CheckContents(stream, {4, 600, false, 2 << 20});
  EXPECT_THAT(last.message(), HasSubstr("token 700 at position 4194303"));
}

TEST(FindInvalidUtf8, KnowsTheEdgesOfTheStandard) {
  const auto find = [](std::string_view text) { return FindInvalidUtf8(text); };
  EXPECT_EQ(find(""), -1);
  EXPECT_EQ(find("0123456789abcdefghijk"), -1);
  EXPECT_EQ(find("\xC2\x80 \xDF\xBF \xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xF0\x90\x80\x80 "
                 "\xF4\x8F\xBF\xBF"),
            -1);
  EXPECT_EQ(find("ab\xC0\x80"), 2);          // overlong
  EXPECT_EQ(find("ab\xE0\x9F\xBF"), 2);      // overlong
  EXPECT_EQ(find("ab\xF0\x8F\xBF\xBF"), 2);  // overlong
  EXPECT_EQ(find("\xED\xA0\x80"), 0);        // surrogate
  EXPECT_EQ(find("\xF4\x90\x80\x80"), 0);    // beyond U+10FFFF
  EXPECT_EQ(find("12345678901\x80"), 11);    // continuation without a lead
  EXPECT_EQ(find("text \xE2\x82"), 5);       // cut off at the end
  EXPECT_EQ(find("\xE2\x82-"), 0);           // cut off inside
}

}  // namespace
}  // namespace meshwright::data
