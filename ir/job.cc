#include "ir/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string>

#include "ir/gpu_support.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

Status CheckRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidField(field, fmt::format("is {}; it must be in [{}, {}]", value, low, high));
}

// [0, 1): at 1 a running mean never moves, and its bias correction divides by 0.
Status CheckDecayRate(const char* field, double value) {
  if (value >= 0 && value < 1) return OkStatus();
  return InvalidField(field, fmt::format("is {}; it must be at least 0 and less than 1", value));
}

Status CheckLossOutputs(const Graph& loss) {
  for (const char* name : {"loss_sum", "count"}) {
    const ValueId id = loss.Output(name);
    if (!id.valid()) {
      return InvalidArgument(fmt::format(
          "the loss graph '{}' has no output \"{}\"; it needs \"loss_sum\" and \"count\"",
          loss.name, name));
    }
    if (loss.type(id).rank() != 0 || !IsFloating(loss.type(id).dtype)) {
      return InvalidArgument(
          fmt::format("output \"{}\" of the loss graph is {}; it must be a floating point scalar",
                      name, loss.type(id).ToString()));
    }
  }
  const TensorType& sum = loss.type(loss.Output("loss_sum"));
  const TensorType& count = loss.type(loss.Output("count"));
  if (sum != count) {
    return InvalidArgument(
        fmt::format("output \"loss_sum\" of the loss graph is {} and \"count\" {}; they must have "
                    "one dtype, since the loss is their quotient",
                    sum.ToString(), count.ToString()));
  }
  return OkStatus();
}

Status CheckFeeds(const JobRequest& job) {
  const std::vector<NodeId> feeds = job.loss.NodesOf(Op::kFeed);
  if (feeds.empty())
    return InvalidArgument("the loss graph has no feed node: it would not read any data");
  const Dims wanted = {job.train.global_batch, job.train.sequence + 1};
  for (NodeId id : feeds) {
    const TensorType& type = job.loss.type(job.loss.node(id).outputs[0]);
    if (type.dtype != DType::kI32 || type.dims != wanted) {
      return InvalidArgument(fmt::format(
          "feed is {}; train.global_batch={} and train.sequence={} need i32[{},{}]",
          type.ToString(), job.train.global_batch, job.train.sequence, wanted[0], wanted[1]));
    }
  }
  return OkStatus();
}

// Master weights are f32: other types would be narrowed without a word.
Status CheckMixedPrecision(const JobRequest& job) {
  if (job.train.compute_dtype == DType::kF32) return OkStatus();
  for (NodeId id : job.loss.NodesOf(Op::kParam)) {
    const Node& param = job.loss.node(id);
    const TensorType& type = job.loss.type(param.outputs[0]);
    if (type.dtype == DType::kF32) continue;
    return InvalidField(
        "train.compute_dtype",
        fmt::format("is {}, which needs f32 params, but \"{}\" is {}",
                    DTypeName(job.train.compute_dtype), param.attrs.Str("name"), type.ToString()));
  }
  return OkStatus();
}

Status CheckTrain(const TrainSpec& train) {
  MW_TRY(CheckRange("train.global_batch", static_cast<double>(train.global_batch), 1, 1 << 24));
  MW_TRY(CheckRange("train.sequence", static_cast<double>(train.sequence), 1, 1 << 24));
  MW_TRY(CheckRange("train.steps", static_cast<double>(train.steps), 1, 1e12));
  MW_TRY(
      CheckRange("train.steps_per_launch", static_cast<double>(train.steps_per_launch), 1, 1000));
  MW_TRY(CheckRange("train.log_every", static_cast<double>(train.log_every), 1, 1e9));
  if (train.compute_dtype != DType::kF32 && train.compute_dtype != DType::kBF16) {
    return InvalidField("train.compute_dtype", fmt::format("is {}; it must be f32 or bf16",
                                                           DTypeName(train.compute_dtype)));
  }
  MW_TRY(CheckRange("train.validate_every", static_cast<double>(train.validate_every), 0, 1e12));
  return CheckRange("train.validation_batches", static_cast<double>(train.validation_batches), 0,
                    1e6);
}

Status CheckParallel(const ParallelSpec& parallel) {
  MW_TRY(CheckRange("parallel.data", static_cast<double>(parallel.data), 0, 1 << 16));
  MW_TRY(CheckRange("parallel.tensor", static_cast<double>(parallel.tensor), 0, 1 << 16));
  MW_TRY(CheckRange("parallel.pipeline", static_cast<double>(parallel.pipeline), 0, 1 << 16));
  MW_TRY(
      CheckRange("parallel.microbatches", static_cast<double>(parallel.microbatches), 0, 1 << 16));
  MW_TRY(CheckRange("parallel.chunks", static_cast<double>(parallel.chunks), 0, 1 << 16));
  MW_TRY(CheckRange("parallel.zero", static_cast<double>(parallel.zero), -1, 3));
  MW_TRY(CheckRange("parallel.bucket_bytes", static_cast<double>(parallel.bucket_bytes), 1, 1e12));
  MW_TRY(CheckRange("parallel.head_block_tokens", static_cast<double>(parallel.head_block_tokens),
                    0, 1 << 24));
  if (parallel.device != "auto" && parallel.device != "cpu" && parallel.device != "cuda") {
    return InvalidField("parallel.device",
                        fmt::format("is '{}'; known: auto, cpu, cuda", parallel.device));
  }
  static const std::set<std::string> modes = {"auto", "none", "selective", "full"};
  if (!modes.contains(parallel.recompute)) {
    return InvalidField("parallel.recompute", fmt::format("is '{}'; known: {}", parallel.recompute,
                                                          fmt::join(modes, ", ")));
  }
  if (parallel.shardings != "rules" && parallel.shardings != "search") {
    return InvalidField("parallel.shardings",
                        fmt::format("is '{}'; known: rules, search", parallel.shardings));
  }
  return OkStatus();
}

Status CheckOptimizer(const OptimizerSpec& optimizer) {
  if (optimizer.name != "adamw" && optimizer.name != "sgd") {
    return InvalidField("optimizer.name",
                        fmt::format("is '{}'; known: adamw, sgd", optimizer.name));
  }
  if (optimizer.schedule != "constant" && optimizer.schedule != "linear" &&
      optimizer.schedule != "cosine") {
    return InvalidField(
        "optimizer.schedule",
        fmt::format("is '{}'; known: constant, linear, cosine", optimizer.schedule));
  }
  MW_TRY(CheckRange("optimizer.lr", optimizer.lr, 0, 1e6));
  MW_TRY(CheckRange("optimizer.min_lr", optimizer.min_lr, 0, 1e6));
  MW_TRY(
      CheckRange("optimizer.warmup_steps", static_cast<double>(optimizer.warmup_steps), 0, 1e12));
  MW_TRY(CheckRange("optimizer.total_steps", static_cast<double>(optimizer.total_steps), 0, 1e12));
  MW_TRY(CheckDecayRate("optimizer.beta1", optimizer.beta1));
  MW_TRY(CheckDecayRate("optimizer.beta2", optimizer.beta2));
  MW_TRY(CheckDecayRate("optimizer.momentum", optimizer.momentum));
  // Without it a weight whose gradient was always 0 becomes 0/0.
  MW_TRY(CheckRange("optimizer.eps", optimizer.eps, 1e-30, 1));
  MW_TRY(CheckRange("optimizer.weight_decay", optimizer.weight_decay, 0, 1e6));
  return CheckRange("optimizer.max_norm", optimizer.max_norm, 0, 1e12);
}

}  // namespace

Status ValidateJob(const JobRequest& job) {
  constexpr size_t kMaxNameBytes = 256;
  if (job.name.empty() || job.name.size() > kMaxNameBytes) {
    return InvalidArgument(
        fmt::format("job.name has {} bytes; it must have 1 to {}", job.name.size(), kMaxNameBytes));
  }
  MW_TRY(VerifyGraph(job.loss));
  MW_TRY(VerifyLossGraph(job.loss));
  MW_TRY(CheckTrain(job.train));
  MW_TRY(CheckLossOutputs(job.loss));
  MW_TRY(CheckFeeds(job));
  MW_TRY(CheckMixedPrecision(job));
  MW_TRY(CheckParallel(job.parallel));
  const std::string not_on_gpus = job.parallel.device == "cuda" ? WhyNotOnGpus(job.loss) : "";
  if (!not_on_gpus.empty()) {
    return InvalidField("parallel.device",
                        fmt::format("is 'cuda', but {}; leave it 'auto'", not_on_gpus));
  }
  MW_TRY(CheckOptimizer(job.optimizer));
  const std::string& format = job.data.format;
  if (format != "bytes" && format != "uint16" && format != "uint32") {
    return InvalidField("data.format",
                        fmt::format("is '{}'; known: bytes, uint16, uint32", format));
  }
  return CheckRange("data.validation_fraction", job.data.validation_fraction, 0, 0.5);
}

}  // namespace meshwright::ir
