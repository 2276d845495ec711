// What a client asks for: the loss graph, the optimizer, the data and the constraints on the plan.
// Pure data; the wire form is made by proto/, validation by ValidateJob, the plan by planner/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "ir/autodiff.h"
#include "ir/graph.h"

namespace meshwright::ir {

// A file, known by content: the client uploads it once, workers fetch it by hash.
struct BlobRef {
  std::string sha256;  // hex; empty: none
  int64_t size_bytes = 0;
  std::string name;  // for people: the path that the user gave
  friend bool operator==(const BlobRef&, const BlobRef&) = default;
};

struct DataSpec {
  BlobRef blob;
  std::string format =
      "bytes";  // "bytes" (UTF-8 text, token = byte) | "uint16" | "uint32" (little endian tokens)
  double validation_fraction = 0.05;  // the tail of the file, never trained on
  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

// What the user pins; 0 and "auto" leave it to the search (search/find_layout.h). The planner alone
// (planner::MakePlan) takes auto as 1, none and 1f1b, and gives data what the devices leave over.
struct ParallelSpec {
  int64_t data = 0;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t microbatches = 0;
  std::string schedule = "1f1b";  // "auto", or one that planner/schedule.h lists
  int64_t chunks = 0;             // parts of the model per stage; 0: as the schedule does usually
  std::string part_layers;        // "7,5": layers of each part; empty: the planner balances them
  // "2x1,1x1": data x tensor of each stage, where stages are meshes of different sizes; data and
  // tensor are 0 then, pipeline is 0 or their number. Empty: all have the same.
  std::string stage_meshes;
  // "2x2": the tensor group as a grid of up to three axes, with searched shardings. Empty: one
  // axis; with searched shardings those that the search finds best.
  std::string tensor_axes;
  // Megatron: residual stream split over `tensor` along the sequence. Empty: the
  // search decides, where OpenParallel() leaves it to it.
  std::optional<bool> sequence_parallel = false;
  // ZeRO over the replicas: 1 splits the optimizer's state, 2 gradients too, 3 weights too.
  int64_t zero = 0;  // -1: auto
  // What the backward computes again instead of keeping: "none" | "selective" (norms and activation
  // functions) | "full" (all of a layer but its input) | "auto": the first of these that fits.
  std::string recompute = "auto";
  std::string recompute_layers;  // "0-5,11"; empty: all
  // Who chooses what each axis splits: "rules" (planner/strategy.h) | "search"
  // (search/find_shardings.h, where that is forecast to be faster).
  std::string shardings = "rules";
  // Shardings of weights that are decided: "*.c_attn.weight=[_,_,_{tensor},_]; .."
  // (search/sharding_pins.h).
  std::string sharding_pins;
  int64_t bucket_bytes = 25 << 20;  // gradients are reduced in buckets of about this size
  // Tokens whose logits exist at a time, at least; 0: what is worth it on the devices
  // (planner/head_blocks.h).
  int64_t head_block_tokens = 0;
  // "cpu", "cuda", or "auto": GPUs where the cluster has enough of them and they compute the job.
  std::string device = "auto";
  friend bool operator==(const ParallelSpec&, const ParallelSpec&) = default;
};

// Everything that can be left to the search.
inline ParallelSpec OpenParallel() {
  ParallelSpec open;
  open.tensor = 0;
  open.pipeline = 0;
  open.schedule = "auto";
  open.zero = -1;
  open.sequence_parallel = std::nullopt;
  return open;
}

struct TrainSpec {
  int64_t global_batch = 8;  // rows per step over all devices and microbatches
  int64_t sequence = 128;    // tokens per row
  int64_t steps = 100;
  uint64_t seed = 0;
  int64_t steps_per_launch = 1;  // K: control cost is 2/K messages per step and worker
  int64_t log_every = 10;
  int64_t validate_every = 0;      // 0: only at the end
  int64_t validation_batches = 8;  // global batches per validation
  bool compile = true;             // executables are fused (compile/compile.h)
  // kBF16: mixed precision (ir/mixed_precision.h); kF32: everything in the loss graph's own types.
  DType compute_dtype = DType::kF32;
  // GPUs round the operands of f32 products to the 19 bits that their tensor cores take.
  bool tf32 = false;
  friend bool operator==(const TrainSpec&, const TrainSpec&) = default;
};

struct JobRequest {
  std::string name;
  // Logical loss graph over one global batch: `feed` nodes are i32[global_batch, sequence+1];
  // outputs "loss_sum", "count".
  Graph loss;
  OptimizerSpec optimizer;
  DataSpec data;
  BlobRef
      init_weights;  // safetensors with the params' export names; none: random init from the seed
  ParallelSpec parallel;
  TrainSpec train;
  bool save_weights = true;  // model.safetensors at the end
  std::string config_text;   // the resolved configuration, kept next to the run
  friend bool operator==(const JobRequest&, const JobRequest&) = default;
};

// Checks what can be known without a cluster: graph, batch, names, ranges. Errors: kInvalidArgument
// naming the field.
Status ValidateJob(const JobRequest& job);

}  // namespace meshwright::ir
