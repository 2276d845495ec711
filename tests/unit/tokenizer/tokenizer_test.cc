#include "tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "tokenizer/text_stream.h"

namespace meshwright::tokenizer {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<uint32_t>;

json Golden(const std::string& name) {
  const std::string path =
      std::string(MESHWRIGHT_SOURCE_DIR) + "/tests/unit/tokenizer/golden/" + name + ".json";
  return json::parse(ReadFile(path).value());
}

json TokenizerOf(const std::string& name) { return Golden(name)["tokenizer"]; }

Tokenizer Make(const json& file) { return Tokenizer::FromJson(file.dump()).value(); }

std::string ErrorOf(const json& file) {
  const Result<Tokenizer> made = Tokenizer::FromJson(file.dump());
  return made.has_value() ? "none" : made.error().message();
}

// Merges are the pair a, b; then ab, c.
json SmallBpe() {
  return {{"version", "1.0"},
          {"added_tokens", json::array()},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}}},
            {"merges", {"a b", json::array({"ab", "c"})}}}}};
}

TEST(Tokenizer, MergesByRankAndLeftmostFirst) {
  const Tokenizer tokenizer = Make(SmallBpe());
  EXPECT_THAT(tokenizer.Encode("abcab").value(), ElementsAre(4, 3));
  EXPECT_THAT(tokenizer.Encode("aabb").value(), ElementsAre(0, 3, 1));
  EXPECT_EQ(tokenizer.id_end(), 5u);
  EXPECT_EQ(tokenizer.TokenOf(3), "ab");
  EXPECT_EQ(tokenizer.TokenOf(5), std::nullopt);
  EXPECT_EQ(tokenizer.IdOf("abc"), 4u);
}

// Short words look at all pairs, long ones keep a heap; both merge the same.
TEST(Tokenizer, LongWordsAreMergedLikeShortOnes) {
  json file = SmallBpe();
  file["model"]["vocab"]["bc"] = 5;
  file["model"]["vocab"]["abab"] = 6;
  file["model"]["merges"] = {"b c", "a b", "ab ab", "ab c"};
  const Tokenizer tokenizer = Make(file);
  uint64_t state = 1;
  for (int round = 0; round < 200; ++round) {
    std::string word;
    for (int i = 0; i < 200; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      word += "abc"[(state >> 33) % 3];
    }
    // The definition: again and again the lowest rank, leftmost.
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    for (bool merged = true; merged;) {
      merged = false;
      for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
               {"b", "c"}, {"a", "b"}, {"ab", "ab"}, {"ab", "c"}}) {
        for (size_t i = 0; i + 1 < parts.size() && !merged; ++i) {
          if (parts[i] != left || parts[i + 1] != right) continue;
          parts[i] += right;
          parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          merged = true;
        }
        if (merged) break;
      }
    }
    Ids expected;
    for (const std::string& part : parts) expected.push_back(*tokenizer.IdOf(part));
    ASSERT_EQ(tokenizer.Encode(word).value(), expected) << word;
  }
}

TEST(Tokenizer, WhatItCannotExecuteIsRefusedByName) {
  json file = TokenizerOf("gpt2");
  EXPECT_THAT(Tokenizer::FromJson("{\n  \"a\": x\n}").error().message(), HasSubstr("line 2"));
  EXPECT_THAT(ErrorOf(json::array()), HasSubstr("is a list, not an object"));

  json bad = file;
  bad["pre_tokenizer"]["type"] = "ByteLevle";
  EXPECT_THAT(ErrorOf(bad),
              HasSubstr("pre_tokenizer: unknown pre-tokenizer 'ByteLevle' (did you mean "
                        "'ByteLevel'?)"));
  bad = file;
  bad["pre_tokenizer"]["add_prefix_space"] = "yes";
  EXPECT_THAT(ErrorOf(bad), HasSubstr("pre_tokenizer.add_prefix_space: is a text, not true"));
  bad = file;
  bad["normalizer"] = {{"type", "NFX"}};
  EXPECT_THAT(ErrorOf(bad), HasSubstr("normalizer: unknown normalizer 'NFX'"));
  bad = file;
  bad["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "Glue"}}}}};
  EXPECT_THAT(ErrorOf(bad), HasSubstr("decoder.decoders[0]: unknown decoder 'Glue'"));
  bad = file;
  bad["post_processor"] = {{"type", "Hat"}};
  EXPECT_THAT(ErrorOf(bad), HasSubstr("post_processor: unknown post-processor 'Hat'"));
  bad = file;
  bad["model"]["type"] = "GPE";
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model: unknown model 'GPE'"));
  bad = file;
  bad["model"]["dropout"] = 0.1;
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model.dropout: leaves merges out by chance"));
  bad["model"]["dropout"] = 0;
  EXPECT_EQ(ErrorOf(bad), "none");
  bad = file;
  bad["version"] = "2.0";
  EXPECT_THAT(ErrorOf(bad), HasSubstr("version is '2.0'"));
}

TEST(Tokenizer, WhatIsWrongInAVocabularyIsNamed) {
  json bad = SmallBpe();
  bad["model"]["merges"][0] = "a  b";
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model.merges[0]: 'a  b' is not two texts and one space"));
  bad["model"]["merges"][0] = "a z";
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model.merges[0]: 'z' is not in the vocabulary"));
  bad["model"]["merges"][0] = json::array({"a", "b", "c"});
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model.merges[0]: has 3 parts"));
  bad = SmallBpe();
  bad["model"]["vocab"]["b"] = -1;
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model.vocab: the id of 'b'"));
  bad["model"]["vocab"]["b"] = 4000000000u;
  EXPECT_THAT(ErrorOf(bad), HasSubstr("the id of 'b'"));
  bad = TokenizerOf("t5");
  bad["model"]["unk_id"] = 100000;
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model.unk_id: is 100000; there are"));
  bad = TokenizerOf("t5");
  bad["model"]["vocab"][7] = json::array({"x"});
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model.vocab[7]: is not a text and a score"));
  bad = TokenizerOf("t5");
  bad["normalizer"]["normalizers"][0]["precompiled_charsmap"] = "AAAA";
  EXPECT_THAT(ErrorOf(bad), HasSubstr("normalizer.normalizers[0]: precompiled_charsmap is no"));
  bad = TokenizerOf("llama2");
  bad["post_processor"]["special_tokens"].erase("<s>");
  EXPECT_THAT(ErrorOf(bad), HasSubstr("'<s>' is not among the special_tokens"));
  bad = TokenizerOf("tekken");
  bad["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "a(b";
  EXPECT_THAT(ErrorOf(bad), HasSubstr("pre_tokenizer.pretokenizers[0].pattern: the pattern 'a(b'"));
}

TEST(Tokenizer, TextsThatAreWrongAreNamed) {
  const Tokenizer tokenizer = Make(TokenizerOf("gpt2"));
  EXPECT_THAT(tokenizer.Encode("ab\xff").error().message(),
              HasSubstr("not UTF-8 at byte 2 (0xff)"));
  EXPECT_THAT(tokenizer.EncodePair("a", "\xe2\x82").error().message(), HasSubstr("at byte 0"));
  json file = TokenizerOf("bert");
  file["model"]["unk_token"] = "<none>";
  EXPECT_THAT(Make(file).Encode("\u2603").error().message(), HasSubstr("unknown token '<none>'"));
  json unigram = TokenizerOf("albert");
  unigram["model"].erase("unk_id");
  EXPECT_THAT(Make(unigram).Encode("\u2603").error().message(), HasSubstr("no token for"));
}

TEST(Tokenizer, IdsThatNoTokenHasArePassedOver) {
  const Tokenizer tokenizer = Make(TokenizerOf("gpt2"));
  const Ids ids = tokenizer.Encode("Hello").value();
  Ids more = ids;
  more.push_back(tokenizer.id_end());
  more.push_back(UINT32_MAX);
  EXPECT_EQ(tokenizer.Decode(more), "Hello");
}

TEST(Tokenizer, IsUsedByManyThreadsAtOnce) {
  const std::vector<Tokenizer> tokenizers = {Make(TokenizerOf("gpt2")), Make(TokenizerOf("t5")),
                                             Make(TokenizerOf("bert"))};
  const std::string text = "It's what they'll have said of the 12 caf\u00e9s, wasn't it?";
  std::vector<Ids> expected;
  for (const Tokenizer& tokenizer : tokenizers) expected.push_back(tokenizer.Encode(text).value());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 60; ++i) {
        const size_t at = (i + t) % tokenizers.size();
        wrong[t] += tokenizers[at].Encode(text).value() == expected[at] ? 0 : 1;
        wrong[t] += tokenizers[0].Decode(expected[0]) == text ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST(TextStream, HoldsBackWhatIsNotACharacterYet) {
  const Tokenizer tokenizer = Make(TokenizerOf("gpt2"));
  const Ids ids = tokenizer.Encode("a\U0001F600!").value();
  TextStream stream(tokenizer);
  std::vector<std::string> parts;
  for (const uint32_t id : ids) parts.push_back(stream.Put(id));
  parts.push_back(stream.End());
  EXPECT_THAT(parts, ElementsAre("a", "", "", "", "\U0001F600", "!", ""));
}

TEST(TextStream, EndsWithWhatWillNeverBeWhole) {
  const Tokenizer tokenizer = Make(TokenizerOf("gpt2"));
  Ids ids = tokenizer.Encode("a\U0001F600").value();
  ids.pop_back();
  TextStream stream(tokenizer);
  std::string text;
  for (const uint32_t id : ids) text += stream.Put(id);
  EXPECT_EQ(text, "a");
  EXPECT_EQ(stream.End(), "\ufffd");
  EXPECT_EQ(tokenizer.Decode(ids), "a\ufffd");
}

TEST(TextStream, ShowsByteTokensAsSoonAsACharacterIsWhole) {
  const Tokenizer tokenizer = Make(TokenizerOf("llama2"));
  const auto id = [&](const char* token) { return *tokenizer.IdOf(token); };
  TextStream stream(tokenizer);
  EXPECT_EQ(stream.Put(id("<0xE2>")), "");
  EXPECT_EQ(stream.Put(id("<0x82>")), "");
  EXPECT_EQ(stream.Put(id("<0xAC>")), "\u20ac");
  EXPECT_EQ(stream.Put(id("<0xFF>")), "\ufffd");
  EXPECT_EQ(stream.End(), "");
}

TEST(Tokenizer, LoadsTheFileOfAFolder) {
  const TempDir folder = TempDir::Make().value();
  EXPECT_THAT(Tokenizer::Load(folder.path()).error().message(),
              HasSubstr("neither a tokenizer.json nor a tokenizer.model"));
  ASSERT_TRUE(WriteFileAtomic(folder.File("vocab.txt"), "a\n").ok());
  EXPECT_THAT(Tokenizer::Load(folder.path()).error().message(), HasSubstr("from its vocab files"));
  EXPECT_EQ(Tokenizer::FileIn(folder.path()), "");
  ASSERT_TRUE(WriteFileAtomic(folder.File("spiece.model"), "no model").ok());
  EXPECT_EQ(Tokenizer::FileIn(folder.path()), folder.File("spiece.model"));
  ASSERT_TRUE(WriteFileAtomic(folder.File("tokenizer.json"), SmallBpe().dump()).ok());
  EXPECT_THAT(Tokenizer::Load(folder.path()).value().Encode("abc").value(), ElementsAre(4));
  ASSERT_TRUE(WriteFileAtomic(folder.File("x.bin"), "no model").ok());
  EXPECT_THAT(Tokenizer::Load(folder.File("x.bin")).error().message(),
              HasSubstr("is neither a tokenizer.json nor a tokenizer.model"));
  ASSERT_TRUE(WriteFileAtomic(folder.File("x.model"), "no model").ok());
  EXPECT_THAT(Tokenizer::Load(folder.File("x.model")).error().message(), HasSubstr("byte "));
  EXPECT_EQ(Tokenizer::Load(folder.File("none")).error().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace meshwright::tokenizer
