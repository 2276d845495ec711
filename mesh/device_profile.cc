#include "mesh/device_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace meshwright::mesh {
namespace {

constexpr size_t kF32Index = static_cast<size_t>(ir::DType::kF32);

bool IsPositive(double value) { return value > 0 && std::isfinite(value); }

bool StartsBefore(double flops, const RatePoint& point) { return flops < point.flops; }

Status CheckCurve(const RateCurve& curve, const std::string& where) {
  for (size_t i = 0; i < curve.size(); ++i) {
    if (!IsPositive(curve[i].flops) || !IsPositive(curve[i].flops_per_s)) {
      return InvalidArgument(fmt::format("{}: point {} is {}:{}; both must be above 0", where,
                                         i + 1, curve[i].flops, curve[i].flops_per_s));
    }
    if (i > 0 && curve[i].flops <= curve[i - 1].flops) {
      return InvalidArgument(fmt::format("{}: point {} has {} FLOPs after {}; they must ascend",
                                         where, i + 1, curve[i].flops, curve[i - 1].flops));
    }
  }
  return OkStatus();
}

Status CheckKernel(const DeviceProfile& profile, KernelClass kernel) {
  const KernelRates& rates = profile.Rates(kernel);
  const std::string where =
      fmt::format("device profile \"{}\": {}", profile.name, KernelClassName(kernel));
  if (!IsPositive(rates.bytes_per_s)) {
    return InvalidArgument(
        fmt::format("{}: bytes_per_s is {}; it must be above 0", where, rates.bytes_per_s));
  }
  if (rates.curves[kF32Index].empty()) {
    return InvalidArgument(fmt::format("{}: has no rate of f32", where));
  }
  for (size_t d = 0; d < kDTypeCount; ++d) {
    const std::string_view dtype = ir::DTypeName(static_cast<ir::DType>(d));
    MW_TRY(CheckCurve(rates.curves[d], fmt::format("{}: rate of {}", where, dtype)));
  }
  return OkStatus();
}

Status CheckLink(const DeviceProfile& profile, std::string_view name,
                 const std::optional<LinkCost>& link) {
  if (!link) return OkStatus();
  const bool latency = link->alpha_s >= 0 && std::isfinite(link->alpha_s);
  if (latency && IsPositive(link->seconds_per_byte)) return OkStatus();
  return InvalidArgument(
      fmt::format("device profile \"{}\": link {} takes {} s per message and {} s per byte; the "
                  "first must be 0 "
                  "or more, the second above 0",
                  profile.name, name, link->alpha_s, link->seconds_per_byte));
}

}  // namespace

std::string_view DeviceKindName(DeviceKind kind) {
  return kind == DeviceKind::kGpu ? "gpu" : "cpu";
}

std::string_view KernelClassName(KernelClass kernel) {
  switch (kernel) {
    case KernelClass::kProduct:
      return "product";
    case KernelClass::kAttention:
      return "attention";
    case KernelClass::kHead:
      return "head";
    case KernelClass::kElementwise:
      return "elementwise";
    case KernelClass::kOptimizer:
      return "optimizer";
    case KernelClass::kGather:
      return "gather";
  }
  return "?";
}

KernelClass KernelClassOf(ir::Op op) {
  switch (op) {
    case ir::Op::kEinsum:
    case ir::Op::kConv2d:
    case ir::Op::kConv2dGradInput:
    case ir::Op::kConv2dGradKernel:
    case ir::Op::kGroupedMatmul:
    case ir::Op::kGroupedMatmulGrad:
      return KernelClass::kProduct;
    case ir::Op::kAttention:
    case ir::Op::kAttentionGrad:
    case ir::Op::kAttentionQkv:
    case ir::Op::kAttentionQkvGrad:
    case ir::Op::kPagedAttention:
      return KernelClass::kAttention;
    case ir::Op::kHeadLoss:
    case ir::Op::kHeadLossGrad:
      return KernelClass::kHead;
    case ir::Op::kAdamW:
    case ir::Op::kSgd:
      return KernelClass::kOptimizer;
    case ir::Op::kEmbedding:
    case ir::Op::kEmbeddingGrad:
    case ir::Op::kPick:
    case ir::Op::kGather:
    case ir::Op::kScatterAdd:
    case ir::Op::kDispatch:
    case ir::Op::kCombine:
    case ir::Op::kCombineGradWeights:
      return KernelClass::kGather;
    default:
      return KernelClass::kElementwise;
  }
}

double DeviceProfile::PeakOf(ir::DType dtype) const {
  const double own = peak_flops_per_s[static_cast<size_t>(dtype)];
  return own > 0 ? own : peak_flops_per_s[kF32Index];
}

double DeviceProfile::RateOf(KernelClass kernel, ir::DType dtype, double flops) const {
  const KernelRates& rates = Rates(kernel);
  const RateCurve& own = rates.curves[static_cast<size_t>(dtype)];
  const RateCurve& curve = own.empty() ? rates.curves[kF32Index] : own;
  MW_CHECK(!curve.empty()) << "device profile " << name << " was not checked";
  const auto above = std::upper_bound(curve.begin(), curve.end(), flops, StartsBefore);
  if (above == curve.begin()) return above->flops_per_s * std::max(flops, 1.0) / above->flops;
  const RatePoint& low = *(above - 1);
  if (above == curve.end()) return low.flops_per_s;
  const double part = std::log(flops / low.flops) / std::log(above->flops / low.flops);
  return low.flops_per_s + part * (above->flops_per_s - low.flops_per_s);
}

double DeviceProfile::Seconds(KernelClass kernel, ir::DType dtype, const ir::OpCost& cost) const {
  const double compute_s = cost.flops > 0 ? cost.flops / RateOf(kernel, dtype, cost.flops) : 0;
  return launch_s + std::max(compute_s, cost.bytes / Rates(kernel).bytes_per_s);
}

Status CheckDeviceProfile(const DeviceProfile& profile) {
  const auto wrong = [&](std::string_view what) {
    return InvalidArgument(fmt::format("device profile \"{}\": {}", profile.name, what));
  };
  if (profile.name.empty()) return wrong("has no name");
  if (profile.memory_bytes < 0) {
    return wrong(fmt::format("memory_bytes is {}; it must be 0 or more", profile.memory_bytes));
  }
  if (profile.reserve_bytes < 0 ||
      profile.reserve_bytes > std::max<int64_t>(0, profile.memory_bytes - 1)) {
    return wrong(fmt::format("reserve_bytes is {}; it must be 0 or more and below memory_bytes, {}",
                             profile.reserve_bytes, profile.memory_bytes));
  }
  if (!(profile.launch_s >= 0) || !std::isfinite(profile.launch_s)) {
    return wrong(fmt::format("launch_s is {}; it must be 0 or more", profile.launch_s));
  }
  for (size_t d = 0; d < kDTypeCount; ++d) {
    const double peak = profile.peak_flops_per_s[d];
    const bool is_set = d == kF32Index || peak != 0;
    if (!is_set || IsPositive(peak)) continue;
    return wrong(fmt::format("the peak of {} is {}; it must be above 0",
                             ir::DTypeName(static_cast<ir::DType>(d)), peak));
  }
  for (size_t k = 0; k < kKernelClassCount; ++k) {
    MW_TRY(CheckKernel(profile, static_cast<KernelClass>(k)));
  }
  const double share = profile.host_compute_share;
  if (share != 0 && !(share > 0 && share <= 1)) {
    return InvalidArgument(fmt::format(
        "host_compute_share is {}; it must be above 0 and at most 1, or 0 where it is not known",
        share));
  }
  if (profile.host_bytes_per_s != 0 && !IsPositive(profile.host_bytes_per_s)) {
    return wrong(
        fmt::format("host_bytes_per_s is {}; it must be above 0, or 0 where it is not known",
                    profile.host_bytes_per_s));
  }
  MW_TRY(CheckLink(profile, "process", profile.links.process));
  MW_TRY(CheckLink(profile, "memory", profile.links.memory));
  MW_TRY(CheckLink(profile, "disk", profile.links.disk));
  return CheckLink(profile, "host", profile.links.host);
}

}  // namespace meshwright::mesh
