#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "client/trainer.h"
#include "formats/safetensors.h"
#include "ir/autodiff.h"
#include "ir/verify.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "models/registry.h"

namespace meshwright::models {
namespace {

using client::BuildLossGraph;
using client::CountParams;
using client::PredictProgram;
using ir::Graph;
using ir::Op;

const Gpt2Config kSmallGpt2 = {
    .vocabulary = 40, .positions = 16, .width = 24, .layers = 3, .heads = 4};
const LlamaConfig kSmallLlama = {
    .vocabulary = 40, .width = 24, .inner = 56, .layers = 3, .heads = 4, .kv_heads = 2};

Graph Loss(const client::TrainerFunctions& functions, int64_t sequence = 8,
           ir::DType dtype = ir::DType::kF32) {
  auto graph =
      BuildLossGraph("test", {.batch = 2, .sequence = sequence, .dtype = dtype}, functions);
  EXPECT_TRUE(graph) << graph.error();
  return graph ? *std::move(graph) : Graph();
}

// Exported name -> exported type, e.g. "f32[24,72]".
std::map<std::string, std::string> Exports(const Graph& graph) {
  std::map<std::string, std::string> exports;
  for (NodeId id : graph.NodesOf(Op::kParam)) {
    const ir::Node& node = graph.node(id);
    const auto layout = formats::ExportLayoutOf(node, graph.type(node.outputs[0]));
    EXPECT_TRUE(layout) << layout.error();
    if (layout) exports[layout->name] = layout->type.ToString();
  }
  return exports;
}

const ir::Node* FindParam(const Graph& graph, const std::string& name) {
  for (NodeId id : graph.NodesOf(Op::kParam)) {
    if (graph.node(id).attrs.Str("name") == name) return &graph.node(id);
  }
  return nullptr;
}

TEST(Gpt2, HasThePublishedParameterCounts) {
  EXPECT_EQ(ParamCount(Gpt2Config{}), 124'439'808);
  EXPECT_EQ(ParamCount(Gpt2Config{.width = 1024, .layers = 24, .heads = 16}), 354'823'168);
  EXPECT_EQ(ParamCount(Gpt2Config{.width = 1280, .layers = 36, .heads = 20}), 774'030'080);
  EXPECT_EQ(ParamCount(Gpt2Config{.width = 1600, .layers = 48, .heads = 25}), 1'557'611'200);
}

TEST(Gpt2, GraphOfThe124MModelHoldsExactlyTheFormulasParameters) {
  const Graph graph = Loss(MakeGpt2(Gpt2Config{}), 64);
  EXPECT_EQ(CountParams(graph), 124'439'808);
}

TEST(Gpt2, UntiedHeadAddsOneTable) {
  Gpt2Config config = kSmallGpt2;
  config.tied = false;
  const Graph graph = Loss(MakeGpt2(config));
  EXPECT_EQ(CountParams(graph), ParamCount(config));
  EXPECT_EQ(ParamCount(config) - ParamCount(kSmallGpt2), 40 * 24);
  EXPECT_EQ(Exports(graph).at("lm_head.weight"), "f32[40,24]");
}

TEST(Gpt2, ExportsHuggingFaceNamesAndConv1dShapes) {
  const auto exports = Exports(Loss(MakeGpt2(kSmallGpt2)));
  const std::map<std::string, std::string> block = {
      {"ln_1.weight", "f32[24]"},           {"ln_1.bias", "f32[24]"},
      {"attn.c_attn.weight", "f32[24,72]"}, {"attn.c_attn.bias", "f32[72]"},
      {"attn.c_proj.weight", "f32[24,24]"}, {"attn.c_proj.bias", "f32[24]"},
      {"ln_2.weight", "f32[24]"},           {"ln_2.bias", "f32[24]"},
      {"mlp.c_fc.weight", "f32[24,96]"},    {"mlp.c_fc.bias", "f32[96]"},
      {"mlp.c_proj.weight", "f32[96,24]"},  {"mlp.c_proj.bias", "f32[24]"}};
  std::map<std::string, std::string> wanted = {{"transformer.wte.weight", "f32[40,24]"},
                                               {"transformer.wpe.weight", "f32[16,24]"},
                                               {"transformer.ln_f.weight", "f32[24]"},
                                               {"transformer.ln_f.bias", "f32[24]"}};
  for (int i = 0; i < 3; ++i) {
    for (const auto& [name, type] : block)
      wanted[fmt::format("transformer.h.{}.{}", i, name)] = type;
  }
  EXPECT_EQ(exports, wanted);
}

TEST(Gpt2, LayersCoverTheBlocksAndPutEmbeddingFirstAndLossLast) {
  const Graph graph = Loss(MakeGpt2(kSmallGpt2));
  std::set<int> layers;
  for (const ir::Node& node : graph.nodes) layers.insert(node.layer);
  EXPECT_EQ(layers, (std::set<int>{-1, 0, 1, 2}));
  for (const ir::Node& node : graph.nodes) {
    if (node.op == Op::kEmbedding) {
      EXPECT_EQ(node.layer, 0);
    }
    if (node.op == Op::kCrossEntropy) {
      EXPECT_EQ(node.layer, 2);
    }
    if (node.op == Op::kFeed) {
      EXPECT_EQ(node.layer, -1);
    }
  }
}

TEST(Gpt2, InitialisationScalesResidualProjectionsAndDecaysOnlyMatrices) {
  const Graph graph = Loss(MakeGpt2(kSmallGpt2));
  const ir::Node* projection = FindParam(graph, "transformer.h.1.mlp.c_proj.weight");
  ASSERT_NE(projection, nullptr);
  EXPECT_DOUBLE_EQ(projection->attrs.Real("std"), 0.02 / std::sqrt(6.0));
  EXPECT_EQ(projection->attrs.Int("decay"), 1);
  EXPECT_DOUBLE_EQ(FindParam(graph, "transformer.h.1.mlp.c_fc.weight")->attrs.Real("std"), 0.02);
  const ir::Node* fused_bias = FindParam(graph, "transformer.h.0.attn.c_attn.bias");
  EXPECT_EQ(fused_bias->attrs.Str("init"), "zeros");
  EXPECT_EQ(fused_bias->attrs.Int("decay", -1), 0);
  EXPECT_EQ(FindParam(graph, "transformer.ln_f.weight")->attrs.Str("init"), "ones");
  EXPECT_EQ(FindParam(graph, "transformer.ln_f.weight")->attrs.Int("decay", -1), 0);
}

TEST(Gpt2, DropoutAppearsOncePerPlaceWithUniqueNames) {
  Gpt2Config config = kSmallGpt2;
  EXPECT_TRUE(Loss(MakeGpt2(config)).NodesOf(Op::kDropout).empty());
  config.embedding_dropout = config.residual_dropout = 0.1;
  const Graph graph = Loss(MakeGpt2(config));
  std::set<std::string> names;
  for (NodeId id : graph.NodesOf(Op::kDropout)) names.insert(graph.node(id).attrs.Str("name"));
  EXPECT_EQ(names.size(), 1u + 2 * 3);
  for (NodeId id : graph.NodesOf(Op::kAttentionQkv)) {
    EXPECT_FALSE(graph.node(id).attrs.Has("dropout"));
  }
  config.attention_dropout = 0.2;
  const Graph with_attention = Loss(MakeGpt2(config));
  for (NodeId id : with_attention.NodesOf(Op::kAttention)) {
    EXPECT_EQ(with_attention.node(id).attrs.Real("dropout"), 0.2);
    EXPECT_TRUE(names.insert(with_attention.node(id).attrs.Str("name")).second);
  }
}

TEST(Gpt2, SequenceAboveThePositionsIsAnError) {
  const auto graph = BuildLossGraph("g", {.batch = 1, .sequence = 17}, MakeGpt2(kSmallGpt2));
  ASSERT_FALSE(graph);
  EXPECT_NE(graph.error().message().find("sequence 17 is longer"), std::string::npos)
      << graph.error();
}

TEST(Gpt2, ReadsAHuggingFaceConfig) {
  const auto config = Gpt2ConfigFromHf(
      R"({"model_type":"gpt2","vocab_size":100,"n_positions":32,"n_ctx":64,"n_embd":48,)"
      R"("n_layer":5,"n_head":6,)"
      R"("n_inner":null,"layer_norm_epsilon":1e-6,"embd_pdrop":0.0,"attn_pdrop":0.25,)"
      R"("activation_function":"gelu_new"})");
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->vocabulary, 100);
  EXPECT_EQ(config->positions, 32);
  EXPECT_EQ(config->width, 48);
  EXPECT_EQ(config->layers, 5);
  EXPECT_EQ(config->heads, 6);
  EXPECT_EQ(config->inner_width(), 192);
  EXPECT_EQ(config->epsilon, 1e-6);
  EXPECT_EQ(config->embedding_dropout, 0.0);
  EXPECT_EQ(config->residual_dropout, 0.1);
  EXPECT_EQ(config->attention_dropout, 0.25);
}

// The five sizes, with `extra` keys after them; a key that is there twice has its last value.
std::string Gpt2Json(const std::string& extra) {
  return R"({"vocab_size":100,"n_positions":32,"n_embd":48,"n_layer":2,"n_head":6)" + extra + "}";
}

TEST(Gpt2, BadHuggingFaceConfigsNameTheKey) {
  const auto message = [](const std::string& text) {
    const auto config = Gpt2ConfigFromHf(text);
    return config ? "no error" : config.error().message();
  };
  EXPECT_EQ(message(Gpt2Json("")), "no error");
  EXPECT_NE(message("[1]").find("config.json is no JSON object"), std::string::npos);
  EXPECT_NE(message("{\n\"n_embd\": 48,\n}").find("no JSON: parse error at line 3, column 1"),
            std::string::npos);
  EXPECT_NE(message(" \n").find("is empty"), std::string::npos);
  EXPECT_NE(message(Gpt2Json(R"(,"n_embd":"wide")"))
                .find("'n_embd' must be an integer of 64 bits, is \"wide\""),
            std::string::npos);
  EXPECT_NE(message(Gpt2Json(R"(,"n_embd":100)")).find("not a multiple of n_heads"),
            std::string::npos);
  EXPECT_NE(message(Gpt2Json(R"(,"activation_function":"mish")")).find("'mish'"),
            std::string::npos);
  EXPECT_NE(message(Gpt2Json(R"(,"n_layer":0)")).find("n_layers is 0"), std::string::npos);
  EXPECT_NE(message(Gpt2Json(R"(,"layer_norm_epsilon":-1)")).find("norm_eps is -1"),
            std::string::npos);
}

TEST(Gpt2, AbsentSizesAreErrorsNotDefaults) {
  for (const char* key : {"vocab_size", "n_positions", "n_embd", "n_layer", "n_head"}) {
    const auto config = Gpt2ConfigFromHf(Gpt2Json(fmt::format(R"(,"{}":null)", key)));
    ASSERT_FALSE(config) << key;
    EXPECT_NE(config.error().message().find(fmt::format("config.json has no '{}'", key)),
              std::string::npos)
        << config.error();
  }
  EXPECT_TRUE(Gpt2ConfigFromHf(Gpt2Json(R"(,"n_positions":null,"n_ctx":16)")));
}

TEST(Gpt2, KeysThatChangeTheModelAreRefused) {
  for (const char* extra :
       {R"(,"scale_attn_by_inverse_layer_idx":true)", R"(,"scale_attn_weights":false)",
        R"(,"add_cross_attention":true)", R"(,"quantization_config":{"bits":4})"}) {
    const auto config = Gpt2ConfigFromHf(Gpt2Json(extra));
    ASSERT_FALSE(config) << extra;
    EXPECT_EQ(config.error().code(), StatusCode::kUnimplemented) << config.error();
  }
  EXPECT_TRUE(Gpt2ConfigFromHf(
      Gpt2Json(R"(,"scale_attn_by_inverse_layer_idx":false,"scale_attn_weights":true,)"
               R"("reorder_and_upcast_attn":true,"quantization_config":null)")));
}

TEST(Llama, HasThePublishedParameterCounts) {
  EXPECT_EQ(ParamCount(LlamaConfig{}), 6'738'415'616);  // LLaMA-2 7B
  EXPECT_EQ(ParamCount(LlamaConfig{.vocabulary = 128256, .inner = 14336, .kv_heads = 8}),
            8'030'261'248);  // Llama 3 8B
}

TEST(Llama, GraphHoldsExactlyTheFormulasParameters) {
  for (const bool tied : {false, true}) {
    LlamaConfig config = kSmallLlama;
    config.tied = tied;
    EXPECT_EQ(CountParams(Loss(MakeLlama(config))), ParamCount(config));
  }
  LlamaConfig wide = kSmallLlama;
  wide.head_size = 10;
  EXPECT_EQ(CountParams(Loss(MakeLlama(wide))), ParamCount(wide));
}

TEST(Llama, ExportsHuggingFaceNamesAndLinearShapes) {
  LlamaConfig config = kSmallLlama;
  config.head_size = 10;
  const auto exports = Exports(Loss(MakeLlama(config)));
  EXPECT_EQ(exports.at("model.embed_tokens.weight"), "f32[40,24]");
  EXPECT_EQ(exports.at("model.layers.2.self_attn.q_proj.weight"), "f32[40,24]");
  EXPECT_EQ(exports.at("model.layers.2.self_attn.k_proj.weight"), "f32[20,24]");
  EXPECT_EQ(exports.at("model.layers.2.self_attn.v_proj.weight"), "f32[20,24]");
  EXPECT_EQ(exports.at("model.layers.2.self_attn.o_proj.weight"), "f32[24,40]");
  EXPECT_EQ(exports.at("model.layers.0.mlp.gate_proj.weight"), "f32[56,24]");
  EXPECT_EQ(exports.at("model.layers.0.mlp.up_proj.weight"), "f32[56,24]");
  EXPECT_EQ(exports.at("model.layers.0.mlp.down_proj.weight"), "f32[24,56]");
  EXPECT_EQ(exports.at("model.layers.0.input_layernorm.weight"), "f32[24]");
  EXPECT_EQ(exports.at("model.layers.0.post_attention_layernorm.weight"), "f32[24]");
  EXPECT_EQ(exports.at("model.norm.weight"), "f32[24]");
  EXPECT_EQ(exports.at("lm_head.weight"), "f32[40,24]");
  EXPECT_EQ(exports.size(), 3u + 3 * 9);
}

TEST(Llama, ReadsOldAndNewHuggingFaceConfigs) {
  const char* sizes =
      R"("vocab_size":40,"hidden_size":24,"intermediate_size":56,"num_hidden_layers":3,)"
      R"("num_attention_heads":4,)"
      R"("num_key_value_heads":2,"rms_norm_eps":1e-5,"tie_word_embeddings":true)";
  const auto old =
      LlamaConfigFromHf(fmt::format(R"({{{},"rope_theta":500000.0,"rope_scaling":null}})", sizes));
  ASSERT_TRUE(old) << old.error();
  EXPECT_EQ(old->rope_base, 500000);
  EXPECT_EQ(old->kv_head_count(), 2);
  EXPECT_TRUE(old->tied);
  const auto renewed = LlamaConfigFromHf(fmt::format(
      R"({{{},"rope_parameters":{{"rope_theta":1000,"rope_type":"default"}}}})", sizes));
  ASSERT_TRUE(renewed) << renewed.error();
  EXPECT_EQ(renewed->rope_base, 1000);
  const auto older = LlamaConfigFromHf(fmt::format(
      R"({{{},"rope_theta":10,"rope_scaling":{{"rope_type":"default","rope_theta":55}}}})", sizes));
  ASSERT_TRUE(older) << older.error();
  EXPECT_EQ(older->rope_base, 55) << "transformers 5 reads it before the one at the top";
  for (const char* extra :
       {R"("rope_scaling":{"rope_type":"spiral","factor":8})", R"("rope_scaling":{"factor":8})",
        R"("quantization_config":{"bits":4})", R"("pretraining_tp":2)",
        R"("partial_rotary_factor":0.5)", R"("hidden_act":"mish")"}) {
    const auto refused = LlamaConfigFromHf(fmt::format("{{{},{}}}", sizes, extra));
    ASSERT_FALSE(refused) << extra;
    EXPECT_EQ(refused.error().code(), StatusCode::kUnimplemented) << refused.error();
  }
  EXPECT_TRUE(LlamaConfigFromHf(fmt::format(R"({{{},"pretraining_tp":1}})", sizes)));
}

TEST(Llama, WaysToStretchPositionsNameWhatTheyMiss) {
  const auto message = [](const std::string& rope) {
    const auto config = LlamaConfigFromHf(
        R"({"vocab_size":40,"hidden_size":24,"intermediate_size":56,"num_hidden_layers":3,)"
        R"("num_attention_heads":4,"max_position_embeddings":64,"rope_parameters":{)" +
        rope + "}}");
    return config ? "no error" : config.error().message();
  };
  EXPECT_EQ(message(R"("rope_type":"linear","factor":4)"), "no error");
  EXPECT_NE(message(R"("rope_type":"linear")").find("no 'rope_parameters.factor'"),
            std::string::npos);
  EXPECT_NE(message(R"("rope_type":"llama3","factor":4)").find("low_freq_factor"),
            std::string::npos);
  EXPECT_NE(
      message(R"("rope_type":"longrope","factor":4,"long_factor":[1,2,3])").find("short_factor"),
      std::string::npos);
  EXPECT_NE(message(R"("rope_type":"longrope","short_factor":[1,1,1],"long_factor":[1,2])")
                .find("long_factor has 2 numbers for 3 pairs"),
            std::string::npos);
  EXPECT_NE(message(R"("rope_type":"yarn","factor":"big")").find("must be a number"),
            std::string::npos);
}

// What transformers 5 makes of each: the layers with a window, and its tokens.
TEST(Llama, MistralsAndQwen2sWindowsComeFromTheirFolder) {
  const std::string sizes =
      R"("hidden_size":16,"intermediate_size":32,"num_attention_heads":4,"num_hidden_layers":4,)"
      R"("num_key_value_heads":2,"vocab_size":50)";
  int64_t layers_with_window = 0;
  const auto window = [&](const char* type, const std::string& more) -> Result<int64_t> {
    MW_ASSIGN_OR_RETURN(const LlamaConfig config,
                        LlamaConfigFromHf(fmt::format(R"({{"model_type":"{}",{}{}{}}})", type,
                                                      sizes, more.empty() ? "" : ",", more)));
    EXPECT_EQ(config.attention_bias, std::string(type) == "qwen2");
    layers_with_window = 0;
    for (int64_t i = 0; i < config.layers; ++i) layers_with_window += config.has_window(i) ? 1 : 0;
    return config.attention_window;
  };
  EXPECT_EQ(window("mistral", R"("sliding_window":12)").value_or(-1), 12);
  EXPECT_EQ(window("mistral", R"("sliding_window":null)").value_or(-1), 0);
  EXPECT_EQ(window("mistral", "").value_or(-1), 4096);
  EXPECT_EQ(window("llama", R"("sliding_window":12)").value_or(-1), 0) << "no key of LLaMA's";
  EXPECT_EQ(window("qwen2", R"("sliding_window":12)").value_or(-1), 0) << "it is not used";
  const std::string used = R"("use_sliding_window":true,"sliding_window":12)";
  EXPECT_EQ(window("qwen2", used).value_or(-1), 0) << "layers 28 and above, of four";
  EXPECT_EQ(window("qwen2", used + R"(,"max_window_layers":4)").value_or(-1), 0);
  EXPECT_EQ(window("qwen2", used + R"(,"max_window_layers":0)").value_or(-1), 12);
  EXPECT_EQ(window("qwen2", R"("use_sliding_window":true,"max_window_layers":0)").value_or(-1),
            4096);
  EXPECT_EQ(window("qwen2", used + R"(,"max_window_layers":1)").value_or(-1), 12);
  EXPECT_EQ(layers_with_window, 3);
  const auto types = [](const char* a, const char* b) {
    return fmt::format(R"(,"layer_types":["{0}_attention","{1}_attention","{1}_attention",)"
                       R"("{1}_attention"])",
                       a, b);
  };
  EXPECT_EQ(window("qwen2", used + types("sliding", "sliding")).value_or(-1), 12);
  EXPECT_EQ(window("qwen2", used + types("full", "full")).value_or(-1), 0);
  EXPECT_EQ(window("qwen2", used + types("sliding", "full")).value_or(-1), 12);
  EXPECT_EQ(layers_with_window, 1);
  const auto strange = window("qwen2", used + types("full", "chunked"));
  ASSERT_FALSE(strange);
  EXPECT_NE(strange.error().message().find("'chunked_attention' is not supported"),
            std::string::npos)
      << strange.error();
  EXPECT_FALSE(window("qwen2", used + R"(,"layer_types":["full_attention"])")) << "of four layers";
  for (const char* wrong : {R"("sliding_window":0)", R"("sliding_window":"all")"}) {
    EXPECT_FALSE(window("mistral", wrong)) << wrong;
  }
}

TEST(Llama, AbsentSizesAreErrorsNotDefaults) {
  const auto config = LlamaConfigFromHf(R"({"vocab_size":40,"intermediate_size":8})");
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message().find("config.json has no 'hidden_size'"), std::string::npos);
}

TEST(Llama, SequenceAboveThePositionsIsAnError) {
  LlamaConfig config = kSmallLlama;
  EXPECT_TRUE(BuildLossGraph("g", {.batch = 1, .sequence = 17}, MakeLlama(config)));
  config.positions = 16;
  const auto graph = BuildLossGraph("g", {.batch = 1, .sequence = 17}, MakeLlama(config));
  ASSERT_FALSE(graph);
  EXPECT_NE(graph.error().message().find("sequence 17 is longer"), std::string::npos);
}

TEST(Llama, ValidateNamesWhatDoesNotFit) {
  LlamaConfig config = kSmallLlama;
  config.kv_heads = 3;
  EXPECT_NE(Validate(config).message().find("n_kv_heads 3"), std::string::npos);
  config = kSmallLlama;
  config.head_size = 5;
  EXPECT_NE(Validate(config).message().find("odd"), std::string::npos);
  config = kSmallLlama;
  config.rope_base = 0;
  EXPECT_NE(Validate(config).message().find("rope_theta is 0"), std::string::npos);
  config = kSmallLlama;
  config.epsilon = -1;
  EXPECT_NE(Validate(config).message().find("norm_eps is -1"), std::string::npos);
}

class EveryModel : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryModel, DifferentiatesUpdatesAndVerifiesInBothFloatTypes) {
  const auto model = MakeModel({.name = GetParam()});
  ASSERT_TRUE(model) << model.error();
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kF64}) {
    const Graph loss = Loss(model->functions, 8, dtype);
    EXPECT_EQ(loss.type(loss.Output("loss_sum")).dtype, dtype);
    const auto gradients = ir::Differentiate(loss);
    ASSERT_TRUE(gradients) << gradients.error();
    const auto step = ir::AppendUpdate(*gradients, {});
    ASSERT_TRUE(step) << step.error();
    const Status status = ir::VerifyGraph(*step);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(step->Output("loss").valid());
  }
}

TEST_P(EveryModel, HoldsAsManyParametersAsItSays) {
  const auto model = MakeModel({.name = GetParam()});
  ASSERT_TRUE(model) << model.error();
  EXPECT_EQ(CountParams(Loss(model->functions)), model->param_count);
}

// The config.json that a model writes is that of the same model.
TEST_P(EveryModel, ReadsTheConfigThatItWrites) {
  for (const std::string& flavor : Flavors(GetParam())) {
    const auto model = MakeModel({.name = GetParam(), .flavor = flavor});
    ASSERT_TRUE(model) << model.error();
    if (model->hf_config.empty()) continue;
    const auto again = MakeModel({.hf_config = model->hf_config});
    ASSERT_TRUE(again) << again.error();
    EXPECT_EQ(again->name, model->name);
    EXPECT_EQ(again->summary, model->summary);
    EXPECT_TRUE(again->hf_config == model->hf_config) << model->hf_config << again->hf_config;
  }
}

TEST_P(EveryModel, PredictsLogitsOfEveryToken) {
  if (GetParam() == "vit") GTEST_SKIP() << "says one thing of an image: VitFolder";
  const auto model = MakeModel({.name = GetParam()});
  ASSERT_TRUE(model);
  const auto program = PredictProgram({.batch = 3, .sequence = 5}, model->functions);
  ASSERT_TRUE(program) << program.error();
  const ir::Graph& graph = program->graph;
  EXPECT_EQ(graph.type(graph.Output("logits")).dims, (ir::Dims{3, 5, model->vocabulary}));
  // A classifier says one thing of each row.
  if (GetParam() != "bert") return;
  const auto classifier = MakeModel({.name = GetParam(), .labels = 3});
  ASSERT_TRUE(classifier) << classifier.error();
  EXPECT_EQ(CountParams(Loss(classifier->functions)), classifier->param_count);
  const auto classes = PredictProgram({.batch = 3, .sequence = 5}, classifier->functions);
  ASSERT_TRUE(classes) << classes.error();
  EXPECT_EQ(classes->graph.type(classes->graph.Output("logits")).dims, (ir::Dims{3, 3}));
}

INSTANTIATE_TEST_SUITE_P(All, EveryModel, ::testing::ValuesIn(ModelNames()));

TEST(Registry, UnknownNamesListTheKnownOnes) {
  EXPECT_NE(MakeModel({.name = "gpt3"}).error().message().find("gpt2, llama"), std::string::npos);
  EXPECT_NE(MakeModel({.name = "gpt2", .flavor = "8B"}).error().message().find("124M"),
            std::string::npos);
}

TEST(Registry, FieldsOverrideTheFlavorAndForeignFieldsAreRefused) {
  ModelSpec spec;
  spec.layers = 5;
  spec.vocabulary = 300;
  const auto model = MakeModel(spec);
  ASSERT_TRUE(model) << model.error();
  EXPECT_EQ(model->layers, 5);
  EXPECT_EQ(model->vocabulary, 300);
  spec.kv_heads = 2;
  EXPECT_NE(MakeModel(spec).error().message().find("has no n_kv_heads"), std::string::npos);
}

TEST(Registry, AWindowIsOneOfEveryAttentionOfALlama) {
  ModelSpec spec;
  spec.name = "llama";
  spec.attention_window = 3;
  const auto model = MakeModel(spec);
  ASSERT_TRUE(model) << model.error();
  const auto program = PredictProgram({.batch = 1, .sequence = 8}, model->functions);
  ASSERT_TRUE(program) << program.error();
  const std::vector<NodeId> attention = program->graph.NodesOf(ir::Op::kAttention);
  EXPECT_EQ(attention.size(), 2u);
  for (const NodeId id : attention) {
    EXPECT_EQ(program->graph.node(id).attrs.Int("window"), 3);
  }
  spec.attention_window = -1;
  EXPECT_NE(MakeModel(spec).error().message().find("attention_window is -1"), std::string::npos);
  spec = {.name = "gpt2"};
  spec.attention_window = 3;
  EXPECT_NE(MakeModel(spec).error().message().find("has no attention_window"), std::string::npos);
}

TEST(Registry, TakesAHuggingFaceConfig) {
  ModelSpec spec;
  spec.hf_config =
      R"({"model_type":"llama","hidden_size":24,"num_attention_heads":4,"num_hidden_layers":2,)"
      R"("intermediate_size":32,"vocab_size":50})";
  const auto model = MakeModel(spec);
  ASSERT_TRUE(model) << model.error();
  EXPECT_EQ(model->name, "llama");
  EXPECT_EQ(model->layers, 2);
  EXPECT_TRUE(model->notes.empty());
  spec.hf_config = spec.hf_config->substr(0, spec.hf_config->size() - 1) + R"(,"pad_token_id":7})";
  const auto padded = MakeModel(spec);
  ASSERT_TRUE(padded) << padded.error();
  ASSERT_EQ(padded->notes.size(), 1u);
  EXPECT_NE(padded->notes[0].find("pad_token_id 7 has no effect"), std::string::npos);
  spec.hf_config =
      R"({"model_type":"mistral","hidden_size":24,"num_attention_heads":4,"num_hidden_layers":2,)"
      R"("num_key_value_heads":4,"intermediate_size":32,"vocab_size":50,"sliding_window":8})";
  EXPECT_TRUE(MakeModel(spec)) << MakeModel(spec).error();
  spec.attention_window = 0;
  EXPECT_TRUE(MakeModel(spec)) << "a job's key replaces that of the folder";
  spec.attention_window.reset();
  spec.hf_config = R"({"model_type":"pegasus"})";
  EXPECT_NE(MakeModel(spec).error().message().find("'pegasus'"), std::string::npos);
  spec.hf_config = R"({"n_embd":8})";
  EXPECT_NE(MakeModel(spec).error().message().find("no 'model_type'"), std::string::npos);
  spec.hf_config = "";
  EXPECT_FALSE(MakeModel(spec)) << "an empty file must not mean the default model";
}

}  // namespace
}  // namespace meshwright::models
