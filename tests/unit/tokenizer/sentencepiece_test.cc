// Small models of SentencePiece (tools/hf-check pieces) against what its own library says of the
// same texts, and files that are damaged.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/text_stream.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<uint32_t>;

const std::string kPieceTests = std::string(MESHWRIGHT_SOURCE_DIR) + "/tests/unit/tokenizer/";

nlohmann::json ReadPieceJson(const std::string& path) {
  return nlohmann::json::parse(ReadFile(kPieceTests + path).value());
}

std::vector<std::string> PieceNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kPieceTests + "pieces")) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string BytesOfBase64(const std::string& text) {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(alphabet.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xff);
  }
  return out;
}

std::string PieceModelOf(const std::string& name) {
  return BytesOfBase64(ReadPieceJson("pieces/" + name + ".json")["model"].get<std::string>());
}

std::string StreamedPieces(const Tokenizer& tokenizer, const Ids& ids) {
  TextStream stream(tokenizer);
  std::string text;
  for (const uint32_t id : ids) text += stream.Put(id);
  return text + stream.End();
}

class Pieces : public ::testing::TestWithParam<std::string> {
 protected:
  Pieces()
      : golden_(ReadPieceJson("pieces/" + GetParam() + ".json")),
        tokenizer_(Tokenizer::FromSentencePiece(PieceModelOf(GetParam())).value()) {}

  const nlohmann::json golden_;
  const Tokenizer tokenizer_;
};

TEST_P(Pieces, AreThoseOfSentencePiece) {
  const nlohmann::json texts = ReadPieceJson("golden/texts.json");
  ASSERT_EQ(golden_["cases"].size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    EXPECT_EQ(tokenizer_.Encode(text).value(), golden_["cases"][i].get<Ids>()) << text;
  }
}

TEST_P(Pieces, AreDecodedAsSentencePieceDoesIt) {
  for (size_t i = 0; i < golden_["cases"].size(); ++i) {
    const auto ids = golden_["cases"][i].get<Ids>();
    const auto text = golden_["decoded"][i].get<std::string>();
    EXPECT_EQ(tokenizer_.Decode(ids), text);
    EXPECT_EQ(StreamedPieces(tokenizer_, ids), text);
  }
  for (const nlohmann::json& drawn : golden_["drawn"]) {
    const auto ids = drawn["ids"].get<Ids>();
    EXPECT_EQ(tokenizer_.Decode(ids), drawn["decoded"].get<std::string>());
    EXPECT_EQ(StreamedPieces(tokenizer_, ids), drawn["decoded"].get<std::string>());
  }
}

// Whatever a file says, reading it ends with a model or an error.
TEST_P(Pieces, DamagedFilesAreRefusedOrRead) {
  const std::string model = PieceModelOf(GetParam());
  for (size_t size = 0; size < model.size(); size += 1 + size / 16) {
    const Result<Tokenizer> cut = Tokenizer::FromSentencePiece(model.substr(0, size));
    EXPECT_TRUE(cut.has_value() || cut.error().code() == StatusCode::kInvalidArgument) << size;
  }
  uint64_t state = 1;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = model;
    for (int i = 0; i < 3; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      // Most damage goes to the specs, which stand at the end.
      const size_t from = round % 2 == 0 ? 0 : damaged.size() - damaged.size() / 8;
      damaged[from + (state >> 20) % (damaged.size() - from)] = static_cast<char>(state >> 56);
    }
    const Result<Tokenizer> made = Tokenizer::FromSentencePiece(damaged);
    if (!made.has_value()) continue;
    const auto ids = made->Encode("Hello  w\u00f6rld <sep>\u4e2d 123 \ufb01 E\u0301");
    if (ids.has_value()) made->Decode(*ids);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Pieces, ::testing::ValuesIn(PieceNames()),
                         [](const auto& test) { return test.param; });

std::string WireVarint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string WireMessage(int number, const std::string& bytes) {
  return WireVarint(static_cast<uint64_t>(number) << 3 | 2) + WireVarint(bytes.size()) + bytes;
}

std::string WireNumber(int number, uint64_t value) {
  return WireVarint(static_cast<uint64_t>(number) << 3) + WireVarint(value);
}

std::string PieceOf(const std::string& text, PieceKind kind) {
  return WireMessage(1, WireMessage(1, text) + std::string("\x15\0\0\x80\xbf", 5) +
                            WireNumber(3, static_cast<uint64_t>(kind)));
}

std::string PieceErrorOf(const std::string& model) {
  const auto read = ParseSentencePiece(model);
  return read.has_value() ? "none" : read.error().message();
}

TEST(SentencePieceFile, WhatIsWrongIsNamed) {
  const std::string unknown = PieceOf("<unk>", PieceKind::kUnknown);
  const std::string good = unknown + PieceOf("a", PieceKind::kNormal);
  EXPECT_EQ(PieceErrorOf(good), "none");
  EXPECT_THAT(PieceErrorOf(""), HasSubstr("no piece is of type UNKNOWN"));
  EXPECT_THAT(PieceErrorOf(good + PieceOf("a", PieceKind::kNormal)),
              HasSubstr("piece 2 ('a') is there twice"));
  EXPECT_THAT(PieceErrorOf(good + PieceOf("", PieceKind::kNormal)), HasSubstr("its text is empty"));
  EXPECT_THAT(PieceErrorOf(good + PieceOf("\xff", PieceKind::kNormal)), HasSubstr("not UTF-8"));
  EXPECT_THAT(PieceErrorOf(good + PieceOf("<0x41>", PieceKind::kByte)),
              HasSubstr("piece 2 ('<0x41>') is a byte, but trainer_spec.byte_fallback is false"));
  EXPECT_THAT(PieceErrorOf(good + PieceOf("<0x4>", PieceKind::kByte)),
              HasSubstr("is of type BYTE"));
  EXPECT_THAT(PieceErrorOf(good + WireMessage(2, WireNumber(35, 1))), HasSubstr("0 of 256 bytes"));
  EXPECT_THAT(PieceErrorOf(good + PieceOf("?", PieceKind::kUnknown)), HasSubstr("and piece 0 is"));
  EXPECT_THAT(
      PieceErrorOf(good + WireMessage(1, WireMessage(1, "b") + std::string("\x15\0\0\x80\x7f", 5))),
      HasSubstr("its score is no number"));
  EXPECT_THAT(PieceErrorOf(good + WireMessage(2, WireNumber(3, 3))),
              HasSubstr("model_type is WORD"));
  EXPECT_THAT(PieceErrorOf(good + WireMessage(2, WireNumber(24, 1))),
              HasSubstr("treat_whitespace_as_suffix"));
  EXPECT_THAT(PieceErrorOf(good + WireMessage(3, WireMessage(2, "abc"))),
              HasSubstr("precompiled_charsmap"));
  EXPECT_THAT(PieceErrorOf(good + WireMessage(5, WireMessage(2, "abc"))),
              HasSubstr("denormalizer_spec"));
  EXPECT_THAT(PieceErrorOf(good + "\x0b"), HasSubstr("wire type 3"));
  EXPECT_THAT(PieceErrorOf(good + "\x0a\x7f"), HasSubstr("field 1 has 127 bytes; 0 are left"));
}

// What stands beside a model in its folder.
TEST(Tokenizer, PutsTokensAroundPiecesAsTheFolderSays) {
  const TempDir folder = TempDir::Make().value();
  const std::string model =
      PieceOf("<unk>", PieceKind::kUnknown) + PieceOf("<s>", PieceKind::kControl) +
      PieceOf("</s>", PieceKind::kControl) + PieceOf("\u2581", PieceKind::kNormal) +
      PieceOf("a", PieceKind::kNormal);
  ASSERT_TRUE(WriteFileAtomic(folder.File("tokenizer.model"), model).ok());
  EXPECT_THAT(Tokenizer::Load(folder.path()).value().Encode("a").value(), ElementsAre(3, 4));
  const auto with = [&](const nlohmann::json& config) {
    EXPECT_TRUE(WriteFileAtomic(folder.File("tokenizer_config.json"), config.dump()).ok());
    return Tokenizer::Load(folder.path());
  };
  nlohmann::json config = {{"tokenizer_class", "LlamaTokenizer"}, {"eos_token", "</s>"}};
  const Tokenizer llama = with(config).value();
  EXPECT_THAT(llama.Encode("a").value(), ElementsAre(1, 3, 4));
  EXPECT_THAT(llama.Encode("a", {.special = false}).value(), ElementsAre(3, 4));
  const PairEncoding pair = llama.EncodePair("a", "").value();
  EXPECT_THAT(pair.ids, ElementsAre(1, 3, 4, 1));
  EXPECT_THAT(pair.types, ElementsAre(0, 0, 0, 1));
  // A special token in a text is the token, and a space goes before what is behind it.
  EXPECT_THAT(llama.Encode("a</s>a", {.special = false}).value(), ElementsAre(3, 4, 2, 3, 4));
  EXPECT_EQ(llama.Decode({3, 4, 2, 3, 4}), "a a");
  EXPECT_EQ(llama.Decode({3, 4, 2, 3, 4}, false), "a</s> a");
  config["legacy"] = false;
  config["add_eos_token"] = true;
  config["added_tokens_decoder"]["5"] = {{"content", "<x>"}, {"special", false}};
  const Tokenizer more = with(config).value();
  EXPECT_THAT(more.Encode("a<x>a").value(), ElementsAre(1, 3, 4, 5, 4, 2));
  EXPECT_EQ(more.id_end(), 6u);
  config["bos_token"] = "<bos>";
  config["tokenizer_class"] = "LlamaTokenizerFast";
  EXPECT_TRUE(with(config).has_value());  // a token that is no piece gets the next id
  config["bos_token"] = 7;
  EXPECT_THAT(with(config).error().message(), HasSubstr("bos_token: is no token"));
  config["added_tokens_decoder"]["x"] = {{"content", "<x>"}};
  config["bos_token"] = nullptr;
  EXPECT_THAT(with(config).error().message(), HasSubstr("'x' is no id"));
}

}  // namespace
}  // namespace meshwright::tokenizer
