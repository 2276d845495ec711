#include "generation/write_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "generation/settings.h"

namespace meshwright::generation {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model of ten tokens, of which each follows the one before.
Result<std::vector<double>> Counting(std::span<const int32_t> text) {
  std::vector<double> logits(10, 0.0);
  logits[static_cast<size_t>((text.back() + 1) % 10)] = 1;
  return logits;
}

Request From(int32_t token, int64_t most) {
  Request request;
  request.prompt = {token};
  request.max_new_tokens = most;
  return request;
}

bool GoOn(int32_t) { return true; }

TEST(WriteText, EndsAtItsLengthAtAStopOrWhereThePositionsEnd) {
  auto written = WriteText(From(3, 4), 100, Counting, GoOn);
  ASSERT_TRUE(written) << written.error();
  EXPECT_THAT(written->tokens, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(written->finish, Finish::kLength);

  Request stops = From(3, 100);
  stops.stops = {6};
  written = WriteText(stops, 100, Counting, GoOn);
  ASSERT_TRUE(written) << written.error();
  EXPECT_THAT(written->tokens, ElementsAre(4, 5, 6));
  EXPECT_EQ(written->finish, Finish::kStop);

  // Three positions: logits behind one, two and three tokens.
  written = WriteText(From(3, 100), 3, Counting, GoOn);
  ASSERT_TRUE(written) << written.error();
  EXPECT_THAT(written->tokens, ElementsAre(4, 5, 6));
  EXPECT_EQ(written->finish, Finish::kFull);
}

TEST(WriteText, ShowsEachTokenAndEndsWhereItIsToldTo) {
  std::vector<int32_t> shown;
  const auto written = WriteText(From(0, 100), 100, Counting, [&](int32_t token) {
    shown.push_back(token);
    return shown.size() < 2;
  });
  ASSERT_TRUE(written) << written.error();
  EXPECT_THAT(shown, ElementsAre(1, 2));
  EXPECT_EQ(written->tokens, shown);
}

TEST(WriteText, RefusesAPromptThatIsEmptyOrTooLong) {
  Request request = From(1, 1);
  request.prompt.clear();
  EXPECT_THAT(WriteText(request, 5, Counting, GoOn).error().message(), HasSubstr("no token"));
  request.prompt.assign(6, 1);
  EXPECT_THAT(WriteText(request, 5, Counting, GoOn).error().message(),
              HasSubstr("6 tokens, and the model has 5 positions"));
}

TEST(Settings, AreThoseOfTheFile) {
  const auto settings = ParseSettings(
      R"({"do_sample": true, "temperature": 0.7, "top_p": 0.9, "top_k": null, "eos_token_id": [2,
          7], "max_new_tokens": 12, "transformers_version": "5.0"})");
  ASSERT_TRUE(settings) << settings.error();
  EXPECT_TRUE(settings->sampling.draws);
  EXPECT_EQ(settings->sampling.temperature, 0.7);
  EXPECT_EQ(settings->sampling.top_p, 0.9);
  EXPECT_EQ(settings->sampling.top_k, 0);
  EXPECT_EQ(settings->max_new_tokens, 12);
  EXPECT_THAT(settings->stops, ElementsAre(2, 7));

  const auto cold = ParseSettings(R"({"do_sample": true, "temperature": 0.0, "eos_token_id": 5})");
  ASSERT_TRUE(cold) << cold.error();
  EXPECT_FALSE(cold->sampling.draws);
  EXPECT_THAT(cold->stops, ElementsAre(5));
}

TEST(Settings, RefuseWhatIsNone) {
  EXPECT_THAT(ParseSettings("[1]").error().message(), HasSubstr("no JSON object"));
  EXPECT_THAT(ParseSettings("{").error().message(), HasSubstr("it is no JSON: "));
  EXPECT_THAT(ParseSettings(R"({"top_p": "much"})").error().message(),
              HasSubstr(R"("top_p" is "much", not a number)"));
  EXPECT_THAT(ParseSettings(R"({"eos_token_id": -1})").error().message(),
              HasSubstr("not a token or a list of tokens"));
  EXPECT_THAT(ParseSettings(R"({"top_p": 2})").error().message(), HasSubstr("top_p is 2"));
  for (const char* number : {"1e308", "1e19", "1.5", "18446744073709551615", "-1"}) {
    for (const char* key : {"top_k", "max_new_tokens", "eos_token_id"}) {
      const auto settings =
          ParseSettings("{\"" + std::string(key) + "\": " + std::string(number) + "}");
      EXPECT_THAT(settings.error().message(), HasSubstr(key)) << number;
    }
  }
}

}  // namespace
}  // namespace meshwright::generation
