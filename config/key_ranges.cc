#include "config/key_ranges.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <limits>

#include "ir/rate_schedule.h"
#include "ir/verify.h"

namespace meshwright::config {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr double kMaxSize = 1 << 28;  // of a model's dims
constexpr double kMaxDegree = 1 << 16;

constexpr auto kRanges = std::to_array<KeyRange>({
    {"job", "priority", -1000, 1000},
    {"job", "max_queue_wait_seconds", 0, 1e9},
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
    {"model", "attention_window", 0, 1 << 30},
    {"model", "n_labels", 0, 65536},
    {"model", "mask_token", 0, kMaxSize},
    {"model", "image_size", 1, 1 << 14},
    {"model", "patch_size", 1, 1 << 14},
    {"model", "n_experts", 1, 65536},
    {"model", "experts_per_token", 1, 65536},
    {"model", "expert_groups", 1, 65536},
    {"model", "expert_groups_per_token", 1, 65536},
    {"model", "routed_scale", 0, 1e6, true},
    {"model", "router_bias_rate", 0, 1},
    {"model", "capacity_factor", 0, 1e6},
    {"model", "expert_slots_factor", 0, 1e6},
    {"model", "shared_ffn_dim", 0, kMaxSize},
    {"model", "first_dense_layers", 0, ir::kMaxLayers},
    {"model", "dense_ffn_dim", 1, kMaxSize},
    {"model", "balance_loss", 0, 1e6},
    {"model", "z_loss", 0, 1e6},
    {"optimizer", "lr", 0, 1e6},
    {"optimizer", "beta1", 0, 1, false, true},
    {"optimizer", "beta2", 0, 1, false, true},
    {"optimizer", "eps", 1e-30, 1},
    {"optimizer", "weight_decay", 0, 1e6},
    {"optimizer", "momentum", 0, 1, false, true},
    {"optimizer", "decay_rate", 0, 10},
    {"optimizer", "clip_threshold", 1e-12, 1e12},
    {"lr_scheduler", "warmup_steps", 0, 1e12},
    {"lr_scheduler", "min_lr", 0, 1e6},
    {"lr_scheduler", "total_steps", 0, 1e12},
    {"lr_scheduler", "power", ir::kLeastPower, ir::kMostPower},
    {"lr_scheduler", "cycles", 1, ir::kMostCycles},
    {"training", "local_batch_size", 0, 1 << 24},
    {"training", "global_batch_size", 0, 1 << 24},
    {"training", "gradient_accumulation_steps", 0, kMaxDegree},
    {"training", "loss_scale", 1, 1e12},
    {"training", "loss_scale_window", 0, 1e9},
    {"training", "early_stop_patience", 0, 1e12},
    {"training", "label_smoothing", 0, 1, false, true},
    {"training", "z_loss", 0, 1e6},
    {"training", "ema_decay", 0, 1, false, true},
    {"training", "seq_len", 1, 1 << 24},
    {"training", "target_seq_len", 1, 1 << 24},
    {"training", "noise_density", 0, 1, false, true},
    {"training", "mean_span_length", 1, 1 << 24},
    {"training", "steps", 1, 1e12},
    {"training", "max_norm", 0, 1e12},
    {"training", "seed", 0, kAny},
    {"training", "steps_per_launch", 1, 1000},
    {"lora", "rank", 0, 4096},
    {"lora", "alpha", 0, 1e9, true},
    {"lora", "dropout", 0, 1, false, true},
    {"parallelism", "data_parallel_replicate_degree", 1, kMaxDegree},
    {"parallelism", "expert_parallel_degree", 1, kMaxDegree},
    {"parallelism", "expert_parallel_chunks", 1, kMaxDegree},
    {"parallelism", "context_parallel_degree", 1, kMaxDegree},
    {"parallelism", "tensor_parallel_degree", 1, kMaxDegree},
    {"parallelism", "tensor_parallel_chunks", 1, kMaxDegree},
    {"parallelism", "pipeline_parallel_degree", 1, kMaxDegree},
    {"parallelism", "pipeline_parallel_microbatches", 1, kMaxDegree},
    {"parallelism", "pipeline_parallel_chunks", 1, kMaxDegree},
    {"parallelism", "zero_stage", 0, 3},
    {"parallelism", "data_parallel_shard_degree", 1, kMaxDegree},
    {"parallelism", "zero_gradients_degree", 1, kMaxDegree},
    {"parallelism", "zero_weights_degree", 1, kMaxDegree},
    {"parallelism", "zero_min_weight_bytes", 0, 1e12},
    {"parallelism", "gradient_bucket_bytes", 1, 1e12},
    {"parallelism", "head_block_tokens", 0, 1 << 24},
    {"parallelism", "offload_chunk_bytes", 1, 1e12},
    {"parallelism", "host_update_percent", 0, 100},
    {"validation", "interval", 0, 1e12},
    {"validation", "batches", 0, 1e6},
    {"validation", "fraction", 0, 0.5},
    {"checkpoint", "interval", 0, 1e12},
    {"checkpoint", "interval_seconds", 0, 1e9},
    {"checkpoint", "keep_latest_k", 0, 1e6},
    {"checkpoint", "load_step", -1, 1e12},
    {"fault_tolerance", "max_recoveries", 0, 1e6},
    {"fault_tolerance", "min_devices", 1, 1e6},
    {"fault_tolerance", "max_wait_for_spare_seconds", 0, 1e9},
    {"fault_tolerance", "stall_seconds", 0, 1e9},
    {"fault_tolerance", "snapshot_every", 0, 1e9},
    {"fault_tolerance", "copies", 0, 16},
    {"fault_tolerance", "orphan_grace_seconds", 0, 1e6},
    {"metrics", "log_freq", 1, 1e9},
});

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

}  // namespace meshwright::config
