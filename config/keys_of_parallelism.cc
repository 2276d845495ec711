#include "config/key_sections.h"

namespace meshwright::config {

std::vector<ConfigKey> ParallelismKeys() {
  return {
      {"parallelism", "data_parallel_replicate_degree",
       "Replicas; auto: what the other degrees leave over.", MW_AT(parallel.data),
       KeyKind::kDegree},
      {"parallelism", "expert_parallel_degree",
       "Replicas that share the experts of each layer: each has some of them, and tokens go to "
       "them and back. Divides the replicas and the experts.",
       MW_AT(parallel.expert), KeyKind::kDegree},
      {"parallelism",
       "expert_parallel_dispatch",
       "How tokens reach experts on several hosts: flat: to each rank in one step; two-level: once "
       "to each host that any of the token's experts is on, and from there within the host; auto: "
       "the cheaper one by the links.",
       MW_AT(parallel.expert_dispatch),
       KeyKind::kChoice,
       {"auto", "flat", "two-level"}},
      {"parallelism", "expert_parallel_chunks",
       "Chunks of a microbatch's rows on their way to experts and back: some are moved while "
       "others are computed. Divides the rows that a device has of a microbatch; auto: by cost, "
       "where collectives run beside what computes.",
       MW_AT(parallel.expert_chunks), KeyKind::kDegree},
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
      {"parallelism", "tensor_parallel_degree",
       "Devices that share every matrix; heads, widths and words that it does not divide are "
       "padded.",
       MW_AT(parallel.tensor), KeyKind::kDegree},
      {"parallelism", "tensor_parallel_axes",
       "The tensor group as a grid of two or three axes (2D, 2.5D and 3D tensor parallelism), such "
       "as \"2x2\" for a degree of 4; needs shardings = \"search\", which tries grids by itself "
       "where "
       "this is empty.",
       MW_AT(parallel.tensor_axes)},
      {"parallelism", "tensor_parallel_chunks",
       "Chunks of the rows of a tensor group's products: some are gathered or summed up while "
       "others are computed. Products whose rows it does not divide stay whole; auto: by cost, "
       "where collectives run beside what computes.",
       MW_AT(parallel.tensor_chunks), KeyKind::kDegree},
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
       "are to differ, or replicas x context x tensor group (\"2x2x1,1x2x1\"); of its replicas a "
       "stage "
       "shares experts among as many as expert_parallel_degree has in common with them. Empty: the "
       "search decides, or all have the degrees above.",
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
      {"parallelism", "data_parallel_shard_degree",
       "Replicas, neighbours of each other, that split the optimizer's state and what else "
       "zero_stage says among them; groups of them hold the same (HSDP). Divides the replicas; "
       "auto: all of them.",
       MW_AT(parallel.zero_shard), KeyKind::kDegree},
      {"parallelism", "zero_gradients_degree",
       "Of those, neighbours that split gradients, from zero_stage 2 on; what is between such "
       "groups is summed once per step. Divides data_parallel_shard_degree; auto: as many.",
       MW_AT(parallel.zero_gradients), KeyKind::kDegree},
      {"parallelism", "zero_weights_degree",
       "Of those, neighbours that split the weights that microbatches read, at zero_stage 3: with "
       "the devices of a host, weights are gathered within it, and between hosts once per step. "
       "Divides zero_gradients_degree; auto: as many.",
       MW_AT(parallel.zero_weights), KeyKind::kDegree},
      {"parallelism", "zero_min_weight_bytes",
       "Weights of which a device has fewer bytes are not split by zero_stage: collectives of "
       "their own would cost more than they do, and whole their gradients share one.",
       MW_AT(parallel.zero_min_bytes)},
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

}  // namespace meshwright::config
