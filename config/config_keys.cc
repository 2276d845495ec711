#include "config/config_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "client/balance.h"

namespace meshwright::config {
namespace {

// A member of the config. Those of a request have the same path there; where not, MW_AS names it.
#define MW_AT(member) MW_AS(member, #member)
#define MW_AS(member, field)                                 \
  BoundField {                                               \
    [](JobConfig& c) -> Binding { return &c.member; }, field \
  }

std::vector<ConfigKey> JobAndModelKeys() {
  return {
      {"job", "name", "Name of the job, for people; one line.", MW_AT(name)},
      {"job", "description", "Free text, kept with the run.", MW_AT(description)},
      {"job", "priority",
       "Jobs of a higher one are placed first; of equals the older one. From -1000 to 1000.",
       MW_AT(queue.priority)},
      {"job", "preemptible",
       "A job of a higher priority that waits may have this one saved and take its devices; it "
       "goes back to its place in the queue. Needs checkpoint.enable.",
       MW_AT(queue.preemptible)},
      {"job", "max_queue_wait_seconds",
       "It ends when it has waited so long for its first devices; 0: it waits for ever.",
       MW_AT(queue.max_wait_s)},
      {"model", "name", "Model family.", MW_AT(model.name), KeyKind::kChoice, models::ModelNames()},
      {"model", "flavor",
       "Named sizes: gpt2 has debug, 124M, 355M, 774M, 1.5B; llama has debug, 7B, 8B, 70B; "
       "mixtral has debug, 8x7B, 8x22B; qwen2-moe debug, A2.7B; qwen3-moe debug, 30B-A3B; olmoe "
       "debug, 7B; deepseek-moe debug, 16B; deepseek-v3 debug, 671B; gpt-oss debug, 20b, "
       "120b. The size keys below override it. Empty: debug.",
       MW_AT(model.flavor)},
      {"model", "hf_path",
       "Hugging Face config.json, or the folder with it; replaces name and flavor. The weights of "
       "the folder (model.safetensors, whole or in shards) are what the job starts from.",
       MW_AT(hf_path)},
      {"model", "from_scratch",
       "With hf_path: draw the weights anew instead of loading those of the folder.",
       MW_AT(from_scratch)},
      {"model", "dim", "Width of the residual stream.", MW_AT(model.width)},
      {"model", "ffn_dim", "Inner width of the MLP.", MW_AT(model.inner)},
      {"model", "n_layers", "Transformer blocks.", MW_AT(model.layers)},
      {"model", "n_heads", "Attention heads; divides dim.", MW_AT(model.heads)},
      {"model", "n_kv_heads",
       "Key/value heads of grouped-query attention (llama); divides n_heads.",
       MW_AT(model.kv_heads)},
      {"model", "vocab_size", "Rows of the embedding; the byte tokenizer needs 256.",
       MW_AT(model.vocabulary)},
      {"model", "max_seq_len",
       "Learned positions (gpt2); default: the flavor's, or training.seq_len without a flavor.",
       MW_AT(model.positions)},
      {"model", "dropout", "Rate on embeddings, attention and residual branches (gpt2).",
       MW_AT(model.dropout)},
      {"model", "norm_eps", "Epsilon of the norms.", MW_AT(model.epsilon)},
      {"model", "rope_theta", "Base of the rotary positions (llama).", MW_AT(model.rope_base)},
      {"model", "attention_window",
       "Tokens that a token sees: itself and those before it (llama and mixtures), as in Mistral; "
       "0: "
       "all before it.",
       MW_AT(model.attention_window)},
      {"model", "tie_embeddings", "Use the token embedding as the output head.", MW_AT(model.tied)},
      {"model", "document_separator",
       "Token that ends a document: tokens attend to their own document only; -1: to all before.",
       MW_AT(model.document_separator)},
  };
}

// Of models with experts.
std::vector<ConfigKey> MixtureKeys() {
  std::vector<std::string> routers = {models::kOfFamily};
  std::vector<std::string> forms = routers;
  for (std::string& name : models::RouterNames()) routers.push_back(std::move(name));
  for (std::string& name : client::BalanceFormNames()) forms.push_back(std::move(name));
  return {
      {"model", "n_experts", "Experts of each layer; ffn_dim is the width of one.",
       MW_AT(model.mixture.experts)},
      {"model", "experts_per_token", "Experts that the router gives a token to.",
       MW_AT(model.mixture.experts_per_token)},
      {"model", "router",
       "How experts are chosen and weighed (docs/mixtures.md): softmax takes the largest "
       "probabilities, softmax_of_top a softmax over the logits of those chosen, noisy the same "
       "with noise while training, sigmoid a score for each expert and a bias that balances; with "
       "expert_choice experts take tokens, not causally.",
       MW_AT(model.mixture.router), KeyKind::kChoice, routers},
      {"model", "normalise_weights",
       "The weights of a token's experts add up to one (routers softmax and sigmoid).",
       MW_AT(model.mixture.normalised)},
      {"model", "expert_groups", "Groups of neighbouring experts (router sigmoid).",
       MW_AT(model.mixture.groups)},
      {"model", "expert_groups_per_token",
       "Groups that a token may take experts of: those whose best two have the largest sum (router "
       "sigmoid).",
       MW_AT(model.mixture.groups_per_token)},
      {"model", "routed_scale", "What experts say is weighed by this, too (router sigmoid).",
       MW_AT(model.mixture.scale)},
      {"model", "router_bias_rate",
       "How far the bias of an expert moves in a step, against its load (router sigmoid).",
       MW_AT(model.mixture.bias_rate)},
      {"model", "capacity_factor",
       "Room of an expert among the tokens of a row, in times its fair share; what finds none is "
       "dropped, second choices first. 0: nothing is dropped.",
       MW_AT(model.mixture.capacity_factor)},
      {"model", "expert_slots_factor",
       "Where replicas share experts and nothing is dropped: room of a replica for choices of a "
       "row, in times its fair share, from 1; a step that wants more fails. 0: for all.",
       MW_AT(model.mixture.slots_factor)},
      {"model", "shared_ffn_dim",
       "Width of an MLP that all tokens pass beside their experts; 0: none.",
       MW_AT(model.mixture.shared_inner)},
      {"model", "first_dense_layers", "Layers at the start that have an MLP and no experts.",
       MW_AT(model.mixture.dense_layers)},
      {"model", "dense_ffn_dim", "Width of the MLP of those layers.",
       MW_AT(model.mixture.dense_inner)},
      {"model", "balance_loss", "Weight of the loss that makes the router use all experts alike.",
       MW_AT(model.mixture.balance_loss)},
      {"model", "balance_form",
       "The form of that loss (docs/mixtures.md): of each row (sequence, gshard), or of the whole "
       "batch (switch, mixtral), which with several microbatches costs a forward more, and in a "
       "pipeline wants one.",
       MW_AT(model.mixture.balance_form), KeyKind::kChoice, forms},
      {"model", "z_loss", "Weight of the loss that keeps the router's logits small.",
       MW_AT(model.mixture.z_loss)},
  };
}

std::vector<ConfigKey> OptimizerKeys() {
  return {
      {"optimizer",
       "name",
       "Optimizer.",
       MW_AT(optimizer.name),
       KeyKind::kChoice,
       {"adamw", "sgd"}},
      {"optimizer", "lr", "Peak learning rate.", MW_AT(optimizer.lr)},
      {"optimizer", "beta1", "AdamW.", MW_AT(optimizer.beta1)},
      {"optimizer", "beta2", "AdamW.", MW_AT(optimizer.beta2)},
      {"optimizer", "eps", "AdamW.", MW_AT(optimizer.eps)},
      {"optimizer", "weight_decay", "Decoupled; applies to matrices, not to biases and norms.",
       MW_AT(optimizer.weight_decay)},
      {"optimizer", "momentum", "SGD only.", MW_AT(optimizer.momentum)},
      {"lr_scheduler", "warmup_steps", "Steps of linear warm-up.", MW_AT(optimizer.warmup_steps)},
      {"lr_scheduler",
       "decay_type",
       "Shape after the warm-up.",
       MW_AT(optimizer.schedule),
       KeyKind::kChoice,
       {"constant", "linear", "cosine"}},
      {"lr_scheduler", "min_lr", "Learning rate at total_steps, at most lr; linear and cosine.",
       MW_AT(optimizer.min_lr)},
      {"lr_scheduler", "total_steps",
       "Where the decay ends; 0: training.steps. Set it to run a prefix of a longer job.",
       MW_AT(optimizer.total_steps)},
  };
}

std::vector<ConfigKey> TrainingKeys() {
  return {
      {"training", "dataset_path",
       "The data: a file, a folder or a glob such as \"shards/*.bin\", below the folder of the job "
       "file or the current one. Workers read it in place below their data roots, else it is "
       "uploaded (docs/data.md).",
       MW_AT(dataset_path)},
      {"training",
       "dataset_format",
       "bytes: text, a token is a byte; uint16, uint32: little-endian tokens; llm.c, "
       "megatron: their files.",
       MW_AT(dataset_format),
       KeyKind::kChoice,
       {"bytes", "uint16", "uint32", "llm.c", "megatron"}},
      {"training",
       "tokenizer",
       "How a bytes file becomes tokens.",
       MW_AT(tokenizer),
       KeyKind::kChoice,
       {"byte"}},
      {"training", "local_batch_size",
       "Rows per step and data-parallel replica; needs a fixed data-parallel degree.",
       MW_AT(local_batch_size)},
      {"training", "global_batch_size",
       "Rows per step over all replicas and microbatches; 0: local_batch_size x replicas, or 8.",
       MW_AS(global_batch_size, "train.global_batch")},
      {"training", "seq_len", "Tokens per row.", MW_AT(train.sequence)},
      {"training", "steps", "Optimizer steps.", MW_AT(train.steps)},
      {"training", "max_norm",
       "Global gradient norm above which gradients are scaled down; 0: never.",
       MW_AT(optimizer.max_norm)},
      {"training", "allow_tf32",
       "GPUs round the operands of float32 products to the 19 bits that their tensor cores take: "
       "several times as fast, and right to 1e-3 instead of 1e-6.",
       MW_AT(train.tf32)},
      {"training", "seed",
       "Of initialisation, dropout and data order. Results do not depend on the layout.",
       MW_AT(train.seed)},
      {"training",
       "dtype",
       "Type of weights and computation; bfloat16: mixed precision, products and attention in "
       "bfloat16, weights, optimizer, norms and loss in float32.",
       MW_AS(dtype, "train.compute_dtype"),
       KeyKind::kChoice,
       {"float32", "float64", "bfloat16"}},
      {"training", "steps_per_launch", "Steps that workers run per message of the controller.",
       MW_AT(train.steps_per_launch)},
  };
}

std::vector<ConfigKey> ParallelismKeys() {
  return {
      {"parallelism", "data_parallel_replicate_degree",
       "Replicas; auto: what the other degrees leave over.", MW_AT(parallel.data),
       KeyKind::kDegree},
      {"parallelism", "expert_parallel_degree",
       "Replicas that share the experts of each layer: each has some of them, and tokens go to "
       "them and back. Divides the replicas and the experts.",
       MW_AT(parallel.expert), KeyKind::kDegree},
      {"parallelism", "context_parallel_degree",
       "Devices that share the tokens of each row: for rows whose activations are too many for "
       "one. "
       "It divides the tokens; twice it, too, where causal attention is to be equal work.",
       MW_AT(parallel.context), KeyKind::kDegree},
      {"parallelism",
       "context_parallel_attention",
       "How queries come to the keys of the whole row: gather: keys are gathered, which takes one "
       "message; ring: blocks of keys go round, which takes the memory of one block; ulysses: "
       "within attention the devices share heads in the place of tokens; nested: neighbours share "
       "heads, and their groups are a ring; auto: the one of the first three that moves least.",
       MW_AT(parallel.context_attention),
       KeyKind::kChoice,
       {"auto", "gather", "ring", "ulysses", "nested"}},
      {"parallelism", "tensor_parallel_degree", "Devices that share every matrix.",
       MW_AT(parallel.tensor), KeyKind::kDegree},
      {"parallelism", "tensor_parallel_axes",
       "The tensor group as a grid of two or three axes (2D, 2.5D and 3D tensor parallelism), such "
       "as \"2x2\" for a degree of 4; needs shardings = \"search\", which tries grids by itself "
       "where "
       "this is empty.",
       MW_AT(parallel.tensor_axes)},
  };
}

std::vector<ConfigKey> PipelineKeys() {
  return {
      {"parallelism", "pipeline_parallel_degree", "Stages; at most n_layers.",
       MW_AT(parallel.pipeline), KeyKind::kDegree},
      {"parallelism",
       "pipeline_parallel_schedule",
       "Order of forward and backward over microbatches; interleaved: stages hold several parts of "
       "the model; zb-h1, zb-h2 (twice the memory) and zb-v: gradients of weights fill the bubble; "
       "v-half and v-min: as zb-v at a half and a third of the memory, with longer bubbles; "
       "1f1b-vocab and gpipe-vocab: all stages share the rows of embedding and head.",
       MW_AT(parallel.schedule),
       KeyKind::kChoice,
       {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "1f1b-vocab",
        "gpipe-vocab", "auto"}},
      {"parallelism", "pipeline_parallel_chunks",
       "Parts of the model per stage: 2 or more for interleaved, 2 for zb-v, v-half and v-min; "
       "auto: "
       "2 for these, else 1.",
       MW_AT(parallel.chunks), KeyKind::kDegree},
      {"parallelism", "pipeline_parallel_layers",
       "Layers of each part of the model, in order, such as \"7,5\", or \"6*8\" for eight parts of "
       "six; empty: balanced by FLOPs.",
       MW_AT(parallel.part_layers)},
      {"parallelism", "pipeline_parallel_meshes",
       "Replicas x tensor group of each stage, such as \"2x1,1x1\" for three devices, where stages "
       "are to differ; empty: the search decides, or all have the degrees above.",
       MW_AT(parallel.stage_meshes)},
      {"parallelism", "pipeline_parallel_microbatches",
       "Pieces of a replica's batch; auto: 1 without a pipeline, else up to "
       "2 x stages.",
       MW_AT(parallel.microbatches), KeyKind::kDegree},
  };
}

std::vector<ConfigKey> ShardingKeys() {
  return {
      {"parallelism", "enable_sequence_parallel",
       "Split the residual stream along the sequence over the tensor axis; auto: where the search "
       "finds that faster or needs the memory.",
       MW_AT(parallel.sequence_parallel), KeyKind::kSwitch},
      {"parallelism", "zero_stage",
       "ZeRO: what data-parallel replicas split among them instead of each holding all of it; 1: "
       "the "
       "optimizer's state, 2: gradients too, 3: weights too, 0: nothing.",
       MW_AT(parallel.zero), KeyKind::kStage},
      {"parallelism",
       "shardings",
       "Who chooses what the data and tensor axes split; rules: batch, then heads and widths of "
       "layers; search: the cheapest found for these devices, where the forecast says it is faster "
       "than the rules. With search, zero_stage is the least that is split.",
       MW_AT(parallel.shardings),
       KeyKind::kChoice,
       {"rules", "search"}},
      {"parallelism", "sharding_pins",
       "Shardings of weights that are decided, by name or glob, with an entry per dim: "
       "\"*.c_attn.weight=[_,_,_{tensor},_]; *.wte.weight=[_{tensor,data},_]\". Or a table "
       "[parallelism.pin] with a key per name. What the rules cannot honour is searched. An axis "
       "of "
       "size 1 splits nothing.",
       MW_AT(parallel.sharding_pins)},
  };
}

std::vector<ConfigKey> DeviceKeys() {
  return {
      {"parallelism", "gradient_bucket_bytes",
       "Gradients are reduced in buckets of about this size.", MW_AT(parallel.bucket_bytes)},
      {"parallelism",
       "optimizer_memory",
       "Where the optimizer's state is between two updates; host: in the memory of the worker's "
       "host, "
       "from where it comes in chunks while others are updated.",
       MW_AT(parallel.optimizer_memory),
       KeyKind::kChoice,
       {"device", "host"}},
      {"parallelism",
       "weights_memory",
       "Where weights are while nothing reads them; host: in the memory of the worker's host, from "
       "where a few layers at a time come for each microbatch.",
       MW_AT(parallel.weights_memory),
       KeyKind::kChoice,
       {"device", "host"}},
      {"parallelism", "offload_chunk_bytes",
       "What comes from the host's memory at a time, about; a device holds three of them at most.",
       MW_AT(parallel.offload_chunk_bytes)},
      {"parallelism",
       "device",
       "The kind of devices that the job runs on; auto: GPUs where the cluster has enough of them "
       "and they compute all of the job, else CPU devices.",
       MW_AT(parallel.device),
       KeyKind::kChoice,
       {"auto", "cpu", "cuda"}},
      {"parallelism", "head_block_tokens",
       "Tokens whose logits exist at a time, at least; 0: few on CPUs, on GPUs as many as make the "
       "weight of the head worth reading.",
       MW_AT(parallel.head_block_tokens)},
  };
}

std::vector<ConfigKey> RunKeys() {
  return {
      {"activation_checkpoint",
       "mode",
       "What the backward computes again instead of keeping it; selective: norms and activation "
       "functions, full: all of a layer but its input, auto: the first of none, selective, full "
       "that "
       "fits the devices.",
       MW_AT(parallel.recompute),
       KeyKind::kChoice,
       {"auto", "none", "selective", "full"}},
      {"activation_checkpoint", "layers",
       "Layers that the mode is for, such as \"0-5,11\"; empty: all. A range may name a mode of "
       "its "
       "own: \"0-5 full, 6-11 selective\".",
       MW_AT(parallel.recompute_layers)},
      {"compile", "enable", "Fuse the ops of executables; off for debugging.",
       MW_AT(train.compile)},
      {"validation", "interval", "Steps between validations; 0: only at the end.",
       MW_AT(train.validate_every)},
      {"validation", "batches", "Global batches per validation; 0: none.",
       MW_AT(train.validation_batches)},
      {"validation", "fraction", "Tail of the data that is never trained on.",
       MW_AT(data.validation_fraction)},
      {"validation", "dataset_path",
       "Data to validate with, as training.dataset_path; then all of that is trained on.",
       MW_AT(validation_path)},
  };
}

std::vector<ConfigKey> CheckpointKeys() {
  return {
      {"checkpoint", "initial_load_path",
       "Safetensors file (or a folder with model.safetensors, whole or in shards) to start from: "
       "weights in F32, F64, BF16 or F16; the optimizer starts anew. Empty: those of "
       "model.hf_path, or random ones.",
       MW_AT(initial_load_path)},
      {"checkpoint", "enable",
       "Save the state (weights, optimizer, step) during the run; `submit --resume` goes on from "
       "it "
       "(docs/checkpoints.md).",
       MW_AT(checkpoint.enable)},
      {"checkpoint", "folder",
       "Where, below a checkpoint root of the workers (worker --checkpoint-root); empty: NAME/ID "
       "of "
       "the job.",
       MW_AT(checkpoint.folder.path)},
      {"checkpoint", "root",
       "Name of the checkpoint root; empty: the first one that workers have, or the controller's "
       "where one of them has none; \"controller\": the controller's.",
       MW_AT(checkpoint.folder.root)},
      {"checkpoint", "interval", "Steps between checkpoints; 0: only at the end.",
       MW_AT(checkpoint.interval)},
      {"checkpoint", "interval_seconds", "Seconds between checkpoints, besides; 0: never.",
       MW_AT(checkpoint.interval_s)},
      {"checkpoint", "keep_latest_k", "Older checkpoints of the folder are removed; 0: none are.",
       MW_AT(checkpoint.keep_latest_k)},
      {"checkpoint",
       "async_mode",
       "Whether training goes on while a save is written (async), or waits for it (disabled).",
       MW_AT(async_mode),
       KeyKind::kChoice,
       {"async", "disabled"}},
      {"checkpoint", "load_step",
       "With `submit --resume` or `--from`: the step of the checkpoint to go on from; -1: the "
       "newest. `--step` counts before it.",
       MW_AT(load_step)},
      {"checkpoint", "exclude_from_loading",
       "With `submit --resume` or `--from`: names or patterns (`opt.*`) of tensors that start "
       "anew. `--exclude` counts instead of it.",
       MW_AT(exclude_from_loading)},
      {"checkpoint", "last_save_in_hf",
       "The save at the end has the weights, too, as Hugging Face names them: a folder hf/ with "
       "model.safetensors, or with shards and their index. Needs enable.",
       MW_AT(checkpoint.last_save_in_hf)},
      {"checkpoint",
       "export_dtype",
       "Type of the weights of last_save_in_hf.",
       MW_AS(export_dtype, "checkpoint.export_dtype"),
       KeyKind::kChoice,
       {"float32", "float16", "bfloat16"}},
      {"checkpoint", "last_save",
       "Write model.safetensors at the end, in F32 (F64 where dtype is float64).",
       MW_AT(last_save)},
  };
}

std::vector<ConfigKey> FaultAndMetricsKeys() {
  return {
      {"fault_tolerance", "enable",
       "Go on by itself when a worker, an executor or a device is lost (docs/recovery.md).",
       MW_AT(fault_tolerance.enable)},
      {"fault_tolerance", "max_recoveries", "A day; the next failure ends the job.",
       MW_AT(fault_tolerance.max_recoveries)},
      {"fault_tolerance",
       "elastic",
       "When devices do not come back: wait for them (off), go on with fewer replicas and "
       "everything else as it was (shrink), or by any plan for what is there (replan); with the "
       "same global batch.",
       MW_AT(elastic),
       KeyKind::kChoice,
       {"off", "shrink", "replan"}},
      {"fault_tolerance", "min_devices", "With fewer the job waits.",
       MW_AT(fault_tolerance.min_devices)},
      {"fault_tolerance", "max_wait_for_spare_seconds",
       "How long devices in the place of lost ones are waited for before that; auto: not at all "
       "where a program made ahead fits what is left, else 60 s.",
       MW_AT(fault_tolerance.max_wait_for_spare_s), KeyKind::kStage},
      {"fault_tolerance", "stall_seconds",
       "How long nothing of the job may move, nor anything be at work, before the run is ended; 0: "
       "for ever. What is slow is never ended.",
       MW_AT(fault_tolerance.stall_s)},
      {"fault_tolerance", "snapshot_every",
       "Steps between snapshots of the state in the memory of workers, from which a job goes on; "
       "0: "
       "none; auto: as often as costs 2 % of the time.",
       MW_AT(fault_tolerance.snapshot_every), KeyKind::kStage},
      {"fault_tolerance", "copies",
       "Further workers that hold each part of a snapshot, so that it outlives a worker.",
       MW_AT(fault_tolerance.copies)},
      {"fault_tolerance", "orphan_grace_seconds",
       "How long workers hold a run while they have no controller, which takes it up when it is "
       "back.",
       MW_AT(fault_tolerance.orphan_grace_s)},
      {"metrics", "log_freq", "Steps between printed lines.", MW_AT(train.log_every)},
  };
}
#undef MW_AS
#undef MW_AT

std::vector<ConfigKey> AllKeys() {
  std::vector<ConfigKey> keys = JobAndModelKeys();
  for (auto part :
       {MixtureKeys(), OptimizerKeys(), TrainingKeys(), ParallelismKeys(), PipelineKeys(),
        ShardingKeys(), DeviceKeys(), RunKeys(), CheckpointKeys(), FaultAndMetricsKeys()}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

std::string QuoteToml(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// Shortest form that reads back equal and is a TOML float.
std::string FormatReal(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

struct ValueFormatter {
  std::string operator()(const int64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const uint64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const double* value) const { return FormatReal(*value); }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::string* value) const { return QuoteToml(*value); }
  std::string operator()(const std::vector<std::string>* value) const {
    std::vector<std::string> quoted;
    for (const std::string& each : *value) quoted.push_back(QuoteToml(each));
    return fmt::format("[{}]", fmt::join(quoted, ", "));
  }
  template <typename T>
  std::string operator()(const std::optional<T>* value) const {
    if (!*value) return "";
    const T present = **value;
    return (*this)(&present);
  }
};

struct TypeNamer {
  std::string operator()(const int64_t*) const { return "an integer"; }
  std::string operator()(const uint64_t*) const { return "an integer"; }
  std::string operator()(const double*) const { return "a number"; }
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const std::string*) const { return "text"; }
  std::string operator()(const std::vector<std::string>*) const { return "a list of texts"; }
  template <typename T>
  std::string operator()(const std::optional<T>*) const {
    return (*this)(static_cast<const T*>(nullptr));
  }
};

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey> keys = AllKeys();
  return keys;
}

std::vector<std::string> SectionNames() {
  std::vector<std::string> names;
  for (const ConfigKey& key : ConfigKeys()) {
    if (names.empty() || names.back() != key.section) names.emplace_back(key.section);
  }
  return names;
}

std::vector<std::string> KeyNames(std::string_view section) {
  std::vector<std::string> names;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.section == section) names.emplace_back(key.name);
  }
  return names;
}

const ConfigKey* FindKey(std::string_view section, std::string_view name) {
  const auto& keys = ConfigKeys();
  const auto it = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& key) {
    return key.section == section && key.name == name;
  });
  return it == keys.end() ? nullptr : &*it;
}

const ConfigKey* KeyOfField(std::string_view field) {
  const auto& keys = ConfigKeys();
  const auto it = std::find_if(keys.begin(), keys.end(),
                               [&](const ConfigKey& key) { return key.bind.field == field; });
  return it == keys.end() ? nullptr : &*it;
}

std::string WantedType(const ConfigKey& key) {
  if (key.kind == KeyKind::kDegree) return "an integer >= 1, -1 or \"auto\"";
  if (key.kind == KeyKind::kStage) return "an integer >= 0, -1 or \"auto\"";
  if (key.kind == KeyKind::kSwitch) return "true, false or \"auto\"";
  if (key.kind == KeyKind::kChoice) return fmt::format("one of: {}", fmt::join(key.choices, ", "));
  JobConfig scratch;
  return std::visit(TypeNamer(), key.bind(scratch));
}

std::string FormatValue(const ConfigKey& key, const JobConfig& config) {
  JobConfig copy = config;
  const Binding binding = key.bind(copy);
  if (key.kind == KeyKind::kDegree && **std::get_if<int64_t*>(&binding) == 0) return "\"auto\"";
  if (key.kind == KeyKind::kStage && **std::get_if<int64_t*>(&binding) == -1) return "\"auto\"";
  if (key.kind == KeyKind::kSwitch && !**std::get_if<std::optional<bool>*>(&binding)) {
    return "\"auto\"";
  }
  return std::visit([](const auto* at) { return ValueFormatter()(at); }, binding);
}

}  // namespace meshwright::config
