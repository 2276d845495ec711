// feed, constant, random_normal, learning_rate: values that come from outside the graph.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/philox.h"
#include "ir/rate_schedule.h"
#include "ops/feed_rows.h"
#include "ops/global_runs.h"
#include "ops/parallel.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

KernelResult MakeFeed(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const FeedRows rows, FeedRows::Of(spec));
  return MakeFunctionKernel([rows](const RunContext& context, Inputs, Outputs outputs) {
    return rows.Read(context, static_cast<std::byte*>(outputs[0].data));
  });
}

template <typename T>
KernelResult MakeConstant(const KernelSpec& spec) {
  return MakeFunctionKernel([value = static_cast<T>(spec.attrs.Real("value"))](
                                const RunContext&, Inputs, Outputs outputs) -> Status {
    std::fill_n(outputs[0].as<T>(), outputs[0].elements(), value);
    return {};
  });
}

// Padding beyond the global edge is 0.
template <typename T>
KernelResult MakeRandomNormal(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  const uint64_t stream = StreamOf(spec.attrs.Str("name"));
  const double mean = spec.attrs.Real("mean");
  const double deviation = spec.attrs.Real("std", 1);
  return MakeFunctionKernel([runs = GlobalRuns(block), stream, mean, deviation](
                                const RunContext& context, Inputs, Outputs outputs) -> Status {
    T* out = outputs[0].as<T>();
    for (int64_t r = 0; r < runs.runs(); ++r) {
      const GlobalRuns::Run run = runs.At(r, context.microbatch);
      T* row = out + r * runs.run_length();
      ParallelRange(context, run.valid, 1024, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const uint64_t index = static_cast<uint64_t>(run.global_start + i);
          row[i] = static_cast<T>(mean + deviation * PhiloxNormal(context.seed, stream, index));
        }
      });
      std::fill(row + run.valid, row + runs.run_length(), T{0});
    }
    return {};
  });
}

struct Schedule {
  enum class Kind : uint8_t {
    kConstant,
    kLinear,
    kCosine,
    kPolynomial,
    kRestarts,
    kInverseSqrt,
    kRelative,
    kRelativeWarmup
  };
  Kind kind = Kind::kConstant;
  double lr = 0;
  double min_lr = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double number = 1;  // of ir::RateSchedule

  // Of lr above min_lr, what is left when this share of the decay is done.
  double ShareAt(double progress) const {
    if (kind == Kind::kLinear) return 1.0 - progress;
    if (kind == Kind::kPolynomial) return std::pow(1.0 - progress, number);
    if (kind == Kind::kRestarts) {
      if (progress >= 1) return 0;
      progress = std::fmod(number * progress, 1.0);
    }
    return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  }

  double At(int64_t step) const {
    if (kind == Kind::kRelative || kind == Kind::kRelativeWarmup) {
      const double t = static_cast<double>(step + 1);
      return lr * std::min(kind == Kind::kRelative ? 1e-2 : 1e-6 * t, 1 / std::sqrt(t));
    }
    if (step < warmup_steps) {
      return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    }
    if (kind == Kind::kConstant) return lr;
    if (kind == Kind::kInverseSqrt) {
      const int64_t scale = warmup_steps > 0 ? warmup_steps : ir::kInverseSqrtShift;
      const int64_t shifted = step + scale - warmup_steps;
      return lr * std::sqrt(static_cast<double>(scale) / static_cast<double>(shifted));
    }
    const int64_t decay_steps = total_steps - warmup_steps;
    const double progress = decay_steps <= 0
                                ? 1.0
                                : std::min(1.0, static_cast<double>(step - warmup_steps) /
                                                    static_cast<double>(decay_steps));
    return min_lr + (lr - min_lr) * ShareAt(progress);
  }
};

template <typename T>
KernelResult MakeLearningRate(const KernelSpec& spec) {
  const std::string text = spec.attrs.Str("schedule", "constant");
  const auto parsed = ir::ParseSchedule(text);
  if (!parsed) {
    return Fail(InvalidArgument(
        fmt::format("learning_rate: unknown schedule '{}'; known: {}", text, ir::kSchedules)));
  }
  Schedule schedule;
  for (const auto& [name, kind] :
       {std::pair("linear", Schedule::Kind::kLinear), std::pair("cosine", Schedule::Kind::kCosine),
        std::pair(ir::kPolynomial, Schedule::Kind::kPolynomial),
        std::pair(ir::kRestarts, Schedule::Kind::kRestarts),
        std::pair(ir::kInverseSqrt, Schedule::Kind::kInverseSqrt),
        std::pair("relative", Schedule::Kind::kRelative),
        std::pair("relative_warmup", Schedule::Kind::kRelativeWarmup)}) {
    if (parsed->name == name) schedule.kind = kind;
  }
  schedule.lr = spec.attrs.Real("lr");
  schedule.min_lr = spec.attrs.Real("min_lr");
  schedule.warmup_steps = spec.attrs.Int("warmup_steps");
  schedule.total_steps = spec.attrs.Int("total_steps");
  schedule.number = parsed->number;
  return MakeFunctionKernel(
      [schedule](const RunContext& context, Inputs, Outputs outputs) -> Status {
        *outputs[0].as<T>() = static_cast<T>(schedule.At(context.step));
        return {};
      });
}

}  // namespace

KernelResult MakeSource(const KernelSpec& spec) {
  if (spec.op == ir::Op::kFeed) return MakeFeed(spec);
  return ForFloatType(spec, spec.outputs[0].dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    if (spec.op == ir::Op::kConstant) return MakeConstant<T>(spec);
    if (spec.op == ir::Op::kRandomNormal) return MakeRandomNormal<T>(spec);
    return MakeLearningRate<T>(spec);
  });
}

}  // namespace meshwright::ops::reference
