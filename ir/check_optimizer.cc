#include "ir/check_optimizer.h"

#include <fmt/format.h>

#include "ir/job.h"
#include "ir/rate_schedule.h"

namespace meshwright::ir {
namespace {

Status RequireRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidField(field, fmt::format("is {}; it must be in [{}, {}]", value, low, high));
}

// [0, 1): at 1 a running mean never moves, and its bias correction divides by 0.
Status RequireDecayRate(const char* field, double value) {
  if (value >= 0 && value < 1) return OkStatus();
  return InvalidField(field, fmt::format("is {}; it must be at least 0 and less than 1", value));
}

Status CheckOptimizerSpec(const OptimizerSpec& optimizer) {
  if (optimizer.name != "adamw" && optimizer.name != "sgd" && optimizer.name != "lion" &&
      optimizer.name != "adafactor") {
    return InvalidField("optimizer.name",
                        fmt::format("is '{}'; known: adamw, sgd, lion, adafactor", optimizer.name));
  }
  if (optimizer.moments_dtype != DType::kF32 && optimizer.moments_dtype != DType::kBF16) {
    return InvalidField("optimizer.moments_dtype", "must be float32 or bfloat16");
  }
  if (optimizer.name == "adafactor" && optimizer.moments_dtype != DType::kF32) {
    return InvalidField("optimizer.moments_dtype",
                        "must be float32 with adafactor, whose state is rows and columns");
  }
  if (!IsSchedule(optimizer.schedule)) {
    return InvalidField("optimizer.schedule",
                        fmt::format("is '{}'; known: {}", optimizer.schedule, kSchedules));
  }
  MW_TRY(RequireRange("optimizer.decay_rate", optimizer.decay_rate, 0, 10));
  MW_TRY(RequireRange("optimizer.clip_threshold", optimizer.clip_threshold, 1e-12, 1e12));
  MW_TRY(RequireRange("optimizer.lr", optimizer.lr, 0, 1e6));
  MW_TRY(RequireRange("optimizer.min_lr", optimizer.min_lr, 0, 1e6));
  MW_TRY(
      RequireRange("optimizer.warmup_steps", static_cast<double>(optimizer.warmup_steps), 0, 1e12));
  MW_TRY(
      RequireRange("optimizer.total_steps", static_cast<double>(optimizer.total_steps), 0, 1e12));
  MW_TRY(RequireDecayRate("optimizer.beta1", optimizer.beta1));
  MW_TRY(RequireDecayRate("optimizer.beta2", optimizer.beta2));
  MW_TRY(RequireDecayRate("optimizer.momentum", optimizer.momentum));
  // Without it a weight whose gradient was always 0 becomes 0/0.
  MW_TRY(RequireRange("optimizer.eps", optimizer.eps, 1e-30, 1));
  MW_TRY(RequireRange("optimizer.weight_decay", optimizer.weight_decay, 0, 1e6));
  return RequireRange("optimizer.max_norm", optimizer.max_norm, 0, 1e12);
}

// What Adafactor remembers is of whole params.
Status CheckFactored(const JobRequest& job) {
  if (job.trained() == nullptr || job.optimizer.name != "adafactor") return OkStatus();
  if (job.parallel.zero > 1) {
    return InvalidField("parallel.zero",
                        fmt::format("is {}; adafactor renews whole params, so its gradients and "
                                    "weights are not split: take 0 or 1, or another optimizer",
                                    job.parallel.zero));
  }
  if (job.parallel.schedule.ends_with("-vocab")) {
    return InvalidField("parallel.schedule",
                        fmt::format("is '{}', which splits the vocabulary over stages; adafactor "
                                    "renews whole params: take the schedule without \"-vocab\"",
                                    job.parallel.schedule));
  }
  return OkStatus();
}

}  // namespace

Status CheckOptimizer(const JobRequest& job) {
  MW_TRY(CheckOptimizerSpec(job.optimizer));
  return CheckFactored(job);
}

}  // namespace meshwright::ir
