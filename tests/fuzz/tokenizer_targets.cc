// Files of tokenizers, and the templates of conversations, which are programs of somebody else.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/target.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/sentencepiece_folder.h"
#include "tokenizer/template_json.h"
#include "tokenizer/text_stream.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::fuzz {
namespace {

nlohmann::json Recorded(const std::string& name) {
  const std::string path = std::string(MESHWRIGHT_SOURCE_DIR) + "/tests/unit/tokenizer/" + name;
  return nlohmann::json::parse(Sure(ReadFile(path)));
}

// Two that our trainer made, and one of each kind of model that it does not make.
Seeds SeedsOfTokenizers() {
  auto trainer = Sure(tokenizer::BpeTrainer::Make({.vocabulary = 300, .least_count = 1}));
  MW_CHECK(trainer.Feed("the cat sat on the mat; the bat sat on the hat").ok());
  Seeds seeds = {trainer.Train()};
  for (const char* name : {"bert", "t5", "llama2", "word_level", "gpt2", "splits"}) {
    seeds.push_back(Recorded(std::string("golden/") + name + ".json")["tokenizer"].dump());
  }
  return seeds;
}

void UseTokenizer(const tokenizer::Tokenizer& made) {
  const auto ids = made.Encode("The cat s\xC3\xA9t\n\n 1234567 on <s> [MASK] \xE2\x96\x81 mat ");
  if (!ids.has_value()) return;
  (void)made.Decode(*ids);
  tokenizer::TextStream stream(made);
  for (const uint32_t id : *ids) (void)stream.Put(id);
  (void)stream.End();
  (void)made.Decode({0, 1, 2, 4294967295U});
}

void RunTokenizer(std::string_view input) {
  const auto made = tokenizer::Tokenizer::FromJson(input);
  if (made.has_value()) UseTokenizer(*made);
}

std::string PieceBytes(const std::string& text) {
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

Seeds SeedsOfPieces() {
  Seeds seeds;
  for (const char* name : {"bpe", "unigram", "bpe_bytes"}) {
    const auto recorded = Recorded(std::string("pieces/") + name + ".json");
    seeds.push_back(PieceBytes(recorded["model"].get<std::string>()));
  }
  return seeds;
}

void RunPieces(std::string_view input) {
  (void)tokenizer::LooksLikeSentencePiece(input);
  const auto made = tokenizer::Tokenizer::FromSentencePiece(input);
  if (made.has_value()) UseTokenizer(*made);
}

constexpr const char* kTalk = R"([{"role":"system","content":"Be brief."},)"
                              R"({"role":"user","content":"Hi  there\n"},)"
                              R"({"role":"assistant","content":"Hello!"}])";

Seeds SeedsOfTemplates() {
  Seeds seeds;
  const nlohmann::json cases = Recorded("chat/cases.json");
  for (size_t i = 0; i < cases.size() && seeds.size() < 24; i += 1 + cases.size() / 24) {
    seeds.push_back(cases[i]["template"].get<std::string>());
  }
  return seeds;
}

void RunTemplate(std::string_view input) {
  tokenizer::TemplateLimits limits;
  limits.steps = 20'000;
  limits.text_bytes = 1 << 16;
  const auto made = tokenizer::ChatTemplate::Parse(input, {{"bos_token", "<s>"}}, limits);
  if (!made.has_value()) return;
  (void)made->Render({.messages = kTalk, .add_generation_prompt = true});
  (void)made->RenderWithAnswers({.messages = kTalk});
}

// What a request brings: the conversation and its tools.
void RunConversation(std::string_view input) {
  static const auto made = Sure(tokenizer::ChatTemplate::Parse(
      "{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}"
      "{{ tools | tojson(indent=2) if tools }}"));
  const std::string text(input);
  (void)made.Render({.messages = text});
  (void)made.Render({.messages = kTalk, .tools = text});
  (void)made.Render({.messages = kTalk, .variables = text});
  const auto value = tokenizer::FromJson(input);
  if (value.has_value()) (void)tokenizer::ToJson(*value, {});
}

}  // namespace

std::vector<Target> TokenizerTargets() {
  return {
      {"tokenizer-json", "tokenizer::Tokenizer::FromJson, Encode, Decode", SeedsOfTokenizers,
       RunTokenizer, 400},
      {"tokenizer-model", "tokenizer::Tokenizer::FromSentencePiece, Encode, Decode", SeedsOfPieces,
       RunPieces, 800},
      {"tokenizer-config", "tokenizer::ParseAround",
       [] {
         return Seeds{R"({"add_bos_token":true,"add_eos_token":false,"legacy":false,"bos_token":)"
                      R"({"content":"<s>","lstrip":false},"eos_token":"</s>",)"
                      R"("added_tokens_decoder":{"0":{"content":"<unk>","special":true}}})",
                      R"({"<mask>":32000,"<sep>":32001})"};
       },
       [](std::string_view input) {
         (void)tokenizer::ParseAround(input, "");
         (void)tokenizer::ParseAround("", input);
       }},
      {"chat-template", "tokenizer::ChatTemplate::Parse, Render", SeedsOfTemplates, RunTemplate,
       800},
      {"conversation", "tokenizer::ChatTemplate::Render",
       [] {
         return Seeds{kTalk, R"([{"type":"function","function":{"name":"f","parameters":{}}}])",
                      R"({"today":"2026-01-01","n":1e3,"deep":[[[]]]})"};
       },
       RunConversation},
  };
}

}  // namespace meshwright::fuzz
