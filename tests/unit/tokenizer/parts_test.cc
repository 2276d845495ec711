// Parts whose edges no golden file reaches.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tokenizer/bpe_trainer.h"
#include "tokenizer/decoder.h"
#include "tokenizer/regex.h"
#include "tokenizer/text_stream.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/word_cache.h"

namespace meshwright::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> MatchesOf(const std::string& pattern, const std::string& text) {
  std::vector<Match> matches;
  const Regex regex = Regex::Compile(pattern).value();
  EXPECT_TRUE(regex.FindAll(text, matches).ok());
  std::vector<std::string> parts;
  for (const Match& match : matches) {
    const std::string part = text.substr(match.span.begin, match.span.end - match.span.begin);
    parts.push_back(match.matched ? part : "-" + part);
  }
  return parts;
}

TEST(Regex, GivesMatchesAndWhatLiesBetween) {
  EXPECT_THAT(MatchesOf("b+", "abbcb"), ElementsAre("-a", "bb", "-c", "b"));
  EXPECT_THAT(MatchesOf("x*", "ab"), ElementsAre("", "-a", "", "-b", ""));
  EXPECT_THAT(MatchesOf("x", ""), IsEmpty());
}

TEST(Regex, IsOnigurumas) {
  EXPECT_THAT(MatchesOf(R"(\s+)", "a \u180e\u3000b"),
              ElementsAre("-a", " ", "-\u180e", "\u3000", "-b"));
  EXPECT_THAT(MatchesOf("[a[bc]d]+", "xabcdx"), ElementsAre("-x", "abcd", "-x"));
  EXPECT_THAT(MatchesOf("^b$", "a\nb\nc"), ElementsAre("-a\n", "b", "-\nc"));
  EXPECT_THAT(MatchesOf("(?m:a.b)", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(MatchesOf(R"([\S]+)", "a\u00a0b"), ElementsAre("a", "-\u00a0", "b"));
  EXPECT_THAT(MatchesOf(R"(\h+)", "xffz"), ElementsAre("-x", "ff", "-z"));
  EXPECT_THAT(MatchesOf(R"(\u0041)", "BA"), ElementsAre("-B", "A"));
  // Letters of Unicode 15 and 16, which PCRE2 10.42 does not know.
  EXPECT_THAT(MatchesOf(R"(\p{L}+)", "a\u1c89\U00031350!"), ElementsAre("a\u1c89\U00031350", "-!"));
  EXPECT_THAT(MatchesOf(R"([^\p{L}]+)", "a\u1c89!"), ElementsAre("-a\u1c89", "!"));
}

TEST(Regex, RefusesWhatHasNoEqual) {
  EXPECT_THAT(Regex::Compile("[a&&b]").error().message(), HasSubstr("'&&' at byte 2"));
  EXPECT_THAT(Regex::Compile("[a[^b]]").error().message(), HasSubstr("a complement within a set"));
  EXPECT_THAT(Regex::Compile("[a").error().message(), HasSubstr("a set without an end"));
  EXPECT_THAT(Regex::Compile("a(").error().message(), HasSubstr("the pattern 'a('"));
}

std::string Decoded(const Decoders& decoders, const std::vector<std::string>& tokens) {
  DecodeRun run(decoders, {});
  for (const std::string& token : tokens) run.Put(token);
  run.End();
  return run.Take();
}

TEST(Decoder, StripsBothEndsOfEachTokenOrOfAll) {
  EXPECT_EQ(Decoded({StripDecoder("e", 1, 2)}, {"eeaeee", "e", "ee", "abe"}), "eaeab");
  EXPECT_EQ(Decoded({FuseDecoder(), StripDecoder("e", 1, 2)}, {"e", "ea", "e", "e", "e"}), "eae");
  EXPECT_EQ(Decoded({FuseDecoder(), StripDecoder("e", 1, 2)}, {"a", "e", "b"}), "aeb");
}

TEST(Decoder, SaysBytesThatAreNoTextOneByOne) {
  const Decoders decoders = {ByteFallbackDecoder({})};
  EXPECT_EQ(Decoded(decoders, {"<0xE2>", "<0x82>", "<0xAC>", "a"}), "\u20aca");
  EXPECT_EQ(Decoded(decoders, {"<0x61>", "<0xE2>", "<0x82>", "a"}), "\ufffd\ufffd\ufffda");
  EXPECT_EQ(Decoded(decoders, {"<0xG1>", "<0x6>", "<0x611>"}), "<0xG1><0x6><0x611>");
}

TEST(Unicode, FindsWhatIsNotUtf8) {
  for (const char* text :
       {"a\xc0\x80", "a\xed\xa0\x80", "a\xf5\x80\x80\x80", "a\xe2\x82", "a\x80"}) {
    EXPECT_EQ(FindInvalidUtf8(text), 1u) << text;
  }
  EXPECT_EQ(FindInvalidUtf8("a\u00e9\u20ac\U0001F600"), 10u);
  EXPECT_EQ(Utf8Lossy("a\xe2\x82z\xf0\x9f\xff"), "a\ufffdz\ufffd\ufffd");
  EXPECT_EQ(IncompleteTail("a\xf0\x9f\x98"), 3u);
  EXPECT_EQ(IncompleteTail("a\xe2\x28"), 0u);
}

TEST(WordCache, KeepsWordsOfModelsApart) {
  WordCache& cache = WordCache::OfThread();
  const uint64_t one = WordCache::NewOwner();
  const uint64_t other = WordCache::NewOwner();
  const std::vector<uint32_t> ids = {7, 8};
  cache.Put(one, "word", HashText("word"), ids);
  EXPECT_THAT(cache.Find(one, "word", HashText("word")), ElementsAre(7, 8));
  EXPECT_THAT(cache.Find(other, "word", HashText("word")), IsEmpty());
  const std::string longer(WordCache::kMaxBytes + 1, 'x');
  cache.Put(one, longer, HashText(longer), ids);
  EXPECT_THAT(cache.Find(one, longer, HashText(longer)), IsEmpty());
}

BpeTrainer TrainerFor(int64_t vocabulary) {
  BpeTrainerOptions options;
  options.vocabulary = vocabulary;
  return BpeTrainer::Make(options).value();
}

TEST(BpeTrainer, MakesTokensOfTheMostFrequentPairs) {
  BpeTrainer trainer = TrainerFor(260);
  ASSERT_TRUE(trainer.Feed("low low low lower lower newest newest").ok());
  const auto file = nlohmann::json::parse(trainer.Train());
  // "lo" and "ow" are equally frequent; l has the lower id. With the space it is four times there.
  EXPECT_EQ(file["model"]["merges"],
            nlohmann::json::parse(R"([["l","o"],["lo","w"],["\u0120","low"]])"));
  EXPECT_EQ(file["model"]["vocab"].size(), 260u);
  const Tokenizer tokenizer = Tokenizer::FromJson(file.dump()).value();
  EXPECT_THAT(tokenizer.Encode("low low").value(), ElementsAre(258, 259));
  EXPECT_THAT(tokenizer.Encode("<|endoftext|>").value(), ElementsAre(0));
}

TEST(BpeTrainer, DoesNotAskForTheOrderOfTexts) {
  BpeTrainer forth = TrainerFor(300);
  BpeTrainer back = TrainerFor(300);
  const std::vector<std::string> texts = {"the cat the hat", "a cat's hat that sat",
                                          "caf\u00e9 12"};
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_TRUE(forth.Feed(texts[i]).ok());
    ASSERT_TRUE(back.Feed(texts[texts.size() - 1 - i]).ok());
  }
  EXPECT_EQ(forth.Train(), back.Train());
}

TEST(BpeTrainer, RefusesWhatItCannotLearnFrom) {
  EXPECT_THAT(BpeTrainer::Make({.vocabulary = 256}).error().message(), HasSubstr("at least 257"));
  EXPECT_THAT(BpeTrainer::Make({.special_tokens = {"a", "a"}}).error().message(),
              HasSubstr("'a' is empty, twice"));
  EXPECT_THAT(TrainerFor(300).Feed("a\xff").message(), HasSubstr("at byte 1"));
}

}  // namespace
}  // namespace meshwright::tokenizer
