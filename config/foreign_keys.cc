#include "config/foreign_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "config/config_keys.h"

namespace meshwright::config {
namespace {

using enum Origin;

// The first that fits counts, so those of a section come first.
constexpr ForeignKey kForeignKeys[] = {
    {kTorchTitan, "checkpoint", "initial_load_in_hf",
     "leave it out: checkpoint.initial_load_path takes Hugging Face's names of weights"},
    {kTorchTitan, "checkpoint", "initial_load_model_only",
     "leave it out: checkpoint.initial_load_path loads weights only"},
    {kTorchTitan, "checkpoint", "last_save_model_only",
     "leave it out: checkpoint.last_save writes weights only, beside the whole state"},
    {kTorchTitan, "model", "hf_assets_path", "write model.hf_path"},
    {kTorchTitan, "model", "tokenizer_path",
     "write training.tokenizer, and training.dataset_format = \"text\" or \"jsonl\""},
    {kTorchTitan, "model", "converters", "there are no model converters here"},
    {kTorchTitan, "training", "dataset", "name a file with training.dataset_path"},
    {kTorchTitan, "training", "mixed_precision_param", "write training.dtype = \"bfloat16\""},
    {kTorchTitan, "training", "mixed_precision_reduce", "write training.gradient_dtype"},
    {kTorchTitan, "training", "deterministic", "leave it out: the same layout gives the same bits"},
    {kTorchTitan, "training", "gc_freq", "leave it out: nothing is garbage collected here"},
    {kTorchTitan, "training", "enable_cpu_offload",
     "write parallelism.optimizer_memory = \"auto\", and the same for weights_memory, "
     "gradients_memory and activations_memory where that is not enough"},
    {kTorchTitan, "optimizer", "implementation", "leave it out: there is one implementation"},
    {kTorchTitan, "lr_scheduler", "decay_ratio",
     "write lr_scheduler.total_steps, where the decay ends"},
    {kTorchTitan, "lr_scheduler", "min_lr_factor",
     "write lr_scheduler.min_lr, a rate and not a share of optimizer.lr"},
    {kTorchTitan, "parallelism", "fsdp_reshard_after_forward",
     "leave it out: parallelism.zero_stage says what replicas split"},
    {kTorchTitan, "parallelism", "context_parallel_rotate_method",
     "write parallelism.context_parallel_attention"},
    {kTorchTitan, "parallelism", "enable_async_tensor_parallel",
     "leave it out: the planner decides"},
    {kTorchTitan, "parallelism", "disable_loss_parallel", "leave it out: the planner decides"},
    {kTorchTitan, "parallelism", "pipeline_parallel_microbatch_size",
     "write parallelism.pipeline_parallel_microbatches, how many a replica's batch is cut into"},
    {kTorchTitan, "parallelism", "pipeline_parallel_layers_per_stage",
     "write parallelism.pipeline_parallel_layers, such as \"7,5\""},
    {kTorchTitan, "activation_checkpoint", "selective_ac_option",
     "leave it out: mode \"selective\" computes norms and activation functions again"},
    {kTorchTitan, "validation", "enable",
     "leave it out: validation.batches = 0 turns validation off"},
    {kTorchTitan, "validation", "freq", "write validation.interval"},
    {kTorchTitan, "validation", "steps", "write validation.batches"},
    {kTorchTitan, "validation", "dataset", "name a file with validation.dataset_path"},
    {kTorchTitan, "metrics", "enable_tensorboard",
     "name a folder with metrics.tensorboard_dir; `meshwright records` writes it later, too"},
    {kTorchTitan, "metrics", "save_tb_folder", "write metrics.tensorboard_dir"},
    {kTorchTitan, "metrics", "enable_wandb",
     "Weights & Biases is not written to; metrics.jsonl and Prometheus metrics always are"},
    {kTorchTitan, "compile", "components", "leave it out: everything is compiled"},
    {kTorchTitan, "job", "dump_folder",
     "the files of a job are in the controller's folder of state"},
    {kTorchTitan, "job", "config_file", "name the job file on the command line"},
    {kTorchTitan, "debug", "",
     "write training.seed for its seed; the same layout gives the same bits as it is"},
    {kTorchTitan, "profiling", "",
     "there is no profiler to turn on: `meshwright timeline JOB` shows what a job's devices did, "
     "`meshwright plan JOB --trace FILE` writes the forecast timeline"},
    {kTorchTitan, "experimental", "", "there is no such section"},
    {kTorchTitan, "comm", "",
     "there is no such section; `meshwright controller --worker-lost-ms` says when a silent worker "
     "is lost, fault_tolerance.stall_seconds when a job stands still"},
    {kTorchTitan, "float8", "", "float8 is not supported; training.dtype = \"bfloat16\" is"},
    {kTorchTitan, "quantize", "",
     "quantised training is not supported; training.dtype = \"bfloat16\" is"},

    {kTrainer, "*", "model_name_or_path", "write model.hf_path, a folder on this machine"},
    {kTrainer, "*", "output_dir",
     "leave it out: the files of a job are in the controller's folder of state; "
     "`meshwright describe JOB` names it"},
    {kTrainer, "*", "train_file", "write training.dataset_path"},
    {kTrainer, "*", "validation_file", "write validation.dataset_path"},
    {kTrainer, "*", "dataset_text_field",
     "leave it out: rows of JSON lines have \"text\" (training.dataset_format = \"jsonl\")"},
    {kTrainer, "*", "learning_rate", "write optimizer.lr"},
    {kTrainer, "*", "weight_decay", "write optimizer.weight_decay"},
    {kTrainer, "*", "adam_beta1", "write optimizer.beta1"},
    {kTrainer, "*", "adam_beta2", "write optimizer.beta2"},
    {kTrainer, "*", "adam_epsilon", "write optimizer.eps"},
    {kTrainer, "*", "optim", "write optimizer.name"},
    {kTrainer, "*", "max_grad_norm", "write training.max_norm"},
    {kTrainer, "*", "lr_scheduler_type", "write lr_scheduler.decay_type"},
    {kTrainer, "*", "lr_scheduler_kwargs",
     "write lr_scheduler.power, lr_scheduler.cycles (num_cycles) and lr_scheduler.min_lr (lr_end)"},
    {kTrainer, "*", "num_cycles", "write lr_scheduler.cycles"},
    {kTrainer, "*", "lr_end", "write lr_scheduler.min_lr"},
    {kTrainer, "*", "warmup_steps", "write lr_scheduler.warmup_steps"},
    {kTrainer, "*", "warmup_ratio", "write lr_scheduler.warmup_steps"},
    {kTrainer, "*", "per_device_train_batch_size",
     "write training.local_batch_size (rows of a replica) or training.global_batch_size"},
    {kTrainer, "*", "per_device_eval_batch_size",
     "leave it out: validation has training.global_batch_size rows a batch"},
    {kTrainer, "*", "batch_size",
     "write training.global_batch_size, rows per step over all replicas"},
    {kTrainer, "*", "gradient_accumulation_steps",
     "write training.gradient_accumulation_steps: a replica's batch "
     "(training.global_batch_size / replicas) goes through in so many pieces"},
    {kTrainer, "*", "grad_accum_steps",
     "write training.gradient_accumulation_steps: a replica's batch "
     "(training.global_batch_size / replicas) goes through in so many pieces"},
    {kTrainer, "*", "num_train_epochs",
     "write training.steps: tokens of the data / (training.global_batch_size x "
     "training.seq_len) is an epoch"},
    {kTrainer, "*", "num_epochs",
     "write training.steps: tokens of the data / (training.global_batch_size x "
     "training.seq_len) is an epoch"},
    {kTrainer, "*", "epochs",
     "write training.steps: tokens of the data / (training.global_batch_size x "
     "training.seq_len) is an epoch"},
    {kTrainer, "*", "max_steps", "write training.steps"},
    {kTrainer, "*", "max_length", "write training.seq_len"},
    {kTrainer, "*", "max_seq_length", "write training.seq_len"},
    {kTrainer, "*", "block_size", "write training.seq_len"},
    {kTrainer, "*", "packing", "write training.packing"},
    {kTrainer, "*", "whole_word_mask", "write training.mask_whole_words = true"},
    {kTrainer, "*", "assistant_only_loss", "write training.loss_on = \"answers\""},
    {kTrainer, "*", "completion_only_loss", "write training.loss_on = \"answers\""},
    {kTrainer, "*", "label_smoothing_factor", "write training.label_smoothing"},
    {kTrainer, "*", "bf16", "write training.dtype = \"bfloat16\""},
    {kTrainer, "*", "fp16", "write training.dtype = \"float16\""},
    {kTrainer, "*", "tf32", "write training.allow_tf32"},
    {kTrainer, "*", "torch_dtype", "write training.dtype"},
    {kTrainer, "*", "gradient_checkpointing", "write activation_checkpoint.mode = \"full\""},
    {kTrainer, "*", "torch_compile", "leave it out: everything is compiled"},
    {kTrainer, "*", "attn_implementation", "leave it out: there is one attention, in tiles"},
    {kTrainer, "*", "fsdp", "write parallelism.zero_stage, or leave it to the planner"},
    {kTrainer, "*", "deepspeed", "write parallelism.zero_stage, or leave it to the planner"},
    {kTrainer, "*", "logging_steps", "write metrics.log_freq"},
    {kTrainer, "*", "eval_steps", "write validation.interval"},
    {kTrainer, "*", "eval_strategy",
     "write validation.interval; 0 validates at the end only, validation.batches = 0 never"},
    {kTrainer, "*", "save_steps", "write checkpoint.enable = true and checkpoint.interval"},
    {kTrainer, "*", "save_strategy", "write checkpoint.enable = true and checkpoint.interval"},
    {kTrainer, "*", "save_total_limit", "write checkpoint.keep_latest_k"},
    {kTrainer, "*", "resume_from_checkpoint",
     "leave it out: `meshwright submit --resume JOB` or `--from FOLDER` goes on"},
    {kTrainer, "*", "report_to",
     "leave it out: metrics.jsonl and Prometheus metrics are always written"},
    {kTrainer, "*", "run_name", "write job.name"},
    {kTrainer, "*", "dataloader_num_workers", "leave it out: workers read ahead by themselves"},
    {kTrainer, "peft", "", "adapters are the section [lora], with rank, alpha and target_modules"},
    {kTrainer, "*", "r", "write lora.rank"},
    {kTrainer, "*", "lora_r", "write lora.rank"},
    {kTrainer, "*", "lora_rank", "write lora.rank"},
    {kTrainer, "*", "lora_alpha", "write lora.alpha"},
    {kTrainer, "*", "lora_dropout", "write lora.dropout"},
    {kTrainer, "*", "use_rslora", "write lora.rank_stabilized"},
    {kTrainer, "*", "lora_target", "write lora.target_modules"},
    {kTrainer, "*", "lora_target_modules", "write lora.target_modules"},

    {kMegatron, "*", "tensor_model_parallel_size", "write parallelism.tensor_parallel_degree"},
    {kMegatron, "*", "pipeline_model_parallel_size", "write parallelism.pipeline_parallel_degree"},
    {kMegatron, "*", "num_layers_per_virtual_pipeline_stage",
     "write parallelism.pipeline_parallel_schedule = \"interleaved\" and "
     "parallelism.pipeline_parallel_chunks"},
    {kMegatron, "*", "context_parallel_size", "write parallelism.context_parallel_degree"},
    {kMegatron, "*", "expert_model_parallel_size", "write parallelism.expert_parallel_degree"},
    {kMegatron, "*", "sequence_parallel", "write parallelism.enable_sequence_parallel"},
    {kMegatron, "*", "use_distributed_optimizer", "write parallelism.zero_stage = 1"},
    {kMegatron, "*", "overlap_grad_reduce",
     "write parallelism.overlap, or leave it to the planner"},
    {kMegatron, "*", "overlap_param_gather",
     "write parallelism.overlap, or leave it to the planner"},
    {kMegatron, "*", "micro_batch_size",
     "write parallelism.pipeline_parallel_microbatches, how many a replica's batch is cut into"},
    {kMegatron, "*", "global_batch_size", "write training.global_batch_size"},
    {kMegatron, "*", "train_iters", "write training.steps"},
    {kMegatron, "*", "seq_length", "write training.seq_len"},
    {kMegatron, "*", "max_position_embeddings", "write model.max_seq_len"},
    {kMegatron, "*", "num_layers", "write model.n_layers"},
    {kMegatron, "*", "num_hidden_layers", "write model.n_layers"},
    {kMegatron, "*", "hidden_size", "write model.dim"},
    {kMegatron, "*", "ffn_hidden_size", "write model.ffn_dim"},
    {kMegatron, "*", "intermediate_size", "write model.ffn_dim"},
    {kMegatron, "*", "num_attention_heads", "write model.n_heads"},
    {kMegatron, "*", "num_query_groups", "write model.n_kv_heads"},
    {kMegatron, "*", "num_key_value_heads", "write model.n_kv_heads"},
    {kMegatron, "*", "num_experts", "write model.n_experts"},
    {kMegatron, "*", "moe_router_topk", "write model.experts_per_token"},
    {kMegatron, "*", "untie_embeddings_and_output_weights", "write model.tie_embeddings = false"},
    {kMegatron, "*", "lr", "write optimizer.lr"},
    {kMegatron, "*", "min_lr", "write lr_scheduler.min_lr"},
    {kMegatron, "*", "lr_decay_style", "write lr_scheduler.decay_type"},
    {kMegatron, "*", "lr_decay_iters", "write lr_scheduler.total_steps"},
    {kMegatron, "*", "lr_warmup_iters", "write lr_scheduler.warmup_steps"},
    {kMegatron, "*", "clip_grad", "write training.max_norm"},
    {kMegatron, "*", "seed", "write training.seed"},
    {kMegatron, "*", "initial_loss_scale", "write training.loss_scale"},
    {kMegatron, "*", "recompute_granularity", "write activation_checkpoint.mode"},
    {kMegatron, "*", "recompute_num_layers", "write activation_checkpoint.layers"},
    {kMegatron, "*", "data_path", "write training.dataset_path"},
    {kMegatron, "*", "tokenizer_model", "write training.tokenizer"},
    {kMegatron, "*", "save", "write checkpoint.enable = true and checkpoint.folder"},
    {kMegatron, "*", "load",
     "leave it out: `meshwright submit --from FOLDER` goes on from a checkpoint"},
    {kMegatron, "*", "save_interval", "write checkpoint.enable = true and checkpoint.interval"},
    {kMegatron, "*", "eval_interval", "write validation.interval"},
    {kMegatron, "*", "eval_iters", "write validation.batches"},
    {kMegatron, "*", "log_interval", "write metrics.log_freq"},

    {kDeepSpeed, "*", "train_batch_size", "write training.global_batch_size"},
    {kDeepSpeed, "*", "train_micro_batch_size_per_gpu",
     "write training.gradient_accumulation_steps, how many pieces a replica's batch is cut into"},
    {kDeepSpeed, "*", "gradient_clipping", "write training.max_norm"},
    {kDeepSpeed, "*", "steps_per_print", "write metrics.log_freq"},
    {kDeepSpeed, "*", "initial_scale_power", "write training.loss_scale, the scale itself"},
    {kDeepSpeed, "*", "loss_scale_window", "write training.loss_scale_window"},
    {kDeepSpeed, "*", "wall_clock_breakdown",
     "leave it out: `meshwright why JOB` says where a step's time goes"},
    {kDeepSpeed, "zero_optimization", "",
     "write parallelism.zero_stage for its stage, parallelism.optimizer_memory and "
     "parallelism.weights_memory for what it offloads, parallelism.gradient_bucket_bytes for "
     "reduce_bucket_size of gradients that zero_stage does not split, "
     "parallelism.zero_min_weight_bytes for stage3_param_persistence_threshold, which counts "
     "elements"},
    {kDeepSpeed, "bf16", "", "write training.dtype = \"bfloat16\""},
    {kDeepSpeed, "fp16", "",
     "write training.dtype = \"float16\", and training.loss_scale where the first one is to "
     "differ"},
    {kDeepSpeed, "scheduler", "",
     "write lr_scheduler.decay_type, lr_scheduler.warmup_steps and lr_scheduler.min_lr"},
    {kDeepSpeed, "activation_checkpointing", "", "write activation_checkpoint.mode"},
    {kDeepSpeed, "pipeline", "", "write parallelism.pipeline_parallel_degree"},
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
    {"training", "dtype", "bf16", "write \"bfloat16\""},
    {"training", "dtype", "fp16", "write \"float16\""},
    {"training", "dtype", "f16", "write \"float16\""},
    {"training", "dtype", "half", "write \"float16\""},
    {"training", "dtype", "fp32", "write \"float32\""},
    {"training", "dtype", "f32", "write \"float32\""},
    {"training", "dtype", "fp64", "write \"float64\""},
    {"training", "dtype", "f64", "write \"float64\""},
    {"optimizer", "name", "adam",
     "write \"adamw\", and optimizer.weight_decay = 0 for Adam as it was"},
};

char Plain(char c) {
  return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool SameWord(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Plain(x) == Plain(y); });
}

bool IsOfKey(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

// The hint with our keys as code, and without the "write" that stands before most.
std::string CellOf(std::string_view hint) {
  constexpr std::string_view kWrite = "write ";
  if (hint.starts_with(kWrite)) hint.remove_prefix(kWrite.size());
  std::string cell;
  while (!hint.empty()) {
    const auto end = std::find_if_not(hint.begin(), hint.end(), IsOfKey);
    const auto length = static_cast<size_t>(end - hint.begin());
    if (length == 0) {
      cell += hint.front();
      hint.remove_prefix(1);
      continue;
    }
    const std::string_view word = hint.substr(0, length);
    const size_t dot = word.find('.');
    const bool ours = dot != std::string_view::npos &&
                      FindKey(word.substr(0, dot), word.substr(dot + 1)) != nullptr;
    cell += ours ? fmt::format("`{}`", word) : std::string(word);
    hint.remove_prefix(length);
  }
  return cell;
}

// As its users write it.
std::string SpellingOf(const ForeignKey& key) {
  if (key.name.empty()) return fmt::format("[{}]", key.section);
  if (key.section != "*") return fmt::format("{}.{}", key.section, key.name);
  std::string name(key.name);
  if (key.from != kMegatron) return name;
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

}  // namespace

std::string_view OriginName(Origin origin) {
  switch (origin) {
    case kTorchTitan:
      return "torchtitan";
    case kTrainer:
      return "trainer";
    case kMegatron:
      return "megatron";
    case kDeepSpeed:
      return "deepspeed";
  }
  return "";
}

std::span<const ForeignKey> ForeignKeys() { return kForeignKeys; }

std::string ForeignKeyHint(std::string_view section, std::string_view name) {
  if (FindKey(section, name) != nullptr) return "";
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

std::string ForeignKeyTable(Origin origin) {
  std::string text = "| there | here |\n|---|---|\n";
  for (const ForeignKey& key : kForeignKeys) {
    if (key.from != origin) continue;
    text += fmt::format("| `{}` | {} |\n", SpellingOf(key), CellOf(key.hint));
  }
  return text;
}

}  // namespace meshwright::config
