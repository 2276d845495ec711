// What a client asks for: named programs on shared state, who drives them, the data and the
// constraints on the plan.
//
// State is shared by name: a `param` node is the same weight in every program that has one of its
// name. A program is a graph with named inputs (`feed` nodes) and named outputs. At most one is
// trained: the planner makes three programs of it, "init" (fills the state), "step" (forward,
// backward, update) and "eval" (the loss of a batch that is not trained on); all others are run as
// they are. Pure data; the wire form is made by proto/, validation by ValidateJob, the plan by
// planner/.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/autodiff.h"
#include "ir/checkpoint_spec.h"
#include "ir/data_spec.h"
#include "ir/fault_tolerance.h"
#include "ir/graph.h"
#include "ir/queue_spec.h"

namespace meshwright::ir {

// What the user pins (ir/parallel_pins.h lists the fields); 0 and "auto" leave it to the search
// (search/find_layout.h). The planner alone (planner::MakePlan) takes auto as 1, none and 1f1b, and
// gives data what the devices leave over.
struct ParallelSpec {
  int64_t data = 0;
  int64_t expert = 1;  // replicas, of `data`, that share the experts of a layer
  // How tokens reach experts on several hosts: "flat" | "two-level" | "auto", by cost.
  std::string expert_dispatch = "auto";
  // Of the rows on their way to experts (planner/expert_ways.h); 0: auto.
  int64_t expert_chunks = 0;
  // Of the rows of a tensor group's products (planner/streamed_products.h); 0: auto.
  int64_t tensor_chunks = 0;
  int64_t context = 1;  // devices that share the tokens of each row
  // How their queries come to all keys: "gather" | "ring" | "auto", by bytes.
  std::string context_attention = "auto";
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
  // Collectives run beside what computes (worker/step_list.h); empty: where something has time for
  // them (planner/overlap.h).
  std::optional<bool> overlap = std::nullopt;
  // ZeRO over the replicas: 1 splits the optimizer's state, 2 gradients too, 3 weights too.
  int64_t zero = 0;  // -1: auto
  // Replicas, neighbours of each other, that split the optimizer's state among them, gradients, and
  // weights (planner/zero_levels.h); 0: as many as of the kind before, the first all of them.
  int64_t zero_shard = 0;
  int64_t zero_gradients = 0;
  int64_t zero_weights = 0;
  // Weights of which a device has fewer bytes stay whole on each replica: their gradients are
  // reduced with others', which costs no calls of their own.
  int64_t zero_min_bytes = 64 << 10;
  // What the backward makes again instead of keeping: "none" | "gathers" (what a tensor group
  // gathers) | "selective" (that, norms and activation functions) | "full" (all of a layer but its
  // input) | "auto": the first of these that fits.
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
  // (planner/step_pieces.h).
  int64_t head_block_tokens = 0;
  // Where each kind is while nothing reads it: "device" | "host" | of state also "disk" | "auto":
  // the nearest of these with which the job fits (planner/tiers.h, search/choose_memory.h).
  std::string optimizer_memory = "device";
  std::string weights_memory = "device";
  std::string gradients_memory = "device";
  std::string activations_memory = "device";
  int64_t offload_chunk_bytes = 32 << 20;  // what comes from there at a time, about
  // Of the optimizer's state that is in the host's memory, the percentage that the host renews
  // where it lies; -1: as much as lets host, device and link end together (planner/host_update.h).
  int64_t host_update = 0;
  // "cpu", "cuda", or "auto": GPUs where the cluster has enough of them and they compute the job.
  std::string device = "auto";
  friend bool operator==(const ParallelSpec&, const ParallelSpec&) = default;
};

// Everything that can be left to the search.
inline ParallelSpec OpenParallel() {
  ParallelSpec open;
  open.expert = 0;
  open.context = 0;
  open.tensor = 0;
  open.pipeline = 0;
  open.schedule = "auto";
  open.zero = -1;
  open.sequence_parallel = std::nullopt;
  return open;
}

inline constexpr int64_t kMaxSteps = 1'000'000'000'000;  // of a job, and of what a call is keyed by

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
  // What gradients of weights that are read in compute_dtype are summed up in over the microbatches
  // of a step, and sent in: f32, or compute_dtype, which holds half as many bytes.
  DType gradient_dtype = DType::kF32;
  // Where compute_dtype is f16: what the loss is multiplied by in the first step, so that gradients
  // keep within its range, and after how many steps of finite gradients it doubles; 0: it stays
  // (ir/loss_scale.h).
  double loss_scale = 65536;
  int64_t loss_scale_window = 2000;
  // GPUs round the operands of f32 products to the 19 bits that their tensor cores take.
  bool tf32 = false;
  // Validations without a better one, behind which the job ends; 0: it never does.
  int64_t early_stop_patience = 0;
  std::string early_stop_metric = "validation_loss";  // ir/metric.h
  friend bool operator==(const TrainSpec&, const TrainSpec&) = default;
};

// Where an input comes from: the job's data, the client with every call, or what another program
// gave out when it last ran (ir/program_outputs.h).
enum class InputFrom : uint8_t { kData, kClient, kOutput };

// A tensor that a program gives out.
struct ProgramOutput {
  std::string program;
  std::string name;
  friend auto operator<=>(const ProgramOutput&, const ProgramOutput&) = default;
};

// A named graph of a job. Its inputs are its `feed` nodes, by their "source" (op.h says of what
// type); its outputs are the graph's: scalars are reported, tensors are given to who asks for
// them. A scalar is what the graph makes of the whole batch, whatever the layout; over several
// batches it is summed or averaged, as its ir::Reduction says.
struct JobProgram {
  std::string name;
  Graph graph;
  std::map<std::string, InputFrom> inputs;  // by "source"; what is not here comes from the data
  bool trained = false;  // the outputs "loss_sum" and "count" are what the job minimises
  std::map<std::string, ProgramOutput> reads = {};  // by "source": what inputs from kOutput are

  InputFrom OriginOf(const std::string& input) const;
  friend bool operator==(const JobProgram&, const JobProgram&) = default;
};

// Names of what the planner makes of a trained program, and of what fills the state.
inline constexpr const char* kInitProgram = "init";
inline constexpr const char* kStepProgram = "step";
inline constexpr const char* kEvalProgram = "eval";

// Who decides what runs next.
enum class DriverKind : uint8_t {
  kTrain,     // init, then steps and validations as TrainSpec says
  kEvaluate,  // init, then `program` once over the validation data; reports are reduced
  kClient,    // init, then what the client of a session calls
};
const char* DriverKindName(DriverKind kind);  // "train", "evaluate", "client"
Result<DriverKind> ParseDriverKind(std::string_view name);

struct DriverSpec {
  DriverKind kind = DriverKind::kTrain;
  std::string program = {};  // kEvaluate: what runs
  int64_t batches = 0;       // kEvaluate: at most so many; 0: train.validation_batches
  int64_t grace_s = 60;      // kClient: how long the job waits for a client that is gone
  friend bool operator==(const DriverSpec&, const DriverSpec&) = default;
};

struct JobRequest {
  std::string name;
  std::vector<JobProgram> programs;
  DriverSpec driver;
  OptimizerSpec optimizer;  // of the trained program
  DataSpec data;
  FileRef
      init_weights;  // safetensors with the params' export names; none: random init from the seed
  ParallelSpec parallel;
  TrainSpec train;
  bool save_weights = true;  // model.safetensors at the end
  std::string config_text;   // the resolved configuration, kept next to the run
  CheckpointSpec checkpoint;
  StartPoint start;  // a checkpoint that it goes on from; else it starts anew
  FaultToleranceSpec fault_tolerance;
  QueueSpec queue;

  const JobProgram* FindProgram(std::string_view program) const;  // null: there is none
  const JobProgram* trained() const;                              // null: nothing is trained
  // What decides the layout, and holds all state: the trained program, else the first. REQUIRES a
  // program.
  const JobProgram& main() const;
  // The trained program: replaces one that is there.
  void SetLoss(Graph loss);
  friend bool operator==(const JobRequest&, const JobRequest&) = default;
};

// Checks what can be known without a cluster: graphs, batch, names, ranges. Errors:
// kInvalidArgument naming the field or program.
Status ValidateJob(const JobRequest& job);

// The files that workers fetch: of the data and of the weights to start from, not those in place.
std::vector<BlobRef> BlobsOf(const JobRequest& job);

// Whether any program has an input that comes from the data.
bool ReadsData(const JobRequest& job);

// The names of all inputs that come from a client, in order.
std::vector<std::string> ClientInputsOf(const JobRequest& job);

// "" when GPUs compute all programs of the job; else what they do not (ir/gpu_support.h).
std::string WhyNotOnGpus(const JobRequest& job);

}  // namespace meshwright::ir
