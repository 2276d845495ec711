#include "cli/token_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/documents.h"
#include "cli/input_files.h"
#include "cli/job_codec.h"
#include "cli/token_files.h"
#include "formats/safetensors.h"

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kNo = kNotLearned;

// Ids from `first` on, all learned but those before `learned_from`.
Document Counting(uint32_t first, size_t count, size_t learned_from = 0) {
  Document document;
  for (size_t i = 0; i < count; ++i) {
    document.ids.push_back(first + static_cast<uint32_t>(i));
    document.learned.push_back(i >= learned_from);
  }
  return document;
}

TEST(RowPacker, PutsWholeDocumentsWhereTheLeastRoomIsEnough) {
  RowPacker packer({6, true});
  packer.Add(Counting(10, 4));     // 3 inputs: row 0
  packer.Add(Counting(20, 6));     // 5: row 1
  packer.Add(Counting(30, 2));     // 1: row 1, which has the least room
  packer.Add(Counting(40, 4, 2));  // 3: row 0
  packer.Add(Counting(50, 3));     // 2: row 2
  packer.Pad();
  ASSERT_EQ(packer.rows(), 3);
  EXPECT_THAT(packer.tokens(),
              ElementsAre(10, 11, 12, 40, 41, 42, 20, 21, 22, 23, 24, 30, 50, 51, 0, 0, 0, 0));
  EXPECT_THAT(packer.labels(), ElementsAre(11, 12, 13, kNo, 42, 43, 21, 22, 23, 24, 25, 31, 51, 52,
                                           kNo, kNo, kNo, kNo));
  EXPECT_THAT(packer.segments(), ElementsAre(0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(packer.positions(),
              ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 1, 0, 1, 2, 3));
}

// Of words: token 7 goes on with the word before it, but not with that of another document.
TEST(RowPacker, TellsWhereWordsBegin) {
  std::vector<bool> goes_on(8, false);
  goes_on[7] = true;
  RowPacker packer({8, true, true}, goes_on);
  packer.Add({{1, 7, 7, 2}, {true, true, true, true}});
  packer.Add({{7, 3, 7}, {true, true, true}});
  packer.Pad();
  EXPECT_THAT(packer.tokens(), ElementsAre(1, 7, 7, 7, 3, 0, 0, 0));
  EXPECT_THAT(packer.words(), ElementsAre(0, 0, 0, 3, 4, 5, 6, 7));
}

TEST(RowPacker, CutsLongDocumentsAndLosesNoLabel) {
  RowPacker packer({3, false});
  packer.Add(Counting(10, 8));
  packer.Add(Counting(30, 5, 4));  // its first piece has no label that is learned
  packer.Add(Counting(40, 1));     // no label at all
  packer.Pad();
  EXPECT_THAT(packer.tokens(), ElementsAre(10, 11, 12, 13, 14, 15, 16, 0, 0, 33, 0, 0));
  EXPECT_THAT(packer.labels(), ElementsAre(11, 12, 13, 14, 15, 16, 17, kNo, kNo, 34, kNo, kNo));
}

// Characters are tokens, "ab" is one, and "</s>" ends a text.
std::string SomeTokenizer() {
  const nlohmann::json vocabulary = {{"a", 0}, {"b", 1}, {"c", 2},    {"U", 3},
                                     {"A", 4}, {"!", 5}, {"</s>", 6}, {"ab", 7}};
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", nlohmann::json::array()},
                        {"model",
                         {{"type", "BPE"},
                          {"vocab", vocabulary},
                          {"merges", nlohmann::json::array({nlohmann::json::array({"a", "b"})})}}}}
      .dump();
}

class Answers : public ::testing::Test {
 protected:
  Answers() {
    Write("tokenizer.json", SomeTokenizer());
    Write("chat_template.jinja",
          "{% for m in messages %}{{ 'U' if m.role == 'user' else 'A' }}{{ m.content }}!"
          "{% endfor %}{% if add_generation_prompt %}A{% endif %}");
  }
  void Write(const char* name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(folder_.File(name), text).ok());
  }
  // "tokens|learned" of the documents of lines.
  std::string Made(const std::string& lines, bool answers = true) {
    const auto maker =
        DocumentMaker::Make({.format = "jsonl", .tokenizer = folder_.path(), .answers = answers});
    if (!maker.has_value()) return maker.error().message();
    const auto documents = maker->OfPart(lines, true, 1);
    if (!documents.has_value()) return documents.error().message();
    std::string text;
    for (const Document& document : *documents) {
      for (const uint32_t id : document.ids) text += std::to_string(id);
      text += '|';
      for (const bool learned : document.learned) text += learned ? '1' : '0';
      text += ' ';
    }
    return text;
  }
  const TempDir folder_ = TempDir::Make().value();
};

TEST_F(Answers, AreWhatTheAssistantSays) {
  const std::string talk =
      R"({"messages":[{"role":"user","content":"c"},{"role":"assistant","content":"ab"},)"
      R"({"role":"user","content":"a"},{"role":"assistant","content":"c"}]})";
  // U c ! A ab ! U a ! A c ! </s>: an answer ends with its "!", and the text behind the last one.
  EXPECT_EQ(Made(talk), "3254753054256|0000110000111 ");
  EXPECT_EQ(Made(talk, false), "3254753054256|1111111111111 ");
}

TEST_F(Answers, AreCompletions) {
  EXPECT_EQ(Made(R"({"prompt":"cc","completion":"ab"})"), "2276|0011 ");
  EXPECT_EQ(Made(R"({"input":"cc","output":"ab"})"), "2276|0011 ");
  EXPECT_EQ(Made(R"({"text":"ca"})"), "206|111 ");
  // A token over the border is of the answer.
  EXPECT_EQ(Made(R"({"prompt":"ca","completion":"bc"})"), "2726|0111 ");
  EXPECT_EQ(Made(R"({"prompt":"c"})"),
            "JSON at line 1: has neither \"text\", a text, nor \"messages\", a list, nor "
            "\"prompt\" and \"completion\", texts");
}

TEST_F(Answers, BytesAreTokensWithoutATokenizer) {
  const DocumentMaker maker = DocumentMaker::Make({.format = "text"}).value();
  const std::vector<Document> documents = maker.OfPart("ab", true, 1).value();
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_THAT(documents[0].ids, ElementsAre('a', 'b'));
  EXPECT_EQ(documents[0].bytes, 2);
  EXPECT_EQ(maker.id_end(), 256);
}

// What bits per byte are of.
TEST_F(Answers, HaveBytesOfTheirOwn) {
  const std::string pair = R"({"prompt":"ccc","completion":"ab"})";
  for (const bool answers : {true, false}) {
    const auto maker =
        DocumentMaker::Make({.format = "jsonl", .tokenizer = folder_.path(), .answers = answers});
    ASSERT_TRUE(maker.has_value()) << maker.error();
    EXPECT_EQ(maker->OfPart(pair, true, 1).value().at(0).bytes, answers ? 2 : 5);
  }
}

TEST_F(Answers, AreRowsThatAJobReads) {
  Write("x.jsonl",
        "{\"prompt\":\"ccc\",\"completion\":\"b\"}\n{\"prompt\":\"c\",\"completion\":\"bb\"}\n");
  config::JobConfig config;
  config.dataset_path = folder_.File("x.jsonl");
  config.dataset_format = "jsonl";
  config.tokenizer = folder_.path();
  config.loss_on = "answers";
  config.data.validation_fraction = 0;
  config.train.sequence = 8;
  for (const bool packed : {true, false}) {
    config.packing = packed;
    const InputFiles files = FindInputFiles(config).value();
    ASSERT_EQ(files.dataset.kind, ir::DataKind::kRecords);
    ASSERT_EQ(files.dataset.fields.size(), packed ? 4u : 2u);
    EXPECT_EQ(files.dataset.fields[0].slices[0].items, packed ? 1 : 2);
    EXPECT_TRUE(CheckInputData(config, files.dataset, 8).ok());
    EXPECT_THAT(CheckInputData(config, files.dataset, 6).message(), HasSubstr("token 6"));
  }
  Write("x.jsonl", "{\"prompt\":\"ccc\",\"completion\":\"\"}\n");
  config.dataset_path = folder_.File("x.jsonl");
  EXPECT_THAT(FindInputFiles(config).error().message(), HasSubstr("has no token of an answer"));
}

TEST_F(Answers, TheJobKnowsItsTokenizer) {
  ir::JobRequest job;
  job.config_text =
      "[training]\ndataset_format = \"jsonl\"\ntokenizer = \"" + folder_.path() + "\"\n";
  EXPECT_EQ(TokenizerOfJob(job, 1).value().value_or(""), folder_.path());
  EXPECT_EQ(EndOfJobTexts(job, 1), 6);
  EXPECT_EQ(CodecOfJob(job, 1).value().Encode("ab").value(), std::vector<int32_t>{7});
  job.config_text = "[training]\ndataset_format = \"jsonl\"\ntokenizer = \"/none\"\n";
  EXPECT_THAT(TokenizerOfJob(job, 7).error().message(), HasSubstr("job 7 was trained with"));
  job.config_text = "[training]\ndataset_format = \"uint16\"\n";
  job.data.format = "uint16";
  EXPECT_THAT(TokenizerOfJob(job, 7).error().message(), HasSubstr("are uint16 tokens, not text"));
  job.config_text.clear();
  job.data.format = "bytes";
  EXPECT_FALSE(TokenizerOfJob(job, 7).value().has_value());
}

}  // namespace
}  // namespace meshwright::cli
