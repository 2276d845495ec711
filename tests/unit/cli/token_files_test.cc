#include "cli/token_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/chat_history.h"
#include "cli/input_files.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<uint32_t>;

// Characters are tokens, and "</s>" is 5.
std::string Characters() {
  nlohmann::json vocabulary = {{"a", 0}, {"b", 1}, {"c", 2}, {"\n", 3}, {"!", 4}, {"</s>", 5}};
  return nlohmann::json{
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

class TokenFilesOf : public ::testing::Test {
 protected:
  TokenFilesOf() {
    Write("tokenizer.json", Characters());
    Write("chat_template.jinja", "{% for m in messages %}{{ m.content }}!{% endfor %}");
    request_.documents.tokenizer = folder_.path();
    request_.cache = folder_.File("cache");
  }
  void Write(const char* name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(folder_.File(name), text).ok());
  }
  Tokens Made(const std::vector<std::string>& paths) {
    Tokens tokens;
    for (const std::string& path : paths) {
      const std::string bytes = ReadFile(path).value();
      for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
        uint16_t token = 0;
        std::memcpy(&token, bytes.data() + i, 2);
        tokens.push_back(token);
      }
    }
    return tokens;
  }
  std::string ErrorOf() {
    const auto made = MakeTokenFiles(request_);
    return made.has_value() ? "none" : made.error().message();
  }

  const TempDir folder_ = TempDir::Make().value();
  TokenFilesRequest request_;
};

TEST_F(TokenFilesOf, TextsAreDocuments) {
  Write("1.txt", "ab");
  Write("2.txt", "c\na");
  request_.files = {folder_.File("1.txt"), folder_.File("2.txt")};
  const TokenFiles made = MakeTokenFiles(request_).value();
  EXPECT_EQ(made.format, "uint16");
  EXPECT_EQ(made.made, 2);
  EXPECT_THAT(Made(made.paths), ElementsAre(0, 1, 5, 2, 3, 0, 5));
  request_.documents.separator = 70'000;
  EXPECT_EQ(MakeTokenFiles(request_).value().format, "uint32");
}

TEST_F(TokenFilesOf, LinesAreTextsOrConversations) {
  Write("x.jsonl",
        "{\"text\":\"ab\"}\n\n{\"messages\":[{\"role\":\"user\",\"content\":\"c\"},"
        "{\"role\":\"assistant\",\"content\":\"a\"}]}\n{\"text\":\"\"}");
  request_.files = {folder_.File("x.jsonl")};
  request_.documents.format = "jsonl";
  EXPECT_THAT(Made(MakeTokenFiles(request_).value().paths), ElementsAre(0, 1, 5, 2, 4, 0, 4, 5));
}

// Parts end where lines end; what was made is kept by its contents.
TEST_F(TokenFilesOf, AreMadeOnceAndInParts) {
  std::string text;
  uint64_t state = 1;
  for (int i = 0; i < 200; ++i) {
    for (int k = 0; k < 4; ++k) {
      state = state * 6364136223846793005 + 1442695040888963407;
      text += "abc"[(state >> 33) % 3];
    }
    text += i % 7 == 0 ? "\n\n" : "\n";
  }
  Write("x.txt", text);
  request_.files = {folder_.File("x.txt")};
  request_.part_bytes = 64;
  int64_t last = 0;
  request_.progress = [&](int64_t done, int64_t all) {
    EXPECT_GT(done, last);
    EXPECT_EQ(all, static_cast<int64_t>(text.size()));
    last = done;
  };
  const TokenFiles made = MakeTokenFiles(request_).value();
  EXPECT_EQ(last, static_cast<int64_t>(text.size()));
  EXPECT_GT(made.made, 5);
  const auto tokenizer = tokenizer::Tokenizer::Load(folder_.path()).value();
  Tokens expected = tokenizer.Encode(text).value();
  expected.push_back(5);
  EXPECT_EQ(Made(made.paths), expected);

  last = 0;
  const TokenFiles again = MakeTokenFiles(request_).value();
  EXPECT_EQ(again.made, 0);
  EXPECT_EQ(again.paths, made.paths);
  // An interrupted run: one part is missing.
  ASSERT_TRUE(RemoveAll(made.paths[2]).ok());
  last = 0;
  EXPECT_EQ(MakeTokenFiles(request_).value().made, 1);
  // Another tokenizer makes others.
  Write("tokenizer_config.json", R"({"eos_token":{"content":"!"}})");
  last = 0;
  const TokenFiles other = MakeTokenFiles(request_).value();
  EXPECT_EQ(other.made, made.made);
  EXPECT_EQ(Made(other.paths).back(), 4u);
}

TEST_F(TokenFilesOf, ErrorsNameFileAndLine) {
  request_.documents.format = "jsonl";
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"text\":\"abc\"}\n";
  Write("x.jsonl", lines + "{\"txt\":\"a\"}\n" + lines);
  request_.files = {folder_.File("x.jsonl")};
  request_.part_bytes = 64;
  EXPECT_THAT(ErrorOf(), HasSubstr("x.jsonl: JSON at line 21: has neither \"text\""));
  Write("x.jsonl", lines + "{\"text\":\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("JSON at line 21: is no JSON object"));
  Write("x.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
  Write("chat_template.jinja", "{{ raise_exception('no content') }}");
  EXPECT_THAT(ErrorOf(), HasSubstr("JSON at line 1: the chat template: line 1: the template says"));
  Write("chat_template.jinja", "{% for m in messages %}{{ m.content }}!{% endfor %}");
  Write("x.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"content\":\"b\"}]}");
  EXPECT_THAT(ErrorOf(), HasSubstr("JSON at line 1: message 2 has no \"role\""));
  Write("x.jsonl", "{\"messages\":[{\"role\":\"user\",\"text\":\"a\"}]}");
  EXPECT_THAT(ErrorOf(), HasSubstr("message 1, of \"user\", has neither \"content\""));
  ASSERT_TRUE(RemoveAll(folder_.File("chat_template.jinja")).ok());
  EXPECT_THAT(ErrorOf(), HasSubstr("\"messages\" need a chat template"));
  request_.documents.format = "text";
  Write("x.jsonl", "a\xff");
  EXPECT_THAT(ErrorOf(), HasSubstr("x.jsonl: the text is not UTF-8 at byte 1"));
  request_.documents.tokenizer = folder_.File("none");
  EXPECT_THAT(ErrorOf(), HasSubstr("none"));
}

TEST_F(TokenFilesOf, AreWhatAJobReads) {
  Write("x.txt", "abcab");
  Write("y.txt", "ab");
  config::JobConfig config;
  config.dataset_path = folder_.File("x.txt");
  config.validation_path = folder_.File("y.txt");
  config.dataset_format = "text";
  EXPECT_THAT(FindInputFiles(config).error().message(),
              HasSubstr("\"text\", so training.tokenizer has to name"));
  config.tokenizer = folder_.path();
  const InputFiles files = FindInputFiles(config).value();
  ASSERT_EQ(files.dataset.fields.size(), 1u);
  const ir::DataField& field = files.dataset.fields[0];
  EXPECT_EQ(field.element, ir::Element::kU16);
  ASSERT_EQ(field.slices.size(), 1u);
  EXPECT_EQ(field.slices[0].items, 6);  // and the end of the text
  ASSERT_EQ(field.validation.size(), 1u);
  EXPECT_EQ(field.validation[0].items, 3);
  config.train.sequence = 2;
  EXPECT_TRUE(CheckInputData(config, files.dataset, 6).ok());
  EXPECT_THAT(CheckInputData(config, files.dataset, 5).message(), HasSubstr("token 5"));
  // A dry run makes no tokens.
  config.dataset_path = folder_.File("none.txt");
  EXPECT_TRUE(CheckInputDataIfAny(config, 6).ok());
}

TEST(ChatHistory, IsTheMessagesOfATemplate) {
  ChatHistory history("Be kind.");
  history.Add("user", "a \"b\"");
  history.Add("assistant", "c");
  EXPECT_EQ(history.Json(),
            R"([{"role":"system","content":"Be kind."},{"role":"user","content":"a \"b\""},)"
            R"({"role":"assistant","content":"c"}])");
  history.DropLast();
  history.Clear();
  EXPECT_TRUE(history.empty());
  EXPECT_EQ(ChatHistory("").Json(), "[]");
  EXPECT_EQ(ChatCommandOf("/exit "), "/exit");
  EXPECT_EQ(ChatCommandOf("/etc"), "");
}

}  // namespace
}  // namespace meshwright::cli
