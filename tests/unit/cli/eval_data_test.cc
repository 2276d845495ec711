#include "cli/eval_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace meshwright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<int32_t>> Bytes(const std::string& text) {
  return std::vector<int32_t>(text.begin(), text.end());
}

EvalData Questions(const std::string& lines, const EvalRules& rules = {}) {
  auto data = ReadQuestions(lines, Bytes, rules);
  EXPECT_TRUE(data.has_value()) << data.error();
  return data.value_or(EvalData());
}

// Spaces at the end of a prompt go to the choice, as in lm-evaluation-harness.
TEST(EvalData, ChoicesStandBehindTheirPrompt) {
  const EvalData data =
      Questions("{\"prompt\":\"ab \",\"choices\":[\"c\",\"dd\"],\"answer\":\"dd\"}\n\n");
  ASSERT_EQ(data.rows.size(), 2u);
  EXPECT_THAT(data.rows[0].tokens, ElementsAre('a', 'b', ' ', ' '));
  EXPECT_THAT(data.rows[0].labels, ElementsAre('b', ' ', ' ', 'c'));
  EXPECT_THAT(data.rows[0].counts, ElementsAre(false, true, true, true));
  EXPECT_EQ(data.questions[0].answer, 1u);
  EXPECT_THAT(data.questions[0].lengths, ElementsAre(1, 2));
}

TEST(EvalData, ALongPromptLosesItsBeginning) {
  EvalRules rules;
  rules.positions = 4;
  const EvalData data =
      Questions("{\"prompt\":\"abcdefgh\",\"choices\":[\"x\"],\"answer\":0}", rules);
  EXPECT_THAT(data.rows[0].tokens, ElementsAre('f', 'g', 'h', ' '));
  EXPECT_THAT(data.rows[0].counts, ElementsAre(false, false, true, true));
}

// The numbers of lm-eval: acc by the sum, acc_norm by the sum per character, ties to the first.
TEST(EvalData, MetricsAreThoseOfTheHarness) {
  const EvalData data = Questions(
      "{\"prompt\":\"p\",\"choices\":[\"aaaa\",\"b\"],\"answer\":0}\n"
      "{\"prompt\":\"p\",\"choices\":[\"a\",\"b\"],\"answer\":1}\n"
      "{\"prompt\":\"p\",\"choices\":[\"\xC3\xA9\xC3\xA9\",\"b\"],\"answer\":0}\n");
  const std::vector<RowScore> scores = {{-4, 0}, {-2, 0}, {-1, 0}, {-1, 0}, {-3, 0}, {-2, 0}};
  const std::vector<MetricValue> metrics = MetricsOf(data, scores);
  ASSERT_EQ(metrics.size(), 3u);
  EXPECT_EQ(metrics[1].name, "acc");
  EXPECT_DOUBLE_EQ(metrics[1].value, 0);
  EXPECT_EQ(metrics[2].name, "acc_norm");
  EXPECT_DOUBLE_EQ(metrics[2].value, 2.0 / 3);
  EXPECT_NEAR(*metrics[2].error, std::sqrt(2.0 / 9 / 2), 1e-12);
}

TEST(EvalData, DocumentsAreCutAndEachLabelCountsOnce) {
  Document document;
  document.ids = {1, 2, 3, 4, 5};
  document.learned = {true, true, false, true, true};
  document.bytes = 10;
  EvalRules rules;
  rules.positions = 3;
  const EvalData data = RowsOfDocuments({document}, rules);
  ASSERT_EQ(data.rows.size(), 2u);
  EXPECT_THAT(data.rows[0].labels, ElementsAre(2, 3, 4));
  EXPECT_THAT(data.rows[0].counts, ElementsAre(true, false, true));
  EXPECT_THAT(data.rows[1].tokens, ElementsAre(4));
  const std::vector<MetricValue> metrics = MetricsOf(data, {{-2, 1}, {-4, 1}});
  EXPECT_DOUBLE_EQ(metrics[0].value, 3);
  EXPECT_DOUBLE_EQ(metrics[2].value, 2);
  EXPECT_DOUBLE_EQ(metrics[3].value, std::exp(2.0));
  EXPECT_DOUBLE_EQ(metrics[4].value, 6 / 10.0 / std::log(2.0));
  EXPECT_DOUBLE_EQ(metrics[5].value, 2.0 / 3);
}

TEST(EvalData, ErrorsNameTheLine) {
  const auto error = [](const std::string& lines) {
    const auto data = ReadQuestions(lines, Bytes, {});
    return data.has_value() ? "none" : data.error().message();
  };
  EXPECT_EQ(error("\n{"), "JSON at line 2: is no JSON object");
  EXPECT_THAT(error("{\"prompt\":\"a\"}"), HasSubstr("needs \"prompt\""));
  EXPECT_THAT(error("{\"prompt\":\"a\",\"choices\":[\"b\"],\"answer\":1}"),
              HasSubstr("\"answer\" is 1, and there are 1 choices"));
  EXPECT_THAT(error("{\"prompt\":\"\",\"choices\":[\"b\"],\"answer\":0}"),
              HasSubstr("empty prompt"));
  EXPECT_TRUE(HasQuestions("\n{\"choices\":[]}"));
  EXPECT_FALSE(HasQuestions("{\"text\":\"choices\"}"));
}

// A text whose end is token 1, as of models with an encoder.
PairEncoders ByteEncoders() {
  return {[](const std::string& text) -> Result<std::vector<int32_t>> {
            std::vector<int32_t> ids(text.begin(), text.end());
            ids.push_back(1);
            return ids;
          },
          Bytes};
}

TEST(EvalPairs, HaveASourceAndATargetWithItsEnd) {
  EvalRules rules;
  rules.positions = 4;
  const auto data = ReadPairs(
      "{\"source\":\"ab\",\"target\":\"c\"}\n\n{\"input\":\"abcdef\",\"output\":\"\xC3\xA9\"}\n",
      ByteEncoders(), rules);
  ASSERT_TRUE(data.has_value()) << data.error();
  ASSERT_EQ(data->rows.size(), 2u);
  EXPECT_THAT(data->rows[0].tokens, ElementsAre('a', 'b', 1));
  EXPECT_THAT(data->rows[0].labels, ElementsAre('c', 1));
  EXPECT_THAT(data->rows[0].counts, ElementsAre(true, true));
  EXPECT_THAT(data->rows[1].tokens, ElementsAre('a', 'b', 'c', 1)) << "cut, with its end";
  EXPECT_EQ(data->rows[1].labels.size(), 3u);
  EXPECT_EQ(data->cut, 1);
  EXPECT_EQ(data->bytes, 3);
  const std::vector<MetricValue> metrics = MetricsOf(*data, {{-2, 1}, {-3, 2}});
  EXPECT_DOUBLE_EQ(metrics[0].value, 5);
  EXPECT_DOUBLE_EQ(metrics[2].value, 1);
  EXPECT_DOUBLE_EQ(metrics[5].value, 0.6);
  const auto bad =
      ReadPairs("{\"source\":\"ab\",\"target\":\"c\"}\n{\"text\":\"ab\"}", ByteEncoders(), rules);
  EXPECT_THAT(bad.error().message(), HasSubstr("JSON at line 2: has no texts \"source\""));
}

// As lm-evaluation-harness asks AutoModelForSeq2SeqLM: the prompt whole, a choice without its end.
TEST(EvalPairs, AskAboutChoicesAsTheHarness) {
  EvalRules rules;
  rules.positions = 4;
  const auto data =
      ReadPairs("{\"prompt\":\"abcd \",\"choices\":[\"c\"],\"answer\":0}", ByteEncoders(), rules);
  ASSERT_TRUE(data.has_value()) << data.error();
  ASSERT_EQ(data->rows.size(), 1u);
  EXPECT_THAT(data->rows[0].tokens, ElementsAre('b', 'c', 'd', 1)) << "its beginning is lost";
  EXPECT_THAT(data->rows[0].labels, ElementsAre(' ', ' ', 'c'));
  EXPECT_EQ(data->questions.size(), 1u);
}

}  // namespace
}  // namespace meshwright::cli
