// Families of mixtures of experts: sizes, names of params, what a job file may say of them.
#include <gtest/gtest.h>

#include <set>

#include "client/trainer.h"
#include "models/mixture.h"
#include "models/registry.h"

namespace meshwright::models {
namespace {

ModelSpec FamilySpec(const std::string& name, const std::string& flavor = {}) {
  ModelSpec spec;
  spec.name = name;
  spec.flavor = flavor;
  return spec;
}

std::string ErrorOf(const ModelSpec& spec) {
  const auto model = MakeModel(spec);
  return model ? "no error" : model.error().message();
}

std::set<std::string> ParamsOf(const client::TrainerFunctions& functions) {
  const auto graph = client::BuildLossGraph("g", {.batch = 2, .sequence = 8}, functions);
  EXPECT_TRUE(graph) << graph.error();
  std::set<std::string> names;
  if (!graph) return names;
  for (const NodeId id : graph->NodesOf(ir::Op::kParam)) {
    names.insert(graph->node(id).attrs.Str("name"));
  }
  return names;
}

TEST(MixtureFamilies, HaveThePublishedParameterCounts) {
  const auto count = [](const char* name, const char* flavor) {
    const auto model = MakeModel(FamilySpec(name, flavor));
    EXPECT_TRUE(model) << model.error();
    return model ? model->param_count : 0;
  };
  EXPECT_EQ(count("mixtral", "8x7B"), 46'702'792'704);
  EXPECT_EQ(count("mixtral", "8x22B"), 140'630'071'296);
  EXPECT_EQ(count("qwen2-moe", "A2.7B"), 14'315'784'192);
  EXPECT_EQ(count("qwen3-moe", "30B-A3B"), 30'532'122'624);
  EXPECT_EQ(count("olmoe", "7B"), 6'919'161'856);
  EXPECT_EQ(count("deepseek-moe", "16B"), 16'375'728'128);
  EXPECT_EQ(count("deepseek-v3", "671B"), 671'026'419'200);
  EXPECT_EQ(count("gpt-oss", "20b"), 20'914'757'184);
  EXPECT_EQ(count("gpt-oss", "120b"), 116'829'156'672);
}

TEST(MixtureFamilies, OfEveryRouterGraphsHoldExactlyTheFormulasParameters) {
  for (const char* name :
       {"mixtral", "qwen2-moe", "qwen3-moe", "olmoe", "deepseek-moe", "deepseek-v3", "gpt-oss"}) {
    for (const std::string& router : RouterNames()) {
      ModelSpec spec = FamilySpec(name);
      spec.mixture.router = router;
      const auto model = MakeModel(spec);
      ASSERT_TRUE(model) << name << " " << router << " " << model.error();
      const auto graph = client::BuildLossGraph("g", {.batch = 2, .sequence = 8}, model->functions);
      ASSERT_TRUE(graph) << graph.error();
      EXPECT_EQ(client::CountParams(*graph), model->param_count) << name << " " << router;
    }
  }
  const MixtureConfig config = {.experts = {.experts = 4, .chosen = 2}};
  EXPECT_LT(ActiveParamCount(config), ParamCount(config));
}

TEST(MixtureFamilies, ParamsCarryTheNamesOfTheirFamily) {
  const auto mixtral = ParamsOf(MakeModel(FamilySpec("mixtral"))->functions);
  EXPECT_TRUE(mixtral.contains("model.layers.1.block_sparse_moe.experts.w2"));
  const auto qwen = ParamsOf(MakeModel(FamilySpec("qwen2-moe"))->functions);
  EXPECT_TRUE(qwen.contains("model.layers.0.self_attn.q_proj.bias"));
  EXPECT_TRUE(qwen.contains("model.layers.0.mlp.shared_expert.up_proj.weight"));
  EXPECT_TRUE(qwen.contains("model.layers.0.mlp.shared_expert_gate.weight"));
  const auto deepseek = ParamsOf(MakeModel(FamilySpec("deepseek-moe"))->functions);
  EXPECT_TRUE(deepseek.contains("model.layers.0.mlp.gate_proj.weight")) << "the first is dense";
  EXPECT_FALSE(deepseek.contains("model.layers.0.mlp.gate.weight"));
  EXPECT_TRUE(deepseek.contains("model.layers.1.mlp.gate.e_score_correction_bias"));
  EXPECT_TRUE(deepseek.contains("model.layers.1.mlp.shared_experts.up_proj.weight"));
  const auto olmoe = ParamsOf(MakeModel(FamilySpec("olmoe"))->functions);
  EXPECT_TRUE(olmoe.contains("model.layers.0.self_attn.k_norm.weight"));
  const auto latent = ParamsOf(MakeModel(FamilySpec("deepseek-v3"))->functions);
  EXPECT_TRUE(latent.contains("model.layers.1.self_attn.kv_a_proj_with_mqa.weight"));
}

TEST(MixtureFamilies, KeysOverrideAFamilyAndForeignOnesAreRefused) {
  ModelSpec spec = FamilySpec("deepseek-moe");
  spec.mixture.experts = 16;
  spec.mixture.groups = 8;
  EXPECT_EQ(ErrorOf(spec), "no error");
  spec.mixture.groups = 5;
  EXPECT_NE(ErrorOf(spec).find("expert_groups is 5, which does not divide n_experts 16"),
            std::string::npos);
  spec = FamilySpec("mixtral");
  spec.mixture.scale = 2;
  EXPECT_NE(ErrorOf(spec).find("routed_scale is of router \"sigmoid\" only"), std::string::npos);
  spec.mixture.router = "sigmoid";
  EXPECT_EQ(ErrorOf(spec), "no error");
  spec.mixture.router = "hash";
  EXPECT_NE(ErrorOf(spec).find("one of softmax, softmax_of_top, noisy, sigmoid"),
            std::string::npos);
  spec = FamilySpec("mixtral");
  spec.mixture.router = "noisy";
  spec.mixture.normalised = true;
  EXPECT_NE(ErrorOf(spec).find("normalise_weights is of routers"), std::string::npos);
  spec = FamilySpec("mixtral");
  spec.mixture.dense_layers = 1;
  EXPECT_NE(ErrorOf(spec).find("dense_ffn_dim, the width of their MLP, is 0; set it"),
            std::string::npos);
  spec.mixture.dense_layers = 2;
  EXPECT_NE(ErrorOf(spec).find("first_dense_layers is 2 of 2 layers"), std::string::npos);
  spec = FamilySpec("mixtral");
  spec.mixture.balance_form = "global";
  EXPECT_NE(ErrorOf(spec).find("balance_form 'global' is unknown"), std::string::npos);
  spec = FamilySpec("deepseek-v3");
  spec.kv_heads = 2;
  EXPECT_NE(ErrorOf(spec).find("model 'deepseek-v3' has no n_kv_heads"), std::string::npos);
  spec = FamilySpec("llama");
  spec.mixture.router = "sigmoid";
  EXPECT_NE(ErrorOf(spec).find("model 'llama' has no router"), std::string::npos);
  spec = FamilySpec("gpt2");
  spec.mixture.shared_inner = 8;
  EXPECT_NE(ErrorOf(spec).find("model 'gpt2' has no shared_ffn_dim"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::models
