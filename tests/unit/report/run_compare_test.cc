#include "report/run_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace meshwright::report {
namespace {

using client::StepMetrics;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// Its loss falls from `first` by 0.1 a step.
ComparedRun RunOfSteps(const std::string& label, int64_t steps, double first, double tokens) {
  ComparedRun run;
  run.label = label;
  run.state = "SUCCEEDED";
  for (int64_t i = 0; i < steps; ++i) {
    StepMetrics step;
    step.step = i;
    step.loss = first - 0.1 * static_cast<double>(i);
    step.grad_norm = 1;
    step.lr = 0.1;
    step.tokens = tokens;
    step.seconds = i == 0 ? 9 : 0.5;
    step.validation_loss = i % 10 == 9 ? step.loss + 1 : kNothing;
    run.steps.push_back(step);
  }
  return run;
}

TEST(CompareRuns, FiguresAreOfAllSteps) {
  ComparedRun run = RunOfSteps("a", 20, 5, 100);
  run.facts.devices = 4;
  const RunFigures figures = FiguresOf(run);
  EXPECT_EQ(figures.steps, 20);
  EXPECT_EQ(figures.tokens, 2000);
  EXPECT_NEAR(figures.last_loss, 3.1, 1e-9);
  EXPECT_EQ(figures.best_step, 19);
  EXPECT_NEAR(figures.best_validation, 4.1, 1e-9);
  EXPECT_EQ(figures.median_step_s, 0.5) << "the first one, which is slow, does not count";
  EXPECT_NEAR(figures.tokens_per_s, 2000 / 18.5, 1e-9);
  EXPECT_NEAR(figures.tokens_per_s_and_device, 2000 / 18.5 / 4, 1e-9);
}

TEST(CompareRuns, LossesAreAtEqualStepsUpToTheShortestRun) {
  const std::vector<ComparedRun> runs = {RunOfSteps("a", 100, 10, 1), RunOfSteps("b", 20, 5, 1)};
  const auto places = LossesAtSteps(runs, 4);
  ASSERT_EQ(places.size(), 4u);
  EXPECT_EQ(places[0].place, 5);
  EXPECT_EQ(places[3].place, 20);
  EXPECT_NEAR(places[3].losses[0], 10 - 1.9, 1e-9);
  EXPECT_NEAR(places[3].losses[1], 5 - 1.9, 1e-9);
  EXPECT_EQ(LossesAtSteps({RunOfSteps("a", 2, 1, 1), RunOfSteps("b", 3, 1, 1)}, 8).size(), 2u);
}

TEST(CompareRuns, LossesAreAtEqualTokens) {
  const std::vector<ComparedRun> runs = {RunOfSteps("a", 10, 10, 200), RunOfSteps("b", 40, 5, 100)};
  const auto places = LossesAtTokens(runs, 4);
  ASSERT_EQ(places.size(), 4u);
  EXPECT_EQ(places[3].place, 2000);
  EXPECT_NEAR(places[3].losses[0], 10 - 0.9, 1e-9);
  EXPECT_NEAR(places[3].losses[1], 5 - 1.9, 1e-9);
  EXPECT_THAT(FormatComparison(runs), HasSubstr("LOSS AT TOKENS"));
  EXPECT_THAT(FormatComparison({RunOfSteps("a", 10, 10, 200), RunOfSteps("b", 9, 5, 200)}),
              Not(HasSubstr("LOSS AT TOKENS")))
      << "it would say the same again";
}

TEST(CompareRuns, ChangedKeysAreThoseThatDiffer) {
  std::vector<ComparedRun> runs = {RunOfSteps("a", 1, 1, 1), RunOfSteps("b", 1, 1, 1),
                                   RunOfSteps("c", 1, 1, 1)};
  runs[0].facts.config_text =
      "# resolved\n[job]\nname = \"a\"\n[optimizer]\nlr = 0.1\nname = \"AdamW\"\n";
  runs[1].facts.config_text =
      "[job]\nname = \"b\"\n[optimizer]\nlr = 0.3\nname = \"AdamW\"\n\n"
      "[lora]\nr = 8\n";
  const auto changes = ChangedKeys(runs);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].key, "lora.r");
  EXPECT_THAT(changes[0].values, ElementsAre("", "8", ""));
  EXPECT_EQ(changes[1].key, "optimizer.lr");
  EXPECT_THAT(changes[1].values, ElementsAre("0.1", "0.3", ""));
  runs.pop_back();
  runs[1].facts.config_text = runs[0].facts.config_text;
  EXPECT_THAT(FormatComparison(runs), HasSubstr("The configurations are equal."));
}

TEST(CompareRuns, TheTableHasAColumnPerRun) {
  const std::string text =
      FormatComparison({RunOfSteps("job 1 a", 10, 5, 100), RunOfSteps("job 2 b", 10, 4, 100)});
  EXPECT_THAT(text, HasSubstr("job 1 a"));
  EXPECT_THAT(text, HasSubstr("last loss"));
  EXPECT_THAT(text, HasSubstr("4.1000"));
  EXPECT_THAT(text, HasSubstr("3.1000 (step 10)"));
  EXPECT_THAT(text, HasSubstr("500 ms"));
}

TEST(CompareRuns, JsonSaysTheSameAndHasNoNaN) {
  ComparedRun diverged = RunOfSteps("b", 3, 5, 100);
  diverged.steps.back().loss = kNothing;
  const auto json = nlohmann::json::parse(ComparisonJson({RunOfSteps("a", 3, 5, 100), diverged}));
  EXPECT_EQ(json["runs"][0]["label"], "a");
  EXPECT_EQ(json["runs"][0]["steps"], 3);
  EXPECT_TRUE(json["runs"][1]["last_loss"].is_null());
  EXPECT_EQ(json["at_steps"][2]["step"], 3);
  EXPECT_TRUE(json["at_steps"][2]["losses"][1].is_null());
}

TEST(CompareRuns, ValidationSetsAreCompared) {
  std::vector<ComparedRun> runs = {RunOfSteps("a", 20, 5, 1), RunOfSteps("b", 20, 5, 1)};
  runs[0].steps[9].values = {{"validation/chats", 2.5}, {"loss_scale", 8}};
  runs[0].steps[19].values = {{"validation/chats", 2.25}};
  const std::string table = FormatComparison(runs);
  EXPECT_THAT(table, ::testing::ContainsRegex("last validation/chats +2.2500 +-"));
  EXPECT_THAT(table, Not(HasSubstr("loss_scale")));
  const auto json = nlohmann::json::parse(ComparisonJson(runs));
  EXPECT_EQ(json["runs"][0]["last_validation"]["chats"], 2.25);
  EXPECT_TRUE(json["runs"][1]["last_validation"].empty());
}

TEST(CompareRuns, FilesAreReadAsFarAsTheyAreWritten) {
  const auto steps = ParseSteps(
      "{\"step\":0,\"loss\":2.5,\"grad_norm\":1,\"lr\":0.1,\"tokens\":64,\"seconds\":0.5}\n"
      "{\"step\":1,\"loss\":null,\"tokens\":64,\"values\":{\"accuracy\":0.5}}\n"
      "{\"step\":2,\"los",
      "m");
  ASSERT_TRUE(steps.has_value()) << steps.error();
  ASSERT_EQ(steps->size(), 2u);
  EXPECT_EQ((*steps)[0].loss, 2.5);
  EXPECT_TRUE(std::isnan((*steps)[0].validation_loss));
  EXPECT_TRUE(std::isnan((*steps)[1].loss));
  EXPECT_EQ((*steps)[1].values.at("accuracy"), 0.5);
  EXPECT_FALSE(ParseSteps("not json\n[1]\n", "m").has_value());
  const auto table = ParseSteps("step,loss,tokens\n0,2.5,64\n1,2.25,64\n", "m");
  ASSERT_TRUE(table.has_value()) << table.error();
  EXPECT_EQ((*table)[1].loss, 2.25);
  EXPECT_FALSE(ParseSteps("step,loss\n", "m").has_value());
}

// The picture shows all runs, whatever they are called and however many steps they have.
TEST(CompareRuns, ThePictureIsWellFormedAndSmall) {
  ComparedRun named = RunOfSteps("a <b> & c", 100'000, 9, 100);
  ComparedRun flat = RunOfSteps("flat", 3, 5, 100);
  for (StepMetrics& step : flat.steps) step.loss = 5;
  const std::string svg = DrawCurves({named, flat});
  EXPECT_THAT(svg, HasSubstr("a &lt;b&gt; &amp; c"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_EQ(svg.rfind("</svg>\n"), svg.size() - 7);
  size_t lines = 0;
  for (size_t at = 0; (at = svg.find("<polyline", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 4u);
  ComparedRun lost = flat;
  for (StepMetrics& step : lost.steps) step.loss = kNothing;
  EXPECT_THAT(DrawCurves({lost, lost}), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace meshwright::report
