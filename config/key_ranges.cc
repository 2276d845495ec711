#include "config/key_ranges.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <limits>

#include "ir/verify.h"

namespace meshwright::config {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr double kMaxSize = 1 << 28;  // of a model's dims
constexpr double kMaxDegree = 1 << 16;

constexpr std::array<KeyRange, 38> kRanges = {{
    {"model", "dim", 1, kMaxSize},
    {"model", "ffn_dim", 1, kMaxSize},
    {"model", "n_layers", 1, ir::kMaxLayers},
    {"model", "n_heads", 1, kMaxSize},
    {"model", "n_kv_heads", 1, kMaxSize},
    {"model", "vocab_size", 1, kMaxSize},
    {"model", "max_seq_len", 1, kMaxSize},
    {"model", "dropout", 0, 1, false, true},
    {"model", "norm_eps", 0, 1, true},
    {"model", "rope_theta", 0, 1e12, true},
    {"optimizer", "lr", 0, 1e6},
    {"optimizer", "beta1", 0, 1, false, true},
    {"optimizer", "beta2", 0, 1, false, true},
    {"optimizer", "eps", 1e-30, 1},
    {"optimizer", "weight_decay", 0, 1e6},
    {"optimizer", "momentum", 0, 1, false, true},
    {"lr_scheduler", "warmup_steps", 0, 1e12},
    {"lr_scheduler", "min_lr", 0, 1e6},
    {"lr_scheduler", "total_steps", 0, 1e12},
    {"training", "local_batch_size", 0, 1 << 24},
    {"training", "global_batch_size", 0, 1 << 24},
    {"training", "seq_len", 1, 1 << 24},
    {"training", "steps", 1, 1e12},
    {"training", "max_norm", 0, 1e12},
    {"training", "seed", 0, kAny},
    {"training", "steps_per_launch", 1, 1000},
    {"parallelism", "data_parallel_replicate_degree", 1, kMaxDegree},
    {"parallelism", "tensor_parallel_degree", 1, kMaxDegree},
    {"parallelism", "pipeline_parallel_degree", 1, kMaxDegree},
    {"parallelism", "pipeline_parallel_microbatches", 1, kMaxDegree},
    {"parallelism", "pipeline_parallel_chunks", 1, kMaxDegree},
    {"parallelism", "zero_stage", 0, 3},
    {"parallelism", "gradient_bucket_bytes", 1, 1e12},
    {"parallelism", "head_block_tokens", 0, 1 << 24},
    {"validation", "interval", 0, 1e12},
    {"validation", "batches", 0, 1e6},
    {"validation", "fraction", 0, 0.5},
    {"metrics", "log_freq", 1, 1e9},
}};

struct Renamed {
  std::string_view inside;
  std::string_view key;
};

constexpr std::array<Renamed, 39> kRenamed = {{
    {"train.global_batch", "training.global_batch_size"},
    {"train.sequence", "training.seq_len"},
    {"train.steps", "training.steps"},
    {"train.seed", "training.seed"},
    {"train.steps_per_launch", "training.steps_per_launch"},
    {"train.log_every", "metrics.log_freq"},
    {"train.validate_every", "validation.interval"},
    {"train.validation_batches", "validation.batches"},
    {"data.format", "training.dataset_format"},
    {"data.validation_fraction", "validation.fraction"},
    {"parallel.data", "parallelism.data_parallel_replicate_degree"},
    {"parallel.tensor", "parallelism.tensor_parallel_degree"},
    {"parallel.pipeline", "parallelism.pipeline_parallel_degree"},
    {"parallel.microbatches", "parallelism.pipeline_parallel_microbatches"},
    {"parallel.schedule", "parallelism.pipeline_parallel_schedule"},
    {"parallel.sequence_parallel", "parallelism.enable_sequence_parallel"},
    {"parallel.chunks", "parallelism.pipeline_parallel_chunks"},
    {"parallel.part_layers", "parallelism.pipeline_parallel_layers"},
    {"parallel.stage_meshes", "parallelism.pipeline_parallel_meshes"},
    {"parallel.tensor_axes", "parallelism.tensor_parallel_axes"},
    {"parallel.zero", "parallelism.zero_stage"},
    {"parallel.shardings", "parallelism.shardings"},
    {"parallel.sharding_pins", "parallelism.sharding_pins"},
    {"parallel.recompute", "activation_checkpoint.mode"},
    {"parallel.recompute_layers", "activation_checkpoint.layers"},
    {"parallel.bucket_bytes", "parallelism.gradient_bucket_bytes"},
    {"parallel.head_block_tokens", "parallelism.head_block_tokens"},
    {"parallel.device", "parallelism.device"},
    {"optimizer.max_norm", "training.max_norm"},
    {"optimizer.schedule", "lr_scheduler.decay_type"},
    {"optimizer.min_lr", "lr_scheduler.min_lr"},
    {"optimizer.warmup_steps", "lr_scheduler.warmup_steps"},
    {"optimizer.total_steps", "lr_scheduler.total_steps"},
    {"optimizer.lr", "optimizer.lr"},
    {"optimizer.beta1", "optimizer.beta1"},
    {"optimizer.beta2", "optimizer.beta2"},
    {"optimizer.eps", "optimizer.eps"},
    {"optimizer.weight_decay", "optimizer.weight_decay"},
    {"optimizer.momentum", "optimizer.momentum"},
}};

bool IsNameLetter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

std::string_view KeyOf(std::string_view word) {
  for (const Renamed& renamed : kRenamed) {
    if (renamed.inside == word) return renamed.key;
  }
  return {};
}

}  // namespace

bool KeyRange::Has(double value) const {
  const bool above = open_low ? value > low : value >= low;
  const bool below = open_high ? value < high : value <= high;
  return above && below;
}

std::string KeyRange::ToString() const {
  if (high == kAny) return fmt::format("at least {:.10g}", low);
  return fmt::format("in {}{:.10g}, {:.10g}{}", open_low ? '(' : '[', low, high,
                     open_high ? ')' : ']');
}

const KeyRange* FindRange(std::string_view section, std::string_view name) {
  for (const KeyRange& range : kRanges) {
    if (range.section == section && range.name == name) return &range;
  }
  return nullptr;
}

KeyText InKeyNames(const std::string& message) {
  KeyText result;
  for (size_t begin = 0; begin < message.size();) {
    size_t end = begin;
    while (end < message.size() && IsNameLetter(message[end])) ++end;
    std::string_view word = std::string_view(message).substr(begin, end - begin);
    // A full stop that ends a sentence is no part of a name.
    while (!word.empty() && word.back() == '.') word.remove_suffix(1);
    const std::string_view key = KeyOf(word);
    if (!key.empty() && result.first_key.empty()) result.first_key = key;
    result.text += key.empty() ? word : key;
    begin += word.size();
    if (word.empty() || begin < end) {
      if (begin < message.size()) result.text += message[begin++];
    }
  }
  return result;
}

}  // namespace meshwright::config
