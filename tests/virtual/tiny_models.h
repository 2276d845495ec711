// Tiny jobs for parity tests: small enough for hundreds of runs, odd enough to catch wrong offsets.
#pragma once

#include <functional>
#include <string>

#include "ir/job.h"

namespace meshwright::models {
struct MixtureConfig;
}

namespace meshwright::testing {

struct TinyOptions {
  std::string family =
      "gpt2";  // "gpt2": learned positions, fused QKV; "llama": rotary, grouped KV heads, SwiGLU
  ir::DType dtype = ir::DType::kF64;
  int64_t vocabulary = 61;  // prime: cannot be split
  int64_t layers = 8;
  int64_t batch = 32;
  int64_t sequence = 8;
  double dropout = 0;
  bool tied = true;
  double lr = 1e-2;
  double adam_eps = 1e-8;
  int64_t document_separator = -1;
  int64_t attention_window = 0;  // llama
  int64_t gpt2_heads = 8;        // of 32 elements together
  int64_t llama_head_size = 4;
  // "mixtral" is "llama" with experts: 4 of width 24, 2 for each token; `mixture` changes what it
  // likes of that.
  int64_t experts = 4;
  std::function<void(models::MixtureConfig&)> mixture = {};
  double capacity_factor = 0;
  double balance_loss = 0.1;
  double z_loss = 0.01;
};

// AdamW with clipping, one step per launch. Dims: d=32; gpt2 8 heads of 4; llama 16 query and 8 KV
// heads of 4, FFN 64.
ir::JobRequest MakeTinyJob(const TinyOptions& options);

}  // namespace meshwright::testing
