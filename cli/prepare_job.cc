#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/job_config.h"
#include "client/trainer.h"

namespace meshwright::cli {
namespace {

Result<models::Model> MakeConfiguredModel(const JobConfig& config) {
  models::ModelSpec spec = config.model;
  if (!config.hf_path.empty()) {
    MW_ASSIGN_OR_RETURN(spec.hf_config, ReadFile(config.hf_path + "/config.json"));
  } else if (spec.name == "gpt2" && spec.flavor.empty() && !spec.positions) {
    // Free sizes: as many positions as the job uses.
    spec.positions = config.train.sequence;
  }
  MW_ASSIGN_OR_RETURN(models::Model model, models::MakeModel(spec));
  if (config.data.format == "bytes" && model.vocabulary < 256) {
    return Fail(InvalidArgument(
        fmt::format("model.vocab_size is {}; the byte tokenizer makes tokens 0..255 and needs 256",
                    model.vocabulary)));
  }
  if (model.max_sequence > 0 && config.train.sequence > model.max_sequence) {
    return Fail(InvalidArgument(
        fmt::format("training.seq_len is {}; the model has {} positions: raise model.max_seq_len",
                    config.train.sequence, model.max_sequence)));
  }
  return model;
}

}  // namespace

Result<PreparedJob> PrepareJob(const JobConfig& config) {
  PreparedJob prepared;
  MW_ASSIGN_OR_RETURN(prepared.model, MakeConfiguredModel(config));
  ir::OptimizerSpec optimizer = config.optimizer;
  if (optimizer.total_steps == 0) optimizer.total_steps = config.train.steps;
  client::JobBuilder builder(config.name);
  builder.Train(config.train)
      .Optimizer(optimizer)
      .Parallel(config.parallel)
      .Data(config.data)
      .DType(config.dtype == "float64" ? ir::DType::kF64 : ir::DType::kF32)
      .SaveWeights(config.last_save)
      .ConfigText(FormatJobConfig(config));
  MW_ASSIGN_OR_RETURN(prepared.request, builder.Build(prepared.model.functions));
  return prepared;
}

}  // namespace meshwright::cli
