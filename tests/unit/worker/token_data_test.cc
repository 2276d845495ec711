#include "worker/token_data.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <set>

namespace meshwright::worker {
namespace {

using testing::HasSubstr;

class TokenDataTest : public testing::Test {
 protected:
  std::string File(const std::string& bytes) {
    const std::string path = dir_.File(std::to_string(files_++));
    EXPECT_TRUE(WriteFileAtomic(path, bytes).ok());
    return path;
  }
  template <typename T>
  std::string TokenFile(const std::vector<T>& tokens) {
    return File(
        std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T)));
  }
  // 0, 1, 2, ...
  std::string Counting(int64_t tokens) {
    std::vector<uint32_t> values(static_cast<size_t>(tokens));
    std::iota(values.begin(), values.end(), 0u);
    return TokenFile(values);
  }
  static std::vector<int32_t> Row(TokenData& data, int64_t sample, size_t length,
                                  const char* source = "tokens") {
    std::vector<int32_t> row(length);
    const Status status = data.ReadSample(source, sample, row);
    EXPECT_TRUE(status.ok()) << status;
    return row;
  }
  static std::string Error(const Result<std::unique_ptr<TokenData>>& data, StatusCode code) {
    EXPECT_FALSE(data.has_value());
    if (data.has_value()) return "";
    EXPECT_EQ(data.error().code(), code);
    return data.error().message();
  }

  TempDir dir_ = *TempDir::Make();
  int files_ = 0;
};

TEST_F(TokenDataTest, EveryWindowComesOncePerEpochInAnotherOrder) {
  for (int64_t tokens : {11, 57, 1000, 4099}) {
    auto data = TokenData::Open({Counting(tokens)}, "uint32", 10, 0, 5, 1 << 20);
    ASSERT_TRUE(data.has_value()) << data.error();
    const int64_t windows = (*data)->training_windows();
    ASSERT_EQ(windows, (tokens - 1) / 10);
    std::vector<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> starts;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < windows; ++i) {
        const std::vector<int32_t> row = Row(**data, epoch * windows + i, 11);
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

RC_GTEST_PROP(PermutedIndex, IsAPermutation, ()) {
  const auto size = *rc::gen::inRange<int64_t>(1, 700);
  const auto key = *rc::gen::arbitrary<uint64_t>();
  std::vector<bool> seen(static_cast<size_t>(size), false);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = PermutedIndex(i, size, key);
    RC_ASSERT(at >= 0 && at < size);
    RC_ASSERT(!seen[static_cast<size_t>(at)]);
    seen[static_cast<size_t>(at)] = true;
  }
}

TEST_F(TokenDataTest, RowsAreAFunctionOfSeedAndSample) {
  const std::string path = Counting(5000);
  auto a = TokenData::Open({path}, "uint32", 16, 0.1, 1, 1 << 20);
  auto b = TokenData::Open({path}, "uint32", 16, 0.1, 1, 1 << 20);
  auto c = TokenData::Open({path}, "uint32", 16, 0.1, 2, 1 << 20);
  int same = 0;
  for (int64_t n : {0, 1, 7, 500, 3, 123456}) {
    const auto row = Row(**a, n, 17);
    EXPECT_EQ(row, Row(**b, n, 17));
    EXPECT_EQ(row, Row(**a, n, 17));
    same += row == Row(**c, n, 17) ? 1 : 0;
  }
  EXPECT_LT(same, 3);
}

TEST_F(TokenDataTest, TheTailIsValidatedInOrderAndNeverTrainedOn) {
  auto data = TokenData::Open({Counting(1000)}, "uint32", 10, 0.25, 3, 1 << 20);
  ASSERT_TRUE(data.has_value()) << data.error();
  EXPECT_EQ((*data)->training_tokens(), 750);
  EXPECT_EQ((*data)->validation_windows(), 24);
  for (int64_t n = 0; n < 24; ++n) {
    EXPECT_EQ(Row(**data, n, 11, "validation")[0], 750 + n * 10);
    EXPECT_EQ(Row(**data, n + 24, 11, "validation")[0], 750 + n * 10);
  }
  for (int64_t n = 0; n < 4 * (*data)->training_windows(); ++n) {
    EXPECT_LT(Row(**data, n, 11).back(), 750);
  }
}

TEST_F(TokenDataTest, FormatsDecodeLittleEndianTokens) {
  auto bytes = TokenData::Open({File("h\xC3\xA9llo")}, "bytes", 5, 0, 0, 256);
  ASSERT_TRUE(bytes.has_value()) << bytes.error();
  EXPECT_THAT(Row(**bytes, 0, 6), testing::ElementsAre('h', 0xC3, 0xA9, 'l', 'l', 'o'));
  auto words =
      TokenData::Open({File(std::string("\x01\x00\x34\x12\xff\xff", 6))}, "uint16", 2, 0, 0, 65536);
  ASSERT_TRUE(words.has_value()) << words.error();
  EXPECT_THAT(Row(**words, 0, 3), testing::ElementsAre(1, 0x1234, 65535));
  auto wide = TokenData::Open({TokenFile<uint32_t>({7, 100000})}, "uint32", 1, 0, 0, 200000);
  ASSERT_TRUE(wide.has_value()) << wide.error();
  EXPECT_THAT(Row(**wide, 0, 2), testing::ElementsAre(7, 100000));
}

TEST_F(TokenDataTest, OpenSaysWhatIsWrongWithAFile) {
  EXPECT_THAT(
      Error(TokenData::Open({File("")}, "bytes", 4, 0, 0, 256), StatusCode::kInvalidArgument),
      HasSubstr("is empty"));
  EXPECT_THAT(
      Error(TokenData::Open({File("abc")}, "uint16", 1, 0, 0, 256), StatusCode::kInvalidArgument),
      HasSubstr("truncated: 3 bytes are no whole number of 2-byte tokens"));
  EXPECT_THAT(
      Error(TokenData::Open({Counting(9)}, "uint32", 9, 0, 0, 256), StatusCode::kInvalidArgument),
      HasSubstr("9 tokens, 9 of them for training, but a row needs 10"));
  EXPECT_THAT(Error(TokenData::Open({Counting(10)}, "uint32", 9, 0.5, 0, 256),
                    StatusCode::kInvalidArgument),
              HasSubstr("10 tokens, 5 of them for training, but a row needs 10"));
  EXPECT_THAT(Error(TokenData::Open({File("plain text \xff end of text")}, "bytes", 4, 0, 0, 256),
                    StatusCode::kInvalidArgument),
              HasSubstr("byte offset 11 (0xff)"));
  EXPECT_THAT(
      Error(TokenData::Open({File("abcdef")}, "utf8", 4, 0, 0, 256), StatusCode::kInvalidArgument),
      HasSubstr("unknown format 'utf8'; known: bytes, uint16, uint32"));
  EXPECT_THAT(
      Error(TokenData::Open({dir_.File("none")}, "bytes", 4, 0, 0, 256), StatusCode::kNotFound),
      HasSubstr("none"));
  EXPECT_THAT(Error(TokenData::Open({File("abcdef")}, "bytes", 4, 1.5, 0, 256),
                    StatusCode::kInvalidArgument),
              HasSubstr("validation fraction 1.5"));
}

TEST_F(TokenDataTest, MessagesNameTheFileOfTheUser) {
  const std::string path = File("abc");
  const std::string text = Error(TokenData::Open({path, "books/one.txt"}, "uint16", 1, 0, 0, 256),
                                 StatusCode::kInvalidArgument);
  EXPECT_THAT(text, HasSubstr("books/one.txt"));
  EXPECT_THAT(text, testing::Not(HasSubstr(path)));
}

TEST_F(TokenDataTest, ReadNamesTokensOutsideTheVocabulary) {
  auto data = TokenData::Open({TokenFile<uint16_t>({1, 2, 3, 900, 5})}, "uint16", 4, 0, 0, 500);
  ASSERT_TRUE(data.has_value()) << data.error();
  std::vector<int32_t> row(5);
  const Status status = (*data)->ReadSample("tokens", 0, row);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("token 900 at position 3 is outside the vocabulary of 500"));
}

TEST_F(TokenDataTest, ReadRefusesUnknownSourcesLengthsAndEmptyTails) {
  auto data = TokenData::Open({Counting(50)}, "uint32", 4, 0.05, 0, 100);
  ASSERT_TRUE(data.has_value()) << data.error();
  std::vector<int32_t> row(5);
  EXPECT_THAT((*data)->ReadSample("images", 0, row).message(),
              HasSubstr("unknown feed source 'images'"));
  EXPECT_EQ((*data)->ReadSample("tokens", -1, row).code(), StatusCode::kInvalidArgument);
  const Status tail = (*data)->ReadSample("validation", 0, row);
  EXPECT_EQ(tail.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(tail.message(), HasSubstr("2 validation tokens, but a row needs 5"));
  row.resize(7);
  EXPECT_THAT((*data)->ReadSample("tokens", 0, row).message(),
              HasSubstr("a row of 7 tokens; rows of 5"));
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
}  // namespace meshwright::worker
