#include "config/foreign_keys.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace meshwright::config {
namespace {

struct ForeignKey {
  std::string_view section;  // "*": in any
  std::string_view name;     // "": the section itself
  std::string_view hint;
};

// The first that fits counts, so those of a section come first.
constexpr ForeignKey kForeignKeys[] = {
    {"checkpoint", "initial_load_in_hf",
     "leave it out: checkpoint.initial_load_path takes Hugging Face's names of weights"},
    {"checkpoint", "initial_load_model_only",
     "leave it out: checkpoint.initial_load_path loads weights only"},
    {"checkpoint", "last_save_model_only",
     "leave it out: checkpoint.last_save writes weights only, beside the whole state"},
    {"model", "hf_assets_path", "write model.hf_path"},
    {"model", "tokenizer_path",
     "write training.tokenizer, and training.dataset_format = \"text\" or \"jsonl\""},
    {"model", "converters", "there are no model converters here"},
    {"training", "dataset", "name a file with training.dataset_path"},
    {"training", "mixed_precision_param", "write training.dtype = \"bfloat16\""},
    {"training", "mixed_precision_reduce", "write training.gradient_dtype"},
    {"training", "deterministic", "leave it out: the same layout gives the same bits"},
    {"training", "gc_freq", "leave it out: nothing is garbage collected here"},
    {"training", "enable_cpu_offload",
     "write parallelism.optimizer_memory = \"auto\", and the same for weights_memory, "
     "gradients_memory and activations_memory where that is not enough"},
    {"optimizer", "implementation", "leave it out: there is one implementation"},
    {"lr_scheduler", "decay_ratio", "write lr_scheduler.total_steps, where the decay ends"},
    {"lr_scheduler", "min_lr_factor",
     "write lr_scheduler.min_lr, a rate and not a share of optimizer.lr"},
    {"parallelism", "fsdp_reshard_after_forward",
     "leave it out: parallelism.zero_stage says what replicas split"},
    {"parallelism", "enable_async_tensor_parallel", "leave it out: the planner decides"},
    {"parallelism", "disable_loss_parallel", "leave it out: the planner decides"},
    {"parallelism", "pipeline_parallel_microbatch_size",
     "write parallelism.pipeline_parallel_microbatches, how many a replica's batch is cut into"},
    {"parallelism", "pipeline_parallel_layers_per_stage",
     "write parallelism.pipeline_parallel_layers, such as \"7,5\""},
    {"activation_checkpoint", "selective_ac_option",
     "leave it out: mode \"selective\" computes norms and activation functions again"},
    {"validation", "enable", "leave it out: validation.batches = 0 turns validation off"},
    {"validation", "freq", "write validation.interval"},
    {"validation", "steps", "write validation.batches"},
    {"validation", "dataset", "name a file with validation.dataset_path"},
    {"metrics", "enable_tensorboard",
     "name a folder with metrics.tensorboard_dir; `meshwright records` writes it later, too"},
    {"metrics", "save_tb_folder", "write metrics.tensorboard_dir"},
    {"metrics", "enable_wandb",
     "Weights & Biases is not written to; metrics.jsonl and Prometheus metrics always are"},
    {"compile", "components", "leave it out: everything is compiled"},
    {"job", "dump_folder", "the files of a job are in the controller's folder of state"},
    {"job", "config_file", "name the job file on the command line"},
    {"profiling", "",
     "there is no profiler yet; `meshwright plan JOB --trace FILE` writes the forecast timeline"},
    {"experimental", "", "there is no such section"},
    {"comm", "",
     "there is no such section; `meshwright controller --worker-lost-ms` says when a silent worker "
     "is lost"},
    {"float8", "", "float8 is not supported; training.dtype = \"bfloat16\" is"},
    {"quantize", "", "quantised training is not supported; training.dtype = \"bfloat16\" is"},
    {"*", "learning_rate", "write optimizer.lr"},
    {"*", "grad_accum_steps",
     "write training.gradient_accumulation_steps: a replica's batch "
     "(training.global_batch_size / replicas) goes through in so many pieces"},
    {"*", "label_smoothing_factor", "write training.label_smoothing"},
    {"*", "lora_alpha", "write lora.alpha"},
    {"*", "lora_dropout", "write lora.dropout"},
    {"*", "use_rslora", "write lora.rank_stabilized"},
    {"*", "r", "write lora.rank"},
    {"*", "lora_r", "write lora.rank"},
    {"*", "lora_rank", "write lora.rank"},
    {"*", "lora_target", "write lora.target_modules"},
    {"*", "lora_target_modules", "write lora.target_modules"},
    {"peft", "", "adapters are the section [lora], with rank, alpha and target_modules"},
    {"*", "per_device_train_batch_size",
     "write training.local_batch_size (rows of a replica) or training.global_batch_size"},
    {"*", "micro_batch_size",
     "write parallelism.pipeline_parallel_microbatches, how many a replica's batch is cut into"},
    {"*", "batch_size", "write training.global_batch_size, rows per step over all replicas"},
    {"*", "num_train_epochs", "write training.steps"},
    {"*", "max_steps", "write training.steps"},
    {"*", "train_iters", "write training.steps"},
    {"*", "max_grad_norm", "write training.max_norm"},
    {"*", "clip_grad", "write training.max_norm"},
    {"*", "warmup_ratio", "write lr_scheduler.warmup_steps"},
    {"*", "lr_scheduler_type", "write lr_scheduler.decay_type"},
    {"*", "adam_beta1", "write optimizer.beta1"},
    {"*", "adam_beta2", "write optimizer.beta2"},
    {"*", "adam_epsilon", "write optimizer.eps"},
    {"*", "bf16", "write training.dtype = \"bfloat16\""},
    {"*", "initial_scale_power", "write training.loss_scale, the scale itself"},
    {"*", "fp16", "write training.dtype = \"float16\""},
    {"*", "tf32", "write training.allow_tf32"},
    {"*", "gradient_checkpointing", "write activation_checkpoint.mode = \"full\""},
    {"*", "logging_steps", "write metrics.log_freq"},
    {"*", "eval_steps", "write validation.interval"},
    {"*", "save_steps", "write checkpoint.enable = true and checkpoint.interval"},
    {"*", "seq_length", "write training.seq_len"},
    {"*", "max_length", "write training.seq_len"},
    {"*", "hidden_size", "write model.dim"},
    {"*", "num_hidden_layers", "write model.n_layers"},
    {"*", "num_layers", "write model.n_layers"},
    {"*", "num_attention_heads", "write model.n_heads"},
};

struct ForeignValue {
  std::string_view section;
  std::string_view name;
  std::string_view value;
  std::string_view hint;
};

constexpr ForeignValue kForeignValues[] = {
    {"checkpoint", "async_mode", "async_with_pinned_mem",
     "write \"async\": what is saved is copied to memory that is kept for the next save"},
};

bool SameWord(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

std::string ForeignKeyHint(std::string_view section, std::string_view name) {
  const auto fits = [&](const ForeignKey& key) {
    const bool anywhere = key.section == "*" && !name.empty();
    return SameWord(key.name, name) && (anywhere || SameWord(key.section, section));
  };
  const auto it = std::find_if(std::begin(kForeignKeys), std::end(kForeignKeys), fits);
  return it == std::end(kForeignKeys) ? "" : "; " + std::string(it->hint);
}

std::string ForeignValueHint(std::string_view section, std::string_view name,
                             std::string_view value) {
  for (const ForeignValue& known : kForeignValues) {
    const bool fits = known.section == section && known.name == name;
    if (fits && SameWord(known.value, value)) return "; " + std::string(known.hint);
  }
  return "";
}

}  // namespace meshwright::config
