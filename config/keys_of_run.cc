#include "config/key_sections.h"

namespace meshwright::config {

std::vector<ConfigKey> DeviceKeys() {
  return {
      {"parallelism", "gradient_bucket_bytes",
       "Gradients are reduced in buckets of about this size; those that zero_stage splits, weight "
       "by weight, unless they are small (zero_min_weight_bytes).",
       MW_AT(parallel.bucket_bytes)},
      {"parallelism", "overlap",
       "Collectives run beside what computes, and gradients are reduced while others are made; "
       "auto: "
       "on GPUs, and on CPU devices whose host has cores to spare.",
       MW_AT(parallel.overlap), KeyKind::kSwitch},
      {"parallelism",
       "optimizer_memory",
       "Where the optimizer's state is between two updates; host, disk: in the memory of the "
       "worker's host, or in a file of it, from where it comes in chunks while others are updated; "
       "auto: the nearest of these with which the job fits.",
       MW_AT(parallel.optimizer_memory),
       KeyKind::kChoice,
       {"device", "host", "disk", "auto"}},
      {"parallelism",
       "weights_memory",
       "Where weights are while nothing reads them; host, disk, auto: as optimizer_memory; a few "
       "layers at a time come for each microbatch.",
       MW_AT(parallel.weights_memory),
       KeyKind::kChoice,
       {"device", "host", "disk", "auto"}},
      {"parallelism",
       "gradients_memory",
       "Where gradients wait for the rest of the step and for the update; host: in the memory of "
       "the worker's host where a device has no room for them; auto: as optimizer_memory.",
       MW_AT(parallel.gradients_memory),
       KeyKind::kChoice,
       {"device", "host", "auto"}},
      {"parallelism",
       "activations_memory",
       "Where that waits which the forward keeps for the backward; host, auto: as "
       "gradients_memory.",
       MW_AT(parallel.activations_memory),
       KeyKind::kChoice,
       {"device", "host", "auto"}},
      {"parallelism", "offload_chunk_bytes",
       "What comes from another memory at a time, about; a device holds three of them at most.",
       MW_AT(parallel.offload_chunk_bytes)},
      {"parallelism", "host_update_percent",
       "Of the optimizer's state in the host's memory, how much the host renews where it lies, "
       "while "
       "the device renews the rest in chunks: gradients go out and weights come back, instead of "
       "the "
       "state coming and going; auto: as much as lets both end together.",
       MW_AT(parallel.host_update), KeyKind::kStage},
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
       "What the backward makes again instead of keeping it; gathers: of what a tensor group "
       "gathers (enable_sequence_parallel) each device keeps its part, selective: that, and norms "
       "and activation functions are computed again, full: all of a layer but its input, auto: the "
       "first of these that fits the devices.",
       MW_AT(parallel.recompute),
       KeyKind::kChoice,
       {"auto", "none", "gathers", "selective", "full"}},
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
      {"validation", "datasets",
       "Several data sets to validate with, each as \"NAME: PATH\" or \"NAME: PATH: "
       "format=jsonl\": "
       "of each validation.batches are read, and each has a loss of its own, validation/NAME.",
       MW_AT(validation_datasets)},
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
      {"checkpoint", "keep_best",
       "A validation that is the best so far is saved, and that save stays whatever keep_latest_k "
       "says; by which number: as training.early_stop_metric. Empty: none.",
       MW_AT(checkpoint.keep_best)},
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
      {"metrics", "tensorboard_dir",
       "Folder on the machine of who follows the job: its steps are written there as they come, "
       "for TensorBoard and as metrics.jsonl, in a folder of the job (docs/records.md). Later, "
       "`meshwright records` writes the same.",
       MW_AT(tensorboard_dir)},
  };
}

}  // namespace meshwright::config
