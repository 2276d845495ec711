// Vectors of texts: rows that several texts share give what transformers makes of each alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "client/embedding.h"
#include "models/registry.h"
#include "tests/embedding_truth.h"
#include "tests/virtual/pages_here.h"

namespace meshwright::testing {
namespace {

using client::EmbedLimits;
using client::EmbedRules;
using client::EmbedShape;
using client::Pooling;
using client::TextTokens;

double LargestBetween(const std::vector<std::vector<double>>& wanted,
                      const client::Embeddings& found) {
  double worst = found.values.size() == wanted.size() * wanted[0].size() ? 0 : INFINITY;
  for (size_t i = 0; i < wanted.size() && std::isfinite(worst); ++i) {
    const auto vector = found.of(i);
    for (size_t k = 0; k < vector.size(); ++k) {
      worst = std::max(worst, std::abs(vector[k] - wanted[i][k]));
    }
  }
  return worst;
}

class TextVectors : public ::testing::Test {
 protected:
  void SetUp() override {
    models::ModelSpec spec;
    spec.hf_config = truth_.config();
    spec.dropout = 0;  // which a plan leaves out where nothing is trained
    auto model = models::MakeModel(spec);
    ASSERT_TRUE(model.has_value()) << model.error();
    model_ = *std::move(model);
    ASSERT_TRUE(truth_.WriteWeights(dir_.File("w.safetensors")).ok());
    const auto file = formats::SafetensorsFile::Open(dir_.File("w.safetensors"));
    ASSERT_TRUE(file.has_value()) << file.error();
    file_ = *file;
  }

  Result<client::Embeddings> Embed(const std::vector<TextTokens>& texts, const EmbedRules& rules,
                                   EmbedLimits limits) {
    limits.positions = model_.max_sequence;
    const EmbedShape shape = client::EmbedShapeFor(texts, rules, limits);
    ir::JobRequest job;
    MW_ASSIGN_OR_RETURN(ir::JobProgram program, client::EmbedProgram(shape, model_.functions));
    job.programs = {std::move(program)};
    PagesHere session(job, *file_);
    return client::EmbedTexts(session, shape, texts, rules);
  }

  const EmbeddingTruth truth_ = EmbeddingTruth::Read();
  TempDir dir_ = TempDir::Make("mw-embedding").value();
  models::Model model_;
  std::shared_ptr<const formats::SafetensorsFile> file_;
};

TEST_F(TextVectors, AreThoseOfTransformersWhateverSharesTheirRow) {
  const auto texts = truth_.ids();
  for (const int64_t rows : {int64_t{1}, int64_t{3}, int64_t{8}}) {
    const EmbedLimits wide{.rows = rows, .dtype = ir::DType::kF64};
    const auto means = Embed(texts, {}, wide);
    ASSERT_TRUE(means.has_value()) << means.error();
    EXPECT_LE(LargestBetween(truth_.vectors("mean"), *means), 1e-10) << rows;
    const auto units = Embed(texts, {.normalised = true}, wide);
    ASSERT_TRUE(units.has_value()) << units.error();
    EXPECT_LE(LargestBetween(truth_.vectors("unit_mean"), *units), 1e-10) << rows;
    const auto narrow = Embed(texts, {}, {.rows = rows, .dtype = ir::DType::kF32});
    ASSERT_TRUE(narrow.has_value()) << narrow.error();
    EXPECT_LE(LargestBetween(truth_.vectors("mean"), *narrow), 1e-5) << rows;
  }
  const auto firsts = Embed(texts, {.poolings = {Pooling::kFirst}}, {.dtype = ir::DType::kF64});
  ASSERT_TRUE(firsts.has_value()) << firsts.error();
  EXPECT_LE(LargestBetween(truth_.vectors("cls"), *firsts), 1e-10);
}

// Each is a sum of states that the others say, too.
TEST_F(TextVectors, PoolingsStandOneBehindTheOther) {
  const std::vector<TextTokens> texts = {truth_.ids()[0], {truth_.ids()[1][0]}};
  const EmbedLimits wide{.dtype = ir::DType::kF64};
  const auto both = Embed(texts, {.poolings = {Pooling::kFirst, Pooling::kMeanSqrt}}, wide);
  const auto others = Embed(texts, {.poolings = {Pooling::kLast, Pooling::kWeightedMean}}, wide);
  ASSERT_TRUE(both.has_value() && others.has_value());
  ASSERT_EQ(both->width, 32);
  const auto mean = truth_.vectors("mean")[0];
  const auto first = truth_.vectors("cls")[0];
  for (size_t k = 0; k < 16; ++k) {
    EXPECT_NEAR(both->of(0)[k], first[k], 1e-10);
    EXPECT_NEAR(both->of(0)[16 + k], mean[k] * std::sqrt(texts[0].size()), 1e-10);
    // Of a single token all poolings are its state.
    EXPECT_NEAR(both->of(1)[k], both->of(1)[16 + k], 1e-12);
    EXPECT_NEAR(others->of(1)[k], both->of(1)[k], 1e-12);
    EXPECT_NEAR(others->of(1)[16 + k], both->of(1)[k], 1e-12);
  }
}

TEST(EmbedShapes, HaveRoomForAllTextsAndLittleMore) {
  const std::vector<TextTokens> texts = {TextTokens(5, 1), TextTokens(60, 1), TextTokens(3, 1)};
  const EmbedShape shape = client::EmbedShapeFor(texts, {}, {.rows = 8, .positions = 512});
  EXPECT_EQ(shape.tokens, 72);
  EXPECT_EQ(shape.rows, 1);
  const std::vector<TextTokens> many(1000, TextTokens(10, 1));
  const EmbedShape of_many = client::EmbedShapeFor(many, {}, {.rows = 6, .rows_divisor = 4});
  EXPECT_EQ(of_many.tokens, 256);
  EXPECT_EQ(of_many.rows, 8);
  EXPECT_EQ(client::EmbedShapeFor(many, {}, {.rows = 6, .positions = 20}).tokens, 20);
}

TEST(EmbedPrograms, AreOfModelsThatSeeWholeTexts) {
  const auto gpt2 = models::MakeModel({.name = "gpt2"});
  ASSERT_TRUE(gpt2.has_value());
  const auto program = client::EmbedProgram({.rows = 1, .tokens = 8}, gpt2->functions);
  ASSERT_FALSE(program.has_value());
  EXPECT_EQ(program.error().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(client::ParsePooling("max").error().message(), ::testing::HasSubstr("weighted_mean"));
}

}  // namespace
}  // namespace meshwright::testing
