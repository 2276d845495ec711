// Every golden tokenizer (tools/hf-check) against what Hugging Face's library says of the same
// texts. Together they have every component that a tokenizer.json may name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tokenizer/text_stream.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::tokenizer {
namespace {

const std::string kFolder = std::string(MESHWRIGHT_SOURCE_DIR) + "/tests/unit/tokenizer/golden/";

nlohmann::json ReadJson(const std::string& name) {
  return nlohmann::json::parse(ReadFile(kFolder + name).value());
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().stem().string();
    if (name != "texts") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

using Ids = std::vector<uint32_t>;

std::string Streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  TextStream stream(tokenizer, skip_special);
  std::string text;
  for (const uint32_t id : ids) text += stream.Put(id);
  return text + stream.End();
}

class Goldens : public ::testing::TestWithParam<std::string> {
 protected:
  Goldens()
      : golden_(ReadJson(GetParam() + ".json")),
        tokenizer_(Tokenizer::FromJson(golden_["tokenizer"].dump()).value()) {}

  const nlohmann::json golden_;
  const Tokenizer tokenizer_;
};

TEST_P(Goldens, EncodeTexts) {
  const nlohmann::json texts = ReadJson("texts.json");
  ASSERT_EQ(golden_["cases"].size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const nlohmann::json& expected = golden_["cases"][i];
    EXPECT_EQ(tokenizer_.Encode(text).value(), expected["ids"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer_.Encode(text, {.special = false}).value(),
              expected[expected.contains("plain") ? "plain" : "ids"].get<Ids>())
        << text;
  }
}

TEST_P(Goldens, DecodeThem) {
  const nlohmann::json texts = ReadJson("texts.json");
  for (size_t i = 0; i < texts.size(); ++i) {
    const nlohmann::json& expected = golden_["cases"][i];
    const auto ids = expected["ids"].get<Ids>();
    const std::string text =
        (expected.contains("decoded") ? expected["decoded"] : texts[i]).get<std::string>();
    const std::string all = expected.value("decoded_all", text);
    EXPECT_EQ(tokenizer_.Decode(ids), text);
    EXPECT_EQ(tokenizer_.Decode(ids, false), all);
    EXPECT_EQ(Streamed(tokenizer_, ids, true), text);
    EXPECT_EQ(Streamed(tokenizer_, ids, false), all);
  }
}

TEST_P(Goldens, DecodeWhatNoTextGives) {
  for (const nlohmann::json& drawn : golden_["drawn"]) {
    EXPECT_EQ(tokenizer_.Decode(drawn["ids"].get<Ids>(), false),
              drawn["decoded"].get<std::string>());
  }
}

TEST_P(Goldens, EncodePairs) {
  const PairEncoding pair = tokenizer_.EncodePair("Hello, world!", "It's 12 a day").value();
  EXPECT_EQ(pair.ids, golden_["pair"]["ids"].get<Ids>());
  EXPECT_EQ(pair.types, golden_["pair"]["types"].get<Ids>());
}

INSTANTIATE_TEST_SUITE_P(All, Goldens, ::testing::ValuesIn(Names()),
                         [](const auto& test) { return test.param; });

// Adds the type of every object below `node`.
void CollectTypes(const nlohmann::json& node, std::set<std::string>& types) {
  if (node.is_object() && node.contains("type") && node["type"].is_string()) {
    types.insert(node["type"].get<std::string>());
  }
  for (const nlohmann::json& child : node) {
    if (child.is_structured()) CollectTypes(child, types);
  }
}

TEST(GoldenFiles, HaveEveryComponent) {
  std::map<std::string, std::set<std::string>> types;
  for (const std::string& name : Names()) {
    const nlohmann::json file = ReadJson(name + ".json");
    for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
      CollectTypes(file["tokenizer"][part], types[part]);
    }
    types["model"].insert(file["tokenizer"]["model"]["type"].get<std::string>());
  }
  using ::testing::UnorderedElementsAre;
  EXPECT_THAT(types["model"], UnorderedElementsAre("BPE", "Unigram", "WordLevel", "WordPiece"));
  EXPECT_THAT(types["normalizer"],
              UnorderedElementsAre("BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC",
                                   "NFKD", "Nmt", "Precompiled", "Prepend", "Replace", "Sequence",
                                   "Strip", "StripAccents"));
  EXPECT_THAT(types["pre_tokenizer"],
              UnorderedElementsAre("BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits",
                                   "FixedLength", "Metaspace", "Punctuation", "Sequence", "Split",
                                   "UnicodeScripts", "Whitespace", "WhitespaceSplit"));
  EXPECT_THAT(types["post_processor"],
              UnorderedElementsAre("BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence",
                                   "TemplateProcessing"));
  EXPECT_THAT(types["decoder"],
              UnorderedElementsAre("BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse",
                                   "Metaspace", "Replace", "Sequence", "Strip", "WordPiece"));
}

}  // namespace
}  // namespace meshwright::tokenizer
