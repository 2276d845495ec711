// Lines of JSON as rows of tokens: fields, padding, cuts, labels by name, errors with their line.
#include "cli/row_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "formats/safetensors.h"

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RowFilesTest : public ::testing::Test {
 protected:
  RowFilesRequest Request(const std::string& text, const models::ModelRows& rows) {
    const std::string path = dir_.File("rows.jsonl");
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    RowFilesRequest request;
    request.files = {path};
    request.rows = rows;
    request.tokens = 6;
    request.vocabulary = 300;
    request.cache = dir_.File("cache");
    return request;
  }
  std::string Error(const std::string& text, const models::ModelRows& rows) {
    const auto made = MakeRowFiles(Request(text, rows));
    return made.has_value() ? "" : made.error().message();
  }
  static std::vector<int32_t> Values(const std::string& path, const std::string& name) {
    const auto file = formats::SafetensorsFile::Open(path);
    EXPECT_TRUE(file.has_value()) << file.error();
    const formats::SafetensorsEntry* entry = (*file)->Find(name);
    EXPECT_NE(entry, nullptr) << name;
    const auto bytes = (*file)->data(*entry);
    std::vector<int32_t> values(bytes.size() / sizeof(int32_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  static models::ModelRows Pairs() {
    return {.kind = models::SampleKind::kPair, .target_tokens = 3, .padding = 0};
  }
  static models::ModelRows Labelled() {
    return {.kind = models::SampleKind::kLabelled, .labels = 2, .label_names = {"bad", "good"}};
  }

  TempDir dir_ = TempDir::Make("mw-rows").value();
};

TEST_F(RowFilesTest, PairsHaveTheirEndAndPadding) {
  const RowFilesRequest request = Request(
      "{\"source\": \"ab\", \"target\": \"c\"}\n\n{\"input\": \"abcdefg\", \"output\": \"\"}\n",
      Pairs());
  const auto made = MakeRowFiles(request);
  ASSERT_TRUE(made.has_value()) << made.error();
  ASSERT_EQ(made->paths.size(), 1u);
  EXPECT_EQ(made->cut, 1);
  // A byte is its value and 3; 1 ends a text, also one that was cut.
  EXPECT_THAT(Values(made->paths[0], "source"),
              ElementsAre(100, 101, 1, 0, 0, 0, 100, 101, 102, 103, 104, 1));
  EXPECT_THAT(Values(made->paths[0], "target"), ElementsAre(102, 1, 0, 1, 0, 0));
  const auto again = MakeRowFiles(request);
  ASSERT_TRUE(again.has_value()) << again.error();
  EXPECT_EQ(again->made, 0) << "rows are made once";
  EXPECT_EQ(again->paths, made->paths);
}

TEST_F(RowFilesTest, LabelledTextsHaveTypesAndALabel) {
  const auto made =
      MakeRowFiles(Request("{\"text\": \"a\", \"label\": 1}\n"
                           "{\"text\": \"a\", \"text_pair\": \"b\", \"label\": \"bad\"}",
                           Labelled()));
  ASSERT_TRUE(made.has_value()) << made.error();
  EXPECT_THAT(Values(made->paths[0], "tokens"),
              ElementsAre(2, 100, 1, 0, 0, 0, 2, 100, 1, 101, 1, 0));
  EXPECT_THAT(Values(made->paths[0], "types"), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0));
  EXPECT_THAT(Values(made->paths[0], "label"), ElementsAre(1, 0));
}

// Rows that are kept are of one question: another number of classes, another vocabulary, and
// whether labels are learned at all, are others.
TEST_F(RowFilesTest, WhatIsKeptWasCheckedForThis) {
  const std::string lines = "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": -1}\n";
  const auto why = [](const RowFilesRequest& request) {
    const auto made = MakeRowFiles(request);
    return made.has_value() ? "no error" : made.error().message();
  };
  RowFilesRequest asked = Request(lines, Labelled());
  asked.rows.asks = true;
  ASSERT_TRUE(MakeRowFiles(asked).has_value()) << "a label of what is asked may say nothing";
  RowFilesRequest learned = asked;
  learned.rows.asks = false;
  EXPECT_THAT(why(learned), HasSubstr("line 2: \"label\" is -1"));
  const std::string good = "{\"text\": \"a\", \"label\": 1}\n";
  ASSERT_TRUE(MakeRowFiles(Request(good, Labelled())).has_value());
  RowFilesRequest fewer = Request(good, Labelled());
  fewer.rows.labels = 1;
  EXPECT_THAT(why(fewer), HasSubstr("a number from 0 to 0"));
  RowFilesRequest small = Request(good, Labelled());
  small.vocabulary = 50;
  EXPECT_THAT(why(small), HasSubstr("has the token 100"));
}

TEST_F(RowFilesTest, ErrorsNameFileAndLine) {
  const std::string good = "{\"source\": \"a\", \"target\": \"b\"}\n";
  EXPECT_THAT(Error(good + "{", Pairs()),
              HasSubstr("rows.jsonl: JSON at line 2: is no JSON object"));
  EXPECT_THAT(Error(good + "\n{\"source\": \"a\"}", Pairs()),
              HasSubstr("line 3: has no texts \"source\" and \"target\""));
  EXPECT_THAT(Error("{\"text\": \"a\"}", Labelled()), HasSubstr("and \"label\""));
  EXPECT_THAT(Error("{\"text\": \"a\", \"label\": 2}", Labelled()),
              HasSubstr("\"label\" is 2; it must be a number from 0 to 1, or a name"));
  EXPECT_THAT(Error("{\"text\": \"a\", \"label\": \"ugly\"}", Labelled()), HasSubstr("ugly"));
  EXPECT_THAT(Error("\n", Pairs()), HasSubstr("has no line of JSON"));
  RowFilesRequest small = Request(good, Pairs());
  small.vocabulary = 50;
  EXPECT_THAT(MakeRowFiles(small).error().message(), HasSubstr("has the token 100"));
}

// Texts one behind the other: what is left of each, and its spans, put together are the text.
TEST_F(RowFilesTest, SpansOfTextsAreHidden) {
  models::ModelRows rows = Pairs();
  rows.target_tokens = 8;
  rows.hidden_share = 0.3;
  rows.mean_span = 2;
  RowFilesRequest request = Request("hello world\n\nmore of it here\n", rows);
  request.tokens = 12;
  request.lines = true;
  request.seed = 4;
  const auto made = MakeRowFiles(request);
  ASSERT_TRUE(made.has_value()) << made.error();
  const std::vector<int32_t> sources = Values(made->paths[0], "source");
  const std::vector<int32_t> targets = Values(made->paths[0], "target");
  ASSERT_EQ(sources.size() / 12, targets.size() / 8);
  std::string text;
  for (size_t row = 0; row < sources.size() / 12; ++row) {
    // What each sentinel stands for; ends of texts are left out.
    std::map<int32_t, std::string> spans;
    std::string* span = nullptr;
    for (size_t i = row * 8; i < (row + 1) * 8; ++i) {
      if (targets[i] >= 259) span = &spans[targets[i]];
      ASSERT_NE(span, nullptr);
      if (targets[i] >= 3 && targets[i] < 259) *span += static_cast<char>(targets[i] - 3);
    }
    for (size_t i = row * 12; i < (row + 1) * 12; ++i) {
      const int32_t token = sources[i];
      if (token >= 259) text += spans.at(token);
      if (token >= 3 && token < 259) text += static_cast<char>(token - 3);
    }
  }
  EXPECT_EQ(text, "hello worldmore of it here");
  // Another seed hides others; the same one is there already.
  EXPECT_EQ(MakeRowFiles(request)->made, 0);
  request.seed = 5;
  const auto other = MakeRowFiles(request);
  ASSERT_TRUE(other.has_value()) << other.error();
  EXPECT_NE(Values(other->paths[0], "source"), sources);
}

// A job that reads its texts three times sees other spans each time, and then validates with the
// first ones.
TEST_F(RowFilesTest, SpansDifferByThePassOverTheData) {
  models::Model model;
  model.name = "t5";
  model.vocabulary = 300;
  model.rows = Pairs();
  model.rows.target_tokens = 8;
  model.rows.hidden_share = 0.3;
  model.rows.mean_span = 2;
  config::JobConfig config;
  config.dataset_format = "text";
  config.dataset_path = dir_.File("rows.jsonl");
  config.train.sequence = 12;
  config.train.global_batch = 2;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "hello world of texts\n";
  ASSERT_TRUE(WriteFileAtomic(config.dataset_path, text).ok());
  config.data.validation_fraction = 0;
  config.train.steps = 1;
  const auto once = FindRows(config, model);
  ASSERT_TRUE(once.has_value()) << once.error();
  EXPECT_TRUE(once->parts.empty());
  const int64_t rows = once->fields[0].slices[0].items;
  config.train.steps = rows + 1;  // of two rows each
  const auto thrice = FindRows(config, model);
  ASSERT_TRUE(thrice.has_value()) << thrice.error();
  ASSERT_EQ(thrice->parts.size(), 3u);
  std::set<std::vector<int32_t>> sources;
  for (const ir::FileRef& file : thrice->files) {
    sources.insert(Values(file.blob.name, "source"));
  }
  EXPECT_EQ(sources.size(), 3u);
  for (const ir::DataPart& part : thrice->parts) {
    EXPECT_EQ(part.weight, 0) << "they take turns";
    EXPECT_EQ(part.items, rows);
  }
  config.train.steps = 1'000'000;
  EXPECT_EQ(FindRows(config, model)->parts.size(), 16u) << "then they come again";
}

TEST_F(RowFilesTest, SpansThatDoNotFitAreRefused) {
  models::ModelRows rows = Pairs();
  rows.hidden_share = 0.3;
  EXPECT_THAT(Error("{\"text\": \"hello\"}", rows), HasSubstr("training.target_seq_len is 3"));
  rows.target_tokens = 8;
  EXPECT_THAT(Error("{\"source\": \"hello\"}", rows), HasSubstr("line 1: has no \"text\""));
  RowFilesRequest request = Request("{\"text\": \"hello\"}", rows);
  request.vocabulary = 259;
  EXPECT_THAT(MakeRowFiles(request).error().message(), HasSubstr("raise model.vocab_size to 260"));
}

TEST_F(RowFilesTest, AnotherFormatIsRefusedByTheModelsName) {
  models::Model model;
  model.name = "t5";
  model.rows = Pairs();
  config::JobConfig config;
  EXPECT_THAT(CheckRowFormat(config, model).message(),
              HasSubstr("model 't5' is trained on pairs of texts: training.dataset_format"));
  config.dataset_format = "jsonl";
  EXPECT_TRUE(CheckRowFormat(config, model).ok());
  config.dataset_path = dir_.File("rows.jsonl");
  EXPECT_THAT(FindRows(config, model).error().message(), HasSubstr("training.dataset_path = "));
}

}  // namespace
}  // namespace meshwright::cli
