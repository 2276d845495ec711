#include "config/key_sections.h"

namespace meshwright::config {

std::vector<ConfigKey> OptimizerKeys() {
  return {
      {"optimizer",
       "name",
       "Optimizer.",
       MW_AT(optimizer.name),
       KeyKind::kChoice,
       {"adamw", "sgd", "lion", "adafactor"}},
      {"optimizer", "lr", "Peak learning rate.", MW_AT(optimizer.lr)},
      {"optimizer", "beta1", "AdamW and Lion.", MW_AT(optimizer.beta1)},
      {"optimizer", "beta2", "AdamW and Lion, which usually has 0.99.", MW_AT(optimizer.beta2)},
      {"optimizer", "eps", "AdamW.", MW_AT(optimizer.eps)},
      {"optimizer", "weight_decay", "Decoupled; applies to matrices, not to biases and norms.",
       MW_AT(optimizer.weight_decay)},
      {"optimizer", "momentum", "SGD only.", MW_AT(optimizer.momentum)},
      {"optimizer",
       "moments_dtype",
       "Type in which AdamW, SGD and Lion keep their moments between steps; bfloat16 halves them "
       "(docs/fine-tuning.md).",
       MW_AS(moments_dtype, "optimizer.moments_dtype"),
       KeyKind::kChoice,
       {"float32", "bfloat16"}},
      {"optimizer", "scale_parameter",
       "Adafactor: lr is times the root mean square of each param (docs/fine-tuning.md).",
       MW_AT(optimizer.scale_parameter)},
      {"optimizer", "decay_rate",
       "Adafactor: at step t the mean of squares decays by 1 - t^-decay_rate.",
       MW_AT(optimizer.decay_rate)},
      {"optimizer", "clip_threshold",
       "Adafactor: the most that the root mean square of an update is.",
       MW_AT(optimizer.clip_threshold)},
      {"optimizer", "param_groups",
       "Params with settings of their own, each as \"PATTERN: lr_factor=2, weight_decay=0\"; of "
       "two "
       "for one param the later counts (docs/fine-tuning.md).",
       MW_AT(param_groups)},
      {"lr_scheduler", "warmup_steps",
       "Steps of linear warm-up: step i of n, counted from 1, has i/n of lr. (PyTorch's and "
       "transformers' count from 0, so their first step changes nothing.)",
       MW_AT(optimizer.warmup_steps)},
      {"lr_scheduler",
       "decay_type",
       "Shape after the warm-up: linear and cosine go down to min_lr, polynomial by the power of "
       "what is left, cosine_with_restarts so many times; inverse_sqrt: lr * sqrt(warmup_steps / "
       "step), T5's; relative: "
       "lr / sqrt(step), 0.01 * lr at most, and relative_warmup, which begins at 1e-6 * lr * "
       "step: Adafactor's own.",
       MW_AT(optimizer.schedule),
       KeyKind::kChoice,
       {"constant", "linear", "cosine", "polynomial", "cosine_with_restarts", "inverse_sqrt",
        "relative", "relative_warmup"}},
      {"lr_scheduler", "min_lr",
       "Learning rate at total_steps, at most lr; linear, cosine, polynomial and "
       "cosine_with_restarts.",
       MW_AT(optimizer.min_lr)},
      {"lr_scheduler", "power", "polynomial: of the share of the decay that is left.",
       MW_AT(decay_power)},
      {"lr_scheduler", "cycles", "cosine_with_restarts: cosines from lr down to total_steps.",
       MW_AT(decay_cycles)},
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
       "bytes: text, a token is a byte; text, jsonl: text that training.tokenizer makes tokens of, "
       "once (docs/data.md); uint16, uint32: little-endian tokens; llm.c, megatron: their files.",
       MW_AT(dataset_format),
       KeyKind::kChoice,
       {"bytes", "text", "jsonl", "images", "uint16", "uint32", "llm.c", "megatron"}},
      {"training", "tokenizer",
       "Of text and jsonl data: a tokenizer.json, a tokenizer.model, or the folder of a model; "
       "byte: "
       "that of model.hf_path. Data of bytes need none.",
       MW_AT(tokenizer)},
      {"training", "datasets",
       "Several data sets in the place of dataset_path, each as \"PATH: weight=3, format=jsonl\": "
       "of every 4 rows 3 are of it where another has the weight 1 (docs/data.md).",
       MW_AT(datasets)},
      {"training",
       "loss_on",
       "Tokens of text and jsonl data that are learned: all, or answers: what the assistant of "
       "\"messages\" says, and the completion of \"prompt\" and \"completion\".",
       MW_AT(loss_on),
       KeyKind::kChoice,
       {"all", "answers"}},
      {"training", "packing",
       "Rows of text and jsonl data: true: several whole documents, whose attention and positions "
       "do not cross; false: one document and padding; auto: true where loss_on is answers, else "
       "windows of all documents one behind the other.",
       MW_AT(packing), KeyKind::kSwitch},
      {"training", "mask_whole_words",
       "bert: all pieces of a word (\"##\") are hidden, or none; rows are packed (docs/models.md).",
       MW_AT(mask_whole_words)},
      {"training", "local_batch_size",
       "Rows per step and data-parallel replica; needs a fixed data-parallel degree.",
       MW_AT(local_batch_size)},
      {"training", "global_batch_size",
       "Rows per step over all replicas and microbatches; 0: local_batch_size x replicas, or 8.",
       MW_AS(global_batch_size, "train.global_batch")},
      {"training", "seq_len", "Tokens per row; of pairs those of the source.",
       MW_AT(train.sequence)},
      {"training", "target_seq_len", "Tokens of a pair's target (t5); as seq_len unless said.",
       MW_AT(model.target_tokens)},
      {"training", "noise_density",
       "Share of a text's tokens that are hidden and to be said: bert's, 0.15 unless said; of t5 "
       "and "
       "bart it makes pairs of texts, whose spans are hidden (docs/data.md). Unset or 0: their "
       "data "
       "are pairs.",
       MW_AT(model.hidden_share)},
      {"training", "mean_span_length",
       "Tokens of a hidden span, on average (t5, bart); 3 unless said.", MW_AT(model.mean_span)},
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
  };
}

// Of [training], in which types it computes and how often it tells.
std::vector<ConfigKey> PrecisionKeys() {
  return {
      {"training",
       "dtype",
       "Type of weights and computation; bfloat16 and float16: mixed precision, products and "
       "attention in that, weights, optimizer, norms and loss in float32.",
       MW_AS(dtype, "train.compute_dtype"),
       KeyKind::kChoice,
       {"float32", "float64", "bfloat16", "float16"}},
      {"training",
       "gradient_dtype",
       "Type in which gradients of weights wait for the update and are reduced, where dtype is of "
       "16 bits: float32, or that type itself: half the bytes, and each microbatch rounds the sum.",
       MW_AS(gradient_dtype, "train.gradient_dtype"),
       KeyKind::kChoice,
       {"float32", "bfloat16", "float16"}},
      {"training", "loss_scale",
       "With dtype = \"float16\": what the loss is multiplied by in the first step, so that small "
       "gradients are not rounded to 0. A step whose gradients overflow changes nothing and halves "
       "it.",
       MW_AT(train.loss_scale)},
      {"training", "loss_scale_window",
       "Steps without overflow after which the loss scale doubles; 0: it stays.",
       MW_AT(train.loss_scale_window)},
      {"training", "steps_per_launch", "Steps that workers run per message of the controller.",
       MW_AT(train.steps_per_launch)},
  };
}

// Of [training], what is more than a loss and its gradient.
std::vector<ConfigKey> TuningKeys() {
  return {
      {"training", "gradient_accumulation_steps",
       "Pieces in which a replica's batch goes through one after the other; 0: as "
       "parallelism.pipeline_parallel_microbatches says, which is the same thing. The global batch "
       "stays as it is.",
       MW_AT(accumulation_steps)},
      {"training", "frozen",
       "Patterns of params that are not trained, such as \"*.wte.weight\": no gradient, no "
       "optimizer "
       "state.",
       MW_AT(frozen)},
      {"training", "trainable",
       "Patterns of params that are trained, all others being frozen; beside LoRA, those that are "
       "trained with the adapters. What frozen names, too, is frozen.",
       MW_AT(trainable)},
      {"training", "early_stop_patience",
       "The job ends well behind so many validations in a row of which none was better than the "
       "best before; 0: never. Needs validation.interval.",
       MW_AS(train.early_stop_patience, "train.early_stop_patience")},
      {"training", "early_stop_metric",
       "What better means: validation_loss, or validation/NAME: the loss of the validation set "
       "NAME, "
       "or an output of the trained program; \"max:\" before it: more is better.",
       MW_AS(train.early_stop_metric, "train.early_stop_metric")},
      {"training", "label_smoothing",
       "Share of each label that is spread over the vocabulary; the validation's loss is without.",
       MW_AT(loss_terms.label_smoothing)},
      {"training", "z_loss",
       "Times the squared logarithm of the softmax's denominator, added to the loss of a token "
       "(1e-4 in PaLM); the validation's loss is without.",
       MW_AT(loss_terms.z_loss)},
      {"training", "ema_decay",
       "Keeps running means of what is trained, mean = decay x mean + (1 - decay) x weight after "
       "each step; 0: none. Checkpoints have them, `checkpoint export --averages` takes them.",
       MW_AT(ema_decay)},
  };
}

std::vector<ConfigKey> LoraKeys() {
  return {
      {"lora", "rank",
       "Of the adapters (r of PEFT); 0: none. With adapters all other weights are frozen "
       "(docs/fine-tuning.md).",
       MW_AT(lora.rank)},
      {"lora", "alpha", "Adapters count alpha / rank (lora_alpha of PEFT).", MW_AT(lora.alpha)},
      {"lora", "rank_stabilized", "Adapters count alpha / sqrt(rank) (use_rslora of PEFT).",
       MW_AT(lora.rank_stabilized)},
      {"lora", "dropout", "Of what goes into adapters (lora_dropout of PEFT).",
       MW_AT(lora.dropout)},
      {"lora", "target_modules",
       "Modules that get adapters: \"q_proj\" fits every module whose name ends so; \"all-linear\" "
       "fits all but the head.",
       MW_AT(lora.target_modules)},
      {"lora", "modules_to_save",
       "Modules that are trained as a whole and saved with the adapters.",
       MW_AT(lora.modules_to_save)},
      {"lora", "adapter_path",
       "Folder with adapter_model.safetensors to start from; none: adapters are drawn.",
       MW_AT(adapter_path)},
  };
}

}  // namespace meshwright::config
