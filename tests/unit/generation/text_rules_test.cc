// Rules of texts: by themselves, and against what transformers writes by the same logits.
#include "generation/text_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "generation/engine.h"
#include "generation/settings.h"
#include "generation/write_beams.h"

namespace meshwright::generation::ruled {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kGone = -std::numeric_limits<double>::infinity();
constexpr int32_t kWords = 8;

// The logits behind a token.
std::vector<double> LogitsBehindToken(int32_t before) {
  std::vector<double> logits;
  for (int32_t next = 0; next < kWords; ++next) {
    logits.push_back(3 * std::sin(1.7 * before * before + 0.9 * next * (before + 1)));
  }
  return logits;
}

// What the file says, behind a prompt; token 3 ends a text.
struct Case {
  std::string config;
  std::vector<int32_t> prompt;
  std::vector<int32_t> one;    // by the likeliest token
  std::vector<int32_t> beams;  // with four beams
  double score = 0;
};

// Of transformers 5.24, generate(max_new_tokens=16, eos_token_id=3) by a model of these logits.
const Case kCases[] = {
    {R"({"no_repeat_ngram_size": 3})",
     {2},
     {5, 4, 4, 4, 0, 2, 5, 3},
     {5, 4, 0, 2, 5, 3},
     -0.8253780007362366},
    {R"({"bad_words_ids": [[4, 6], [0]]})",
     {2},
     {5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4},
     {5, 3},
     -0.8634979128837585},
    {R"({"no_repeat_ngram_size": 3, "min_length": 9, "forced_bos_token_id": 5,
         "forced_eos_token_id": 3})",
     {2},
     {5, 4, 4, 4, 0, 2, 5, 5, 4, 0, 1, 0, 2, 3},
     {5, 4, 4, 4, 0, 1, 0, 2, 5, 3},
     -0.8557990193367004},
    {R"({"no_repeat_ngram_size": 3, "min_length": 9, "forced_bos_token_id": 5,
         "forced_eos_token_id": 3, "suppress_tokens": [7], "begin_suppress_tokens": [1],
         "bad_words_ids": [[4, 6], [0]]})",
     {2},
     {5, 4, 4, 4, 1, 4, 4, 5, 4, 1, 3},
     {5, 2, 5, 4, 4, 4, 1, 4, 4, 3},  // its floats put 5 2 5 4 4 1 4 4 4 3 first, as likely
     -1.664025902748108},
    {R"({"no_repeat_ngram_size": 3, "min_length": 9, "forced_bos_token_id": 5,
         "forced_eos_token_id": 3, "suppress_tokens": [7], "begin_suppress_tokens": [1],
         "bad_words_ids": [[4, 6], [0]], "renormalize_logits": true, "repetition_penalty": 1.2})",
     {2},
     {5, 4, 4, 4, 1, 4, 4, 5, 3},
     {5, 4, 4, 4, 1, 4, 4, 5, 3},
     -0.22164715826511383},
    {R"({"no_repeat_ngram_size": 3, "min_new_tokens": 6, "forced_bos_token_id": 5,
         "forced_eos_token_id": 3, "suppress_tokens": [7], "begin_suppress_tokens": [1],
         "bad_words_ids": [[4, 6], [0]]})",
     {2, 4, 1},
     {4, 4, 4, 1, 6, 1, 3},
     {6, 6, 6, 2, 5, 4, 4, 4, 1, 3},
     -1.867700219154358},
};

Request RequestOf(const Case& of) {
  const auto settings = ParseSettings(of.config);
  EXPECT_TRUE(settings) << settings.error();
  Request request;
  request.prompt = of.prompt;
  request.max_new_tokens = 16;
  request.stops = {3};
  if (!settings) return request;
  request.sampling = settings->sampling;
  request.rules = settings->rules;
  return request;
}

// The device says the likeliest where it may.
Result<StepAnswer> Answer(const Batch& batch) {
  std::vector<std::vector<double>> logits;
  std::vector<int32_t> likeliest;
  for (const WantedToken& wanted : batch.wanted) {
    logits.push_back(LogitsBehindToken(batch.tokens[static_cast<size_t>(wanted.place)].token));
    const auto most = std::max_element(logits.back().begin(), logits.back().end());
    likeliest.push_back(static_cast<int32_t>(most - logits.back().begin()));
  }
  if (batch.likeliest) return StepAnswer(likeliest);
  return StepAnswer(logits);
}

BatchLimits Limits() {
  BatchLimits limits;
  limits.texts = 6;
  limits.tokens = 8;
  limits.positions = 32;
  limits.page_tokens = 4;
  limits.pages = 48;
  return limits;
}

TEST(TextRules, WriteWhatTransformersWrites) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(of.config);
    const auto written = WriteText(
        RequestOf(of), 32,
        [](std::span<const int32_t> text) { return LogitsBehindToken(text.back()); },
        [](int32_t) { return true; });
    ASSERT_TRUE(written) << written.error();
    EXPECT_EQ(written->tokens, of.one);
  }
}

TEST(TextRules, AreThoseOfEachTextOfABatch) {
  Engine engine(Limits(), Answer);
  std::vector<std::vector<int32_t>> texts(std::size(kCases));
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto put = [&texts, i](int32_t token) {
      texts[i].push_back(token);
      return true;
    };
    ASSERT_TRUE(engine.Add(RequestOf(kCases[i]), {put, [put](int32_t token) { put(token); }, {}}));
  }
  while (!engine.idle()) ASSERT_TRUE(engine.Step().ok());
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], kCases[i].one) << i;
}

TEST(TextRules, HoldForBeams) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(of.config);
    const auto found = WriteBeams(Limits(), Answer, RequestOf(of), {.beams = 4});
    ASSERT_TRUE(found) << found.error();
    EXPECT_EQ(found->front().tokens, of.beams);
    EXPECT_NEAR(found->front().score, of.score, 1e-5);
  }
}

TEST(TextRules, ThatLeaveNothingEndTheirTextAlone) {
  Request barred = RequestOf({R"({"suppress_tokens": [0, 1, 2, 3, 4, 5, 6, 7]})", {2}, {}, {}});
  const auto written = WriteText(
      barred, 32, [](std::span<const int32_t>) { return std::vector<double>(8, 0.0); },
      [](int32_t) { return true; });
  ASSERT_TRUE(written) << written.error();
  EXPECT_EQ(written->finish, Finish::kBarred);
  EXPECT_TRUE(written->tokens.empty());
  Engine engine(Limits(), Answer);
  std::vector<int32_t> other;
  std::optional<Finish> end;
  const auto put = [&](int32_t token) {
    other.push_back(token);
    return true;
  };
  ASSERT_TRUE(engine.Add(RequestOf(kCases[0]), {put, [&](int32_t token) { put(token); }, {}}));
  for (const bool draws : {false, true}) {
    barred.sampling.draws = draws;
    ASSERT_TRUE(engine.Add(
        barred, {[](int32_t) { return true; }, {}, [&](Finish finish) { end = finish; }}));
  }
  while (!engine.idle()) ASSERT_TRUE(engine.Step().ok());
  EXPECT_EQ(end, Finish::kBarred);
  EXPECT_EQ(other, kCases[0].one);
}

TEST(TextRules, TokensThatTheModelDoesNotKnowAreNone) {
  TextRules rules;
  rules.suppressed = {1, 99};
  rules.bad_words = {{99}, {2, 0}, {7, 7, 7, 2}};
  std::vector<double> logits = {1, 1, 1};
  RulesOfText(rules, 1, 4, {3}).Apply(std::vector<int32_t>{2}, logits);
  EXPECT_THAT(logits, ElementsAre(kGone, kGone, 1));
}

TEST(TextRules, TheEngineHasAnErrorWhereLogitsAreNoNumbers) {
  for (const bool draws : {false, true}) {
    Engine engine(Limits(), [](const Batch& batch) -> Result<StepAnswer> {
      return StepAnswer(std::vector<std::vector<double>>(batch.wanted.size(), {1, NAN}));
    });
    Request request;
    request.prompt = {1};
    request.sampling.draws = draws;
    ASSERT_TRUE(engine.Add(request, {[](int32_t) { return true; }, {}, {}}));
    EXPECT_THAT(engine.Step().ToString(), HasSubstr("the model's logits are no numbers"));
  }
}

TEST(Settings, WhatIsNotBuiltIsNamed) {
  const auto plain = ParseSettings(
      R"({"num_beam_groups": 1, "typical_p": 1.0, "encoder_no_repeat_ngram_size": 0,
          "diversity_penalty": 0.0, "sequence_bias": null, "max_length": 142})");
  ASSERT_TRUE(plain) << plain.error();
  EXPECT_TRUE(CheckKnown(*plain).ok());
  EXPECT_EQ(plain->max_length, 142);
  const auto odd = ParseSettings(R"({"guidance_scale": 1.5, "stop_strings": ["."]})");
  ASSERT_TRUE(odd) << odd.error();
  EXPECT_THAT(CheckKnown(*odd).message(), HasSubstr(R"("guidance_scale": 1.5)"));
  EXPECT_THAT(CheckKnown(*odd).message(), HasSubstr(R"("stop_strings": ["."])"));
  for (const char* wrong : {R"({"bad_words_ids": [4]})", R"({"forced_bos_token_id": [4]})",
                            R"({"suppress_tokens": "4"})", R"({"no_repeat_ngram_size": -1})"}) {
    EXPECT_FALSE(ParseSettings(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace meshwright::generation::ruled
