#include "tests/fuzz/small_job.h"

#include "config/job_config.h"
#include "ir/text.h"
#include "tests/fuzz/bytes.h"

namespace meshwright::fuzz {

const char kSmallJobFile[] = R"([job]
name = "small"
[model]
name = "gpt2"
dim = 16
n_layers = 1
n_heads = 2
vocab_size = 256
[training]
dataset_path = "none.txt"
global_batch_size = 4
seq_len = 8
steps = 5
max_norm = 1.0
[optimizer]
name = "adamw"
lr = 3e-3
beta1 = 0.9
[lr_scheduler]
warmup_steps = 2
[parallelism]
tensor_parallel_degree = "auto"
pipeline_parallel_degree = 1
[checkpoint]
interval = 2
)";

const ir::JobRequest& SmallJob() {
  static const ir::JobRequest job = [] {
    config::ConfigSource source;
    source.text = kSmallJobFile;
    source.environment = [](const std::string&) { return std::nullopt; };
    source.environment_names.clear();
    return Sure(config::PrepareJob(Sure(config::ParseJobConfig(source)))).request;
  }();
  return job;
}

Seeds SeedsOfGraphs() {
  Seeds seeds;
  for (const ir::JobProgram& program : SmallJob().programs) {
    seeds.push_back(ir::FormatGraph(program.graph));
  }
  return seeds;
}

}  // namespace meshwright::fuzz
