// BERT and T5: what a folder may say, what is refused, and T5's distances.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "models/registry.h"
#include "models/t5.h"

namespace meshwright::models {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kBertSizes[] =
    R"("model_type":"bert","vocab_size":40,"hidden_size":16,"intermediate_size":24,)"
    R"("num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":16)";
constexpr char kT5Sizes[] =
    R"("model_type":"t5","vocab_size":40,"d_model":16,"d_kv":4,"d_ff":24,"num_layers":2,)"
    R"("num_heads":4)";

Result<Model> OfFolder(const std::string& sizes, const std::string& more, ModelSpec spec = {}) {
  spec.hf_config = "{" + sizes + (more.empty() ? "" : "," + more) + "}";
  spec.mask_token = sizes == kBertSizes ? std::optional<int64_t>(39) : std::nullopt;
  return MakeModel(spec);
}

std::string ErrorOf(const Result<Model>& model) {
  return model.has_value() ? "no error" : model.error().message();
}

// As transformers 5.24 has it: the distance at which each bucket begins.
TEST(T5Buckets, AreThoseOfTransformers) {
  const std::vector<std::pair<int64_t, int64_t>> both = {
      {-300, 15}, {-90, 14}, {-63, 13}, {-45, 12}, {-31, 11}, {-22, 10}, {-15, 9}, {-11, 8},
      {-7, 7},    {-6, 6},   {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},  {0, 0},
      {1, 17},    {2, 18},   {3, 19},   {4, 20},   {5, 21},   {6, 22},   {7, 23},  {8, 24},
      {12, 25},   {16, 26},  {23, 27},  {32, 28},  {46, 29},  {64, 30},  {91, 31}, {301, 0}};
  const std::vector<std::pair<int64_t, int64_t>> back = {
      {-300, 31}, {-112, 30}, {-98, 29}, {-86, 28}, {-76, 27}, {-66, 26}, {-58, 25},
      {-51, 24},  {-45, 23},  {-39, 22}, {-34, 21}, {-30, 20}, {-26, 19}, {-23, 18},
      {-20, 17},  {-18, 16},  {-15, 15}, {-14, 14}, {-13, 13}, {-12, 12}, {-11, 11},
      {-10, 10},  {-9, 9},    {-8, 8},   {-7, 7},   {-6, 6},   {-5, 5},   {-4, 4},
      {-3, 3},    {-2, 2},    {-1, 1},   {0, 0},    {301, 0}};
  for (const auto& [begins, both_ways] : {std::pair(&both, true), std::pair(&back, false)}) {
    for (size_t i = 0; i + 1 < begins->size(); ++i) {
      for (int64_t distance = (*begins)[i].first; distance < (*begins)[i + 1].first; ++distance) {
        EXPECT_EQ(T5Bucket(distance, both_ways, 32, 128), (*begins)[i].second) << distance;
      }
    }
  }
}

TEST(T5Folder, IsOfEitherVersion) {
  const auto first = OfFolder(kT5Sizes, "");
  ASSERT_TRUE(first.has_value()) << first.error();
  EXPECT_THAT(first->hf_config, HasSubstr("\"feed_forward_proj\": \"relu\""));
  EXPECT_THAT(first->hf_config, HasSubstr("\"tie_word_embeddings\": true"));
  const auto second =
      OfFolder(kT5Sizes, R"("feed_forward_proj":"gated-gelu","tie_word_embeddings":false)");
  ASSERT_TRUE(second.has_value()) << second.error();
  EXPECT_THAT(second->hf_config, HasSubstr("\"feed_forward_proj\": \"gated-gelu\""));
  EXPECT_GT(second->param_count, first->param_count);
  // What transformers 5 writes of the same.
  const auto again =
      OfFolder(kT5Sizes, R"("feed_forward_proj":"gated-gelu","scale_decoder_outputs":false)");
  ASSERT_TRUE(again.has_value()) << again.error();
  EXPECT_EQ(again->param_count, second->param_count);
  EXPECT_EQ(again->layers, 4);
  EXPECT_EQ(again->rows.kind, SampleKind::kPair);
}

TEST(T5Folder, RefusesWhatIsNotBuilt) {
  EXPECT_THAT(ErrorOf(OfFolder(kT5Sizes, R"("feed_forward_proj":"gated-tanh")")),
              HasSubstr("'tanh' is not supported"));
  EXPECT_THAT(ErrorOf(OfFolder(kT5Sizes, R"("is_encoder_decoder":false)")),
              HasSubstr("is_encoder_decoder"));
  EXPECT_THAT(ErrorOf(OfFolder(kT5Sizes, "", {.document_separator = 1})),
              HasSubstr("document_separator"));
  EXPECT_THAT(ErrorOf(OfFolder(kT5Sizes, "", {.labels = 2})), HasSubstr("n_labels"));
  EXPECT_THAT(ErrorOf(MakeModel({.name = "gpt2", .target_tokens = 4})),
              HasSubstr("target_seq_len"));
}

constexpr char kBartSizes[] =
    R"("model_type":"bart","vocab_size":40,"max_position_embeddings":16,"d_model":16,)"
    R"("encoder_layers":2,"encoder_ffn_dim":24,"encoder_attention_heads":4,"decoder_layers":1,)"
    R"("decoder_ffn_dim":20,"decoder_attention_heads":2)";

// Of one token nothing is behind the begin: the target is not read.
TEST(T5Folder, IsAskedAboutASingleToken) {
  const auto model = OfFolder(kT5Sizes, "");
  ASSERT_TRUE(model) << model.error();
  const auto program = client::PredictProgram({.batch = 1, .sequence = 1}, model->functions);
  ASSERT_TRUE(program) << program.error();
  ASSERT_EQ(program->inputs.size(), 1U);
  EXPECT_TRUE(program->inputs.contains("source"));
}

TEST(BartFolder, HasTwoSidesAndPlaces) {
  const auto model = OfFolder(kBartSizes, "");
  ASSERT_TRUE(model.has_value()) << model.error();
  EXPECT_EQ(model->layers, 3);
  EXPECT_EQ(model->max_sequence, 16);
  EXPECT_EQ(model->rows.kind, SampleKind::kPair);
  EXPECT_THAT(model->hf_config, HasSubstr("\"decoder_start_token_id\": 2"));
  EXPECT_THAT(ErrorOf(OfFolder(kBartSizes, R"("tie_word_embeddings":false)")),
              HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(ErrorOf(OfFolder(kBartSizes, R"("normalize_before":true)")),
              HasSubstr("normalize_before"));
}

TEST(HiddenSpansOfModels, AreOfThoseThatHaveThem) {
  const auto spans = OfFolder(kT5Sizes, "", {.hidden_share = 0.2, .mean_span = 2});
  ASSERT_TRUE(spans.has_value()) << spans.error();
  EXPECT_EQ(spans->rows.hidden_share, 0.2);
  EXPECT_EQ(spans->rows.mean_span, 2);
  EXPECT_TRUE(OfFolder(kBertSizes, "", {.hidden_share = 0.2}).has_value());
  EXPECT_THAT(ErrorOf(OfFolder(kBertSizes, "", {.mean_span = 2})), HasSubstr("mean_span_length"));
  EXPECT_THAT(ErrorOf(OfFolder(kT5Sizes, "", {.hidden_share = 0.2, .mean_span = 0})),
              HasSubstr("mean_span_length 0"));
  EXPECT_THAT(ErrorOf(MakeModel({.name = "gpt2", .hidden_share = 0.1})),
              HasSubstr("noise_density"));
}

TEST(BertFolder, SaysWhichHeadItHas) {
  const auto masked = OfFolder(kBertSizes, "");
  ASSERT_TRUE(masked.has_value()) << masked.error();
  EXPECT_EQ(masked->rows.kind, SampleKind::kWindow);
  EXPECT_TRUE(masked->functions.corrupt);
  const auto named =
      OfFolder(kBertSizes, R"("architectures":["BertForSequenceClassification"],"id2label":)"
                           R"({"0":"bad","1":"fair","2":"good"})");
  ASSERT_TRUE(named.has_value()) << named.error();
  EXPECT_EQ(named->rows.kind, SampleKind::kLabelled);
  EXPECT_EQ(named->rows.label_names, (std::vector<std::string>{"bad", "fair", "good"}));
  // Another number of classes than the folder's: its names say nothing of them.
  const auto other =
      OfFolder(kBertSizes, R"("architectures":["BertForSequenceClassification"])", {.labels = 5});
  ASSERT_TRUE(other.has_value()) << other.error();
  EXPECT_EQ(other->rows.labels, 5);
  EXPECT_THAT(other->hf_config, HasSubstr("\"4\": \"LABEL_4\""));
}

TEST(BertFolder, RefusesWhatIsNotBuilt) {
  EXPECT_THAT(ErrorOf(OfFolder(kBertSizes, R"("position_embedding_type":"relative_key")")),
              HasSubstr("'relative_key' is not supported; only absolute"));
  EXPECT_THAT(ErrorOf(OfFolder(kBertSizes, R"("is_decoder":true)")), HasSubstr("is_decoder"));
  EXPECT_THAT(ErrorOf(OfFolder(kBertSizes, "", {.labels = 1})), HasSubstr("n_labels is 1"));
  EXPECT_THAT(ErrorOf(OfFolder(kBertSizes, R"("architectures":["BertForSequenceClassification"],)"
                                           R"("problem_type":"regression")")),
              HasSubstr("problem_type 'regression'"));
  ModelSpec spec;
  spec.hf_config = std::string("{") + kBertSizes + R"(,"mask_token_id":103})";
  EXPECT_THAT(ErrorOf(MakeModel(spec)), HasSubstr("mask_token is 103"));
}

// A vocabulary without BERT's own mask: who is asked needs none.
TEST(BertFolder, NeedsNoMaskToBeRead) {
  ModelSpec spec;
  spec.hf_config = std::string("{") + kBertSizes + "}";
  const auto model = MakeModel(spec);
  ASSERT_TRUE(model.has_value()) << model.error();
  EXPECT_EQ(model->sizes.mask_token, std::nullopt);
  EXPECT_THAT(model->hf_config, Not(HasSubstr("mask_token_id")));
  spec.hf_config = std::string("{") + kBertSizes +
                   R"(,"vocab_size":200,"architectures":["BertForSequenceClassification"]})";
  const auto classifier = MakeModel(spec);
  ASSERT_TRUE(classifier.has_value()) << classifier.error();
  EXPECT_THAT(classifier->hf_config, Not(HasSubstr("mask_token_id")));
}

constexpr char kVitSizes[] =
    R"("model_type":"vit","image_size":32,"patch_size":8,"hidden_size":32,"intermediate_size":64,)"
    R"("num_hidden_layers":2,"num_attention_heads":4)";

TEST(VitFolder, HasImagesAndClasses) {
  const auto model = OfFolder(kVitSizes, R"("id2label":{"0":"cat","1":"owl"},)"
                                         R"("image_mean":[0.1,0.2,0.3],"image_std":[1,2,3])");
  ASSERT_TRUE(model.has_value()) << model.error();
  EXPECT_EQ(model->rows.kind, SampleKind::kImage);
  EXPECT_EQ(model->rows.image, 32);
  EXPECT_EQ(model->rows.channels, 3);
  EXPECT_EQ(model->rows.label_names, (std::vector<std::string>{"cat", "owl"}));
  // Patches 3 x 8 x 8, 16 of them and one more; two layers; the classes.
  const int64_t layer = 4 * 32 * 32 + 4 * 32 + 2 * 32 * 64 + 64 + 32 + 4 * 32;
  EXPECT_EQ(model->param_count, 192 * 32 + 32 + 18 * 32 + 2 * layer + 2 * 32 + 32 * 2 + 2);
  for (const char* kept : {"ViTForImageClassification", "image_mean", "\"owl\""}) {
    EXPECT_THAT(model->hf_config, HasSubstr(kept));
  }
  EXPECT_EQ(OfFolder(kVitSizes, "", {.labels = 7})->rows.labels, 7);
}

TEST(VitFolder, RefusesWhatDoesNotFit) {
  EXPECT_THAT(ErrorOf(OfFolder(kVitSizes, "", {.patch = 5})),
              HasSubstr("patches divide the image"));
  EXPECT_THAT(ErrorOf(OfFolder(kVitSizes, "", {.labels = 1})), HasSubstr("n_labels is 1"));
  EXPECT_THAT(ErrorOf(MakeModel({.name = "vit", .mask_token = 1})), HasSubstr("mask_token"));
  EXPECT_THAT(ErrorOf(OfFolder(kVitSizes, R"("image_mean":[0.5])")),
              HasSubstr("image_mean has 1 numbers for 3 channels"));
  EXPECT_THAT(ErrorOf(MakeModel({.name = "gpt2", .patch = 4})), HasSubstr("patch_size"));
}

// Windows of tokens train it, and it is asked about whole rows.
TEST(BertFolder, IsAskedWithoutLabels) {
  const auto masked = OfFolder(kBertSizes, "");
  ASSERT_TRUE(masked.has_value()) << masked.error();
  const auto program = client::PredictProgram({.batch = 2, .sequence = 5}, masked->functions);
  ASSERT_TRUE(program.has_value()) << program.error();
  const std::vector<NodeId> feeds = program->graph.NodesOf(ir::Op::kFeed);
  ASSERT_EQ(feeds.size(), 1u);
  EXPECT_EQ(program->graph.type(program->graph.node(feeds[0]).outputs[0]).dims, (ir::Dims{2, 5}));
  EXPECT_TRUE(program->graph.NodesOf(ir::Op::kNoise).empty()) << "a prediction hides nothing";
}

}  // namespace
}  // namespace meshwright::models
