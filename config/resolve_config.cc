#include "config/resolve_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "ir/parallel_pins.h"
#include "ir/rate_schedule.h"
#include "planner/zero_levels.h"

namespace meshwright::config {
namespace {

// "job.toml:12:9", or the file when the key has its default.
std::string Where(const JobConfig& config, const std::string& key, const std::string& file) {
  const auto it = config.origins.find(key);
  return it == config.origins.end() ? file : it->second;
}

// As job files call it.
std::string KeyOf(const planner::ZeroLevel& level) {
  for (const ir::Pin& pin : ir::Pins()) {
    if (pin.member == ir::PinMember(level.pin)) return pin.key;
  }
  return level.name;
}

Status CheckName(const JobConfig& config, const std::string& file) {
  const bool control = std::any_of(config.name.begin(), config.name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (!control) return OkStatus();
  return InvalidArgument(
      fmt::format("{}: job.name has a line end, a tab or another control character; it stands in "
                  "tables: use letters and spaces (job.description may have lines)",
                  Where(config, "job.name", file)));
}

Status ResolveBatch(JobConfig& config, const std::string& file) {
  const int64_t replicas = config.parallel.data;
  const int64_t local = config.local_batch_size;
  if (local > 0 && replicas == 0 && config.global_batch_size == 0) {
    return InvalidArgument(
        fmt::format("{}: training.local_batch_size needs a number for "
                    "parallelism.data_parallel_replicate_degree; with \"auto\" set "
                    "training.global_batch_size",
                    Where(config, "training.local_batch_size", file)));
  }
  if (local > 0 && config.global_batch_size > 0 && replicas > 0 &&
      local * replicas != config.global_batch_size) {
    return InvalidArgument(
        fmt::format("{}: training.local_batch_size {} x data_parallel_replicate_degree {} is not "
                    "training.global_batch_size {}; "
                    "set one of them",
                    Where(config, "training.local_batch_size", file), local, replicas,
                    config.global_batch_size));
  }
  if (local > 0 && config.global_batch_size > 0 && replicas == 0) {
    config.notes.push_back(
        "training.local_batch_size has no effect with training.global_batch_size and "
        "data_parallel_replicate_degree \"auto\"");
  }
  if (config.global_batch_size == 0) config.global_batch_size = local > 0 ? local * replicas : 8;
  config.train.global_batch = config.global_batch_size;
  return OkStatus();
}

// Two names of one thing.
Status ResolveAccumulation(JobConfig& config, const std::string& file) {
  const int64_t steps = config.accumulation_steps;
  int64_t& microbatches = config.parallel.microbatches;
  if (steps == 0) return OkStatus();
  if (microbatches != 0 && microbatches != steps) {
    return InvalidArgument(fmt::format(
        "{}: training.gradient_accumulation_steps {} is not "
        "parallelism.pipeline_parallel_microbatches {}, which is the same thing; set one of them",
        Where(config, "training.gradient_accumulation_steps", file), steps, microbatches));
  }
  microbatches = steps;
  return OkStatus();
}

Status ResolveSchedule(JobConfig& config, const std::string& file) {
  ir::OptimizerSpec& optimizer = config.optimizer;
  const int64_t steps = config.train.steps;
  if (optimizer.total_steps == 0) optimizer.total_steps = steps;
  const auto idle = [&](const char* key) {
    config.notes.push_back(fmt::format("lr_scheduler.{} has no effect with decay_type \"{}\"", key,
                                       optimizer.schedule));
  };
  if (config.decay_power != 1 && optimizer.schedule != ir::kPolynomial) idle("power");
  if (config.decay_cycles != 1 && optimizer.schedule != ir::kRestarts) idle("cycles");
  if (optimizer.schedule == "constant" || optimizer.schedule == ir::kInverseSqrt) {
    if (optimizer.min_lr != 0) idle("min_lr");
    if (optimizer.total_steps != steps) idle("total_steps");
  } else if (ir::IsRelative(optimizer.schedule)) {
    if (optimizer.min_lr != 0 || optimizer.total_steps != steps || optimizer.warmup_steps != 0) {
      config.notes.push_back(fmt::format(
          "lr_scheduler.min_lr, total_steps and warmup_steps have no effect with decay_type \"{}\"",
          optimizer.schedule));
    }
  } else {
    if (optimizer.min_lr > optimizer.lr) {
      return InvalidArgument(fmt::format(
          "{}: lr_scheduler.min_lr {} is above optimizer.lr {}; a decay goes down: lower min_lr",
          Where(config, "lr_scheduler.min_lr", file), optimizer.min_lr, optimizer.lr));
    }
    if (optimizer.total_steps < steps) {
      config.notes.push_back(
          fmt::format("lr_scheduler.total_steps {} is below training.steps {}: the steps after it "
                      "run at min_lr {}",
                      optimizer.total_steps, steps, optimizer.min_lr));
    }
  }
  if (optimizer.warmup_steps >= steps) {
    config.notes.push_back(
        fmt::format("lr_scheduler.warmup_steps {} is not below training.steps {}: the job ends in "
                    "its warm-up",
                    optimizer.warmup_steps, steps));
  }
  return OkStatus();
}

// Of activation_checkpoint.layers: "0-3,5"; not so "0-2 full", which has a mode of its own.
bool NamesLayersOnly(const std::string& ranges) {
  for (const std::string& range : Split(ranges, ',')) {
    if (Trim(range).find(' ') != std::string_view::npos) return false;
  }
  return !ranges.empty();
}

// What is said of a thing that the job does not have.
void NoteUnusedSizes(JobConfig& config) {
  const auto says = [&](const char* key) { return config.origins.contains(key); };
  if ((says("training.loss_scale") || says("training.loss_scale_window")) &&
      config.dtype != "float16") {
    config.notes.emplace_back(
        "training.loss_scale and loss_scale_window have no effect but with dtype \"float16\"");
  }
  const ir::ParallelSpec& parallel = config.parallel;
  const bool is_near =
      parallel.optimizer_memory == "device" && parallel.weights_memory == "device" &&
      parallel.gradients_memory == "device" && parallel.activations_memory == "device";
  if (says("parallelism.offload_chunk_bytes") && is_near) {
    config.notes.emplace_back(
        "parallelism.offload_chunk_bytes has no effect where all state is in the device's memory; "
        "optimizer_memory and its like say where it is");
  }
  if (says("parallelism.zero_min_weight_bytes") && parallel.zero == 0) {
    config.notes.emplace_back("parallelism.zero_min_weight_bytes has no effect with zero_stage 0");
  }
}

void NoteUnused(JobConfig& config) {
  const ir::OptimizerSpec defaults;
  const ir::OptimizerSpec& optimizer = config.optimizer;
  const auto note = [&](bool unused, const char* text) {
    if (unused) config.notes.emplace_back(text);
  };
  note(optimizer.name != "sgd" && optimizer.momentum != 0,
       "optimizer.momentum has no effect but with sgd; beta1 is its counterpart");
  note(optimizer.name == "lion" && optimizer.eps != defaults.eps,
       "optimizer.eps has no effect with lion");
  note(optimizer.name == "adafactor" &&
           (optimizer.beta1 != defaults.beta1 || optimizer.beta2 != defaults.beta2 ||
            optimizer.eps != defaults.eps),
       "optimizer.beta1, beta2 and eps have no effect with adafactor; it has decay_rate");
  note(optimizer.name == "sgd" &&
           (optimizer.beta1 != defaults.beta1 || optimizer.beta2 != defaults.beta2 ||
            optimizer.eps != defaults.eps),
       "optimizer.beta1, beta2 and eps have no effect with sgd");
  note(config.parallel.sequence_parallel.value_or(false) && config.parallel.tensor == 1,
       "parallelism.enable_sequence_parallel has no effect with tensor_parallel_degree 1");
  note(config.parallel.zero > 0 && config.parallel.data == 1,
       "parallelism.zero_stage has no effect with data_parallel_replicate_degree 1");
  for (const planner::ZeroLevel& level : planner::ZeroLevels()) {
    const int64_t stage = config.parallel.zero;
    if (config.parallel.*level.pin == 0 || stage < 0 || stage >= level.first_stage) continue;
    config.notes.push_back(fmt::format(
        "{} has no effect with zero_stage {}: {} from stage {} on", KeyOf(level), stage,
        level.kind == planner::ZeroKind::kOptimizer ? "the optimizer's state is split"
                                                    : fmt::format("the {} are split", level.name),
        level.first_stage));
  }
  const bool lists_layers = NamesLayersOnly(config.parallel.recompute_layers);
  note(lists_layers && config.parallel.recompute == "none",
       "activation_checkpoint.layers has no effect with mode \"none\"");
  note(
      lists_layers && config.parallel.recompute == "auto",
      "activation_checkpoint.layers has no effect with mode \"auto\", which chooses layers itself");
  note(config.train.tf32 && (config.dtype != "float32" || config.parallel.device == "cpu"),
       "training.allow_tf32 has no effect but with dtype \"float32\" on GPUs");
  NoteUnusedSizes(config);
  note(config.parallel.chunks > 1 && config.parallel.pipeline == 1,
       "parallelism.pipeline_parallel_chunks has no effect with pipeline_parallel_degree 1");
  note(config.data.validation_fraction == 0 && config.validation_path.empty() &&
           config.train.validation_batches > 0,
       "validation.fraction is 0, so nothing is held out and no validation runs");
  // A format that is not said goes by the tokenizer.
  note(config.tokenizer != "byte" && config.origins.contains("training.dataset_format") &&
           config.dataset_format != "text" && config.dataset_format != "jsonl",
       "training.tokenizer has no effect: training.dataset_format is neither text nor jsonl");
  note(!config.validation_path.empty() && config.origins.contains("validation.fraction"),
       "validation.fraction has no effect with validation.dataset_path");
  note(config.train.validation_batches == 0 && config.train.validate_every > 0,
       "validation.interval has no effect with validation.batches 0");
  note(config.from_scratch && config.hf_path.empty(),
       "model.from_scratch has no effect without model.hf_path");
  note(config.from_scratch && !config.initial_load_path.empty(),
       "model.from_scratch has no effect with checkpoint.initial_load_path");
  note(config.queue.preemptible && !config.checkpoint.enable,
       "job.preemptible has no effect without checkpoint.enable");
  note(config.origins.contains("checkpoint.interval") && !config.checkpoint.enable,
       "checkpoint.interval has no effect without checkpoint.enable");
  note(config.origins.contains("checkpoint.async_mode") && !config.checkpoint.enable,
       "checkpoint.async_mode has no effect without checkpoint.enable");
  note(config.origins.contains("checkpoint.export_dtype") && !config.checkpoint.last_save_in_hf,
       "checkpoint.export_dtype has no effect without checkpoint.last_save_in_hf");
  note(config.lora.rank == 0 && config.adapter_path.empty() &&
           (!config.lora.target_modules.empty() || !config.lora.modules_to_save.empty()),
       "the keys of [lora] have no effect with lora.rank 0");
  note(!config.hf_path.empty() && !config.model.flavor.empty(),
       "model.flavor has no effect with model.hf_path");
}

}  // namespace

std::vector<Status> ResolveConfig(JobConfig& config, const std::string& file) {
  std::vector<Status> errors;
  const auto add = [&errors](const Status& status) {
    if (!status.ok()) errors.push_back(status);
  };
  add(CheckName(config, file));
  add(ResolveBatch(config, file));
  add(ResolveAccumulation(config, file));
  add(ResolveSchedule(config, file));
  NoteUnused(config);
  return errors;
}

}  // namespace meshwright::config
