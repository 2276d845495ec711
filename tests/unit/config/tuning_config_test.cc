// Keys of fine-tuning: what they make of a job.
#include <gtest/gtest.h>

#include "config/job_config.h"
#include "ir/param_groups.h"

namespace meshwright::config {
namespace {

TEST(TuningConfig, AccumulationIsTheNumberOfMicrobatches) {
  ConfigSource source;
  source.environment_names.clear();
  source.overrides = {"training.gradient_accumulation_steps=4"};
  const auto config = ParseJobConfig(source);
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->parallel.microbatches, 4);
  source.overrides.push_back("parallelism.pipeline_parallel_microbatches=2");
  const auto two = ParseJobConfig(source);
  ASSERT_FALSE(two);
  EXPECT_NE(two.error().message().find("which is the same thing"), std::string::npos);
}

TEST(TuningConfig, TuningReachesTheJobsGraphs) {
  ConfigSource source;
  source.environment_names.clear();
  source.overrides = {"lora.rank=2", "lora.target_modules=c_attn", "training.trainable=*.ln_f.*",
                      "optimizer.param_groups=['*.lora_B.*: lr_factor=3']",
                      "training.label_smoothing=0.1"};
  const auto config = ParseJobConfig(source);
  ASSERT_TRUE(config) << config.error();
  const auto job = PrepareJob(*config);
  ASSERT_TRUE(job) << job.error();
  size_t trained = 0;
  size_t factors = 0;
  const ir::Graph& graph = job->request.main().graph;
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    trained += ir::IsFrozen(graph.node(id)) ? 0u : 1u;
    factors += graph.node(id).attrs.Real(ir::kRateFactorAttr) == 3 ? 1u : 0u;
  }
  EXPECT_EQ(trained, 2u * 2 + 2) << "A and B of two layers, a norm's weight and bias";
  EXPECT_EQ(factors, 2u);
  ASSERT_FALSE(job->model.notes.empty());
  EXPECT_NE(job->model.notes.back().find("params are trained"), std::string::npos);
  ConfigSource resolved;
  resolved.text = FormatJobConfig(*config);
  resolved.environment_names.clear();
  const auto again = ParseJobConfig(resolved);
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(again->lora, config->lora);
  EXPECT_EQ(again->param_groups, config->param_groups);
}

TEST(TuningConfig, TuningThatFitsNothingIsRefused) {
  const auto error = [](const std::string& setting) {
    ConfigSource source;
    source.environment_names.clear();
    source.overrides = {setting, "lora.rank=2"};
    const auto config = ParseJobConfig(source);
    if (!config) return config.error().message();
    const auto job = PrepareJob(*config);
    return job ? std::string() : job.error().message();
  };
  EXPECT_NE(error("lora.target_modules=q_proj").find("no module fits"), std::string::npos);
  EXPECT_NE(error("optimizer.param_groups=nonsense").find("optimizer.param_groups"),
            std::string::npos);
  EXPECT_NE(error("lora.dropout=1").find("lora.dropout"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::config
