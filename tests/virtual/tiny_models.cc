#include "tests/virtual/tiny_models.h"

#include "base/check.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "models/mixture.h"

namespace meshwright::testing {
namespace {

models::LlamaConfig Llama(const TinyOptions& options) {
  models::LlamaConfig config;
  config.vocabulary = options.vocabulary;
  config.width = 32;
  config.inner = 64;
  config.layers = options.layers;
  config.heads = 16;
  config.kv_heads = 8;
  config.head_size = options.llama_head_size;
  config.attention_dropout = options.dropout;
  config.tied = options.tied;
  // Token 0 stands for padding: its loss does not count.
  config.ignore_index = 0;
  config.document_separator = options.document_separator;
  config.attention_window = options.attention_window;
  return config;
}

models::MixtureConfig Mixture(const TinyOptions& options) {
  models::MixtureConfig config;
  config.llama = Llama(options);
  config.llama.inner = 24;
  config.experts.experts = options.experts;
  config.experts.capacity_factor = options.capacity_factor;
  config.balance_loss = options.balance_loss;
  config.z_loss = options.z_loss;
  if (options.mixture) options.mixture(config);
  return config;
}

client::TrainerFunctions Functions(const TinyOptions& options) {
  if (options.family == "llama") return models::MakeLlama(Llama(options));
  if (options.family == "mixtral") return models::MakeMixture(Mixture(options));
  models::Gpt2Config config;
  config.vocabulary = options.vocabulary;
  config.positions = options.sequence + 3;
  config.width = 32;
  config.layers = options.layers;
  config.heads = options.gpt2_heads;
  config.embedding_dropout = options.dropout;
  config.residual_dropout = options.dropout;
  config.attention_dropout = options.dropout;
  config.tied = options.tied;
  config.ignore_index = 0;
  config.document_separator = options.document_separator;
  return models::MakeGpt2(config);
}

}  // namespace

ir::JobRequest MakeTinyJob(const TinyOptions& options) {
  ir::OptimizerSpec optimizer;
  optimizer.lr = options.lr;
  optimizer.eps = options.adam_eps;
  optimizer.warmup_steps = 1;
  optimizer.max_norm = 0.5;
  ir::TrainSpec train;
  train.global_batch = options.batch;
  train.sequence = options.sequence;
  train.steps = 10;
  train.seed = 42;
  auto job = client::JobBuilder("tiny-" + options.family)
                 .Train(train)
                 .DType(options.dtype)
                 .Optimizer(optimizer)
                 .Build(Functions(options));
  MW_CHECK(job.has_value()) << job.error();
  job->parallel.zero_min_bytes = 0;  // all of its weights are small
  return std::move(*job);
}

}  // namespace meshwright::testing
