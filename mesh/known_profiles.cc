// Profiles of accelerators that are sold, as data.
//
// Peaks, memory and bandwidths are the vendor's: NVIDIA V100 datasheet (2020; SXM2, 32 GB), A100
// datasheet (2021; SXM4, 40 and 80 GB), H100 architecture whitepaper (SXM5: 989.4, 66.9 and 33.5
// TFLOP/s, dense; the datasheet of 2023 prints them rounded, and 3.35 TB/s), H200 datasheet (2024;
// SXM5: 141 GB at 4.8 TB/s, rates as H100), H800 (an H100 with f64 of 1 TFLOP/s and NVLink of 400
// GB/s in both directions together). f32 is the arithmetic of IEEE 754: no TF32; f64 is that
// of vectors, not of tensor cores. No number in here is fitted to a step that somebody measured.
//
// Products in 16 bits: cuBLAS on an A100, square products of 256 to 4096 in f16, as the
// documentation of Triton prints them for its tutorial 3 (main/getting-started, matrix
// multiplication). Its largest product, 4096, reaches 219.7 TFLOP/s; the best shape that is known
// reaches 271.2 (Bekman, Machine Learning Engineering, table of maximum achievable matmul FLOPS),
// so the curve stays on the careful side. No such table of other accelerators is public, so theirs
// is that of the A100 with FLOPs and rates times the ratio of what is achievable: 794.5 of 271.2
// for H100 ("H200 is the same", same table), and of the peaks, 125 of 312, for V100. Scaling both
// leaves seconds as they are: a start and a tail take what they take. The same way f32 and f64 have
// the curve times the ratio of their peaks to the 16-bit peak.
//
// Attention: FlashAttention-2 on A100 reaches 50 to 73 % of the peak, backwards 63 % at most (Dao,
// 2023, abstract and section 4.1: 512 to 16k tokens, 16k tokens a batch, hidden 2048). On H100 it
// reaches 35 %, and FlashAttention-3 75 % (Shah et al., 2024, abstract). For V100 nothing alike is
// published: half the rates of products, an assumption.
//
// Memory: nine tenths of the datasheet's rate, what BabelStream reaches on V100 and A100 (Deakin et
// al., 2018, and its published results); rows by index half of that, an assumption. A launch: 3.8
// us for kernels of 2.9 us each when launches overlap (Gray, Getting Started with CUDA Graphs,
// NVIDIA, 2019), so 0.9 us.
//
// Links: the datasheets' NVLink (300, 600 and 900 GB/s in both directions together), of which three
// quarters are reached, and 10 us a message: assumptions, for modules that are all connected. Cards
// talk over PCI Express, and so does every GPU with its host's memory.
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/gpu_reserve.h"
#include "mesh/device_profile.h"

namespace meshwright::mesh {
namespace {

constexpr double kTera = 1e12;
constexpr int64_t kGib = int64_t{1} << 30;

constexpr double kA100Peak = 312 * kTera;
constexpr double kA100Achievable = 271.2 * kTera;
constexpr double kH100Achievable = 794.5 * kTera;

constexpr double kStreamShare = 0.9;
constexpr double kGatherShare = 0.45;
constexpr double kGpuLaunchS = 0.9e-6;

constexpr double kLinkReached = 0.75;
constexpr double kMessageS = 10e-6;
constexpr double kPciBytesPerS = 32e9;  // 16 lanes of the fourth generation

// 2 n^3 FLOPs for n = 256, 384, 512, 768, 1024, 1280, 1536, 2048, 3072, 4096.
const RateCurve& A100Products() {
  static const RateCurve curve = {{33554432., 4.1 * kTera},      {113246208., 12.3 * kTera},
                                  {268435456., 26.2 * kTera},    {905969664., 63.2 * kTera},
                                  {2147483648., 110.4 * kTera},  {4194304000., 157.5 * kTera},
                                  {7247757312., 176.9 * kTera},  {17179869184., 223.7 * kTera},
                                  {57982058496., 209.7 * kTera}, {137438953472., 219.7 * kTera}};
  return curve;
}

RateCurve Scaled(const RateCurve& curve, double ratio) {
  RateCurve scaled = curve;
  for (RatePoint& point : scaled) {
    point.flops *= ratio;
    point.flops_per_s *= ratio;
  }
  return scaled;
}

// What a datasheet says, and where attention is between.
struct Datasheet {
  std::string name;
  int64_t memory_gib = 0;
  double bytes_per_s = 0;
  double half_peak = 0;
  double f32_peak = 0;
  double f64_peak = 0;
  bool has_bf16 = true;
  double link_bytes_per_s = 0;     // NVLink, all links of the module in one direction
  double products_ratio = 1;       // to the products of an A100
  double attention_low_share = 0;  // of the 16-bit peak, at 512 tokens
  double attention_high_share = 0;
  std::string source;
};

// FLOPs of a causal call over 16k tokens of hidden 2048, forward: 2 * length * tokens * hidden.
constexpr double kShortAttentionFlops = 2. * 512 * 16384 * 2048;
constexpr double kLongAttentionFlops = 2. * 16384 * 16384 * 2048;

// Small calls lose as products do: their curve, cut where attention's own begins.
RateCurve AttentionCurve(const RateCurve& products, double low_rate, double high_rate) {
  RateCurve curve;
  const double share = low_rate / products.back().flops_per_s;
  for (const RatePoint& point : products) {
    if (point.flops >= kShortAttentionFlops) break;
    curve.push_back({point.flops, std::min(low_rate, share * point.flops_per_s)});
  }
  curve.push_back({kShortAttentionFlops, low_rate});
  curve.push_back({kLongAttentionFlops, high_rate});
  return curve;
}

void SetCurves(DeviceProfile& profile, const Datasheet& sheet, ir::DType dtype, double peak) {
  const auto d = static_cast<size_t>(dtype);
  const double ratio = sheet.products_ratio * peak / sheet.half_peak;
  const RateCurve products = Scaled(A100Products(), ratio);
  profile.peak_flops_per_s[d] = peak;
  profile.Rates(KernelClass::kProduct).curves[d] = products;
  profile.Rates(KernelClass::kHead).curves[d] = products;
  profile.Rates(KernelClass::kAttention).curves[d] =
      AttentionCurve(products, sheet.attention_low_share * peak, sheet.attention_high_share * peak);
  // Vector units, whatever the element type: memory is what bounds these.
  const RateCurve flat = {{1, dtype == ir::DType::kF64 ? sheet.f64_peak : sheet.f32_peak}};
  for (const KernelClass kernel :
       {KernelClass::kElementwise, KernelClass::kOptimizer, KernelClass::kGather}) {
    profile.Rates(kernel).curves[d] = flat;
  }
}

DeviceProfile ProfileOf(const Datasheet& sheet) {
  DeviceProfile profile;
  profile.name = sheet.name;
  profile.kind = DeviceKind::kGpu;
  profile.source = sheet.source;
  profile.memory_bytes = sheet.memory_gib * kGib;
  profile.reserve_bytes = GpuReserveBytes(profile.memory_bytes);
  profile.launch_s = kGpuLaunchS;
  for (KernelRates& rates : profile.kernels) rates.bytes_per_s = kStreamShare * sheet.bytes_per_s;
  profile.Rates(KernelClass::kGather).bytes_per_s = kGatherShare * sheet.bytes_per_s;
  SetCurves(profile, sheet, ir::DType::kF32, sheet.f32_peak);
  SetCurves(profile, sheet, ir::DType::kF64, sheet.f64_peak);
  SetCurves(profile, sheet, ir::DType::kF16, sheet.half_peak);
  if (sheet.has_bf16) SetCurves(profile, sheet, ir::DType::kBF16, sheet.half_peak);
  profile.links.memory = LinkCost{kMessageS, 1 / (kLinkReached * kPciBytesPerS)};
  return profile;
}

// One core of a server with vectors of 256 bits: an assumption, for dry runs without a measured
// profile. Rates of a product fall with its size as they do where the operands still have to be
// packed.
DeviceProfile CpuProfile() {
  constexpr double kPeak = 5e10;
  constexpr double kBytesPerS = 1e10;
  DeviceProfile profile;
  profile.name = "cpu";
  profile.source = "assumed: one core with vectors of 256 bits";
  profile.launch_s = 1e-6;
  const auto set = [&](ir::DType dtype, double peak) {
    const auto d = static_cast<size_t>(dtype);
    profile.peak_flops_per_s[d] = peak;
    const RateCurve products = {{1e4, 0.1 * peak}, {1e6, 0.6 * peak}, {1e8, 0.9 * peak}};
    profile.Rates(KernelClass::kProduct).curves[d] = products;
    profile.Rates(KernelClass::kHead).curves[d] = products;
    profile.Rates(KernelClass::kAttention).curves[d] = {{1e4, 0.1 * peak}, {1e6, 0.4 * peak}};
    for (const KernelClass kernel :
         {KernelClass::kElementwise, KernelClass::kOptimizer, KernelClass::kGather}) {
      profile.Rates(kernel).curves[d] = {{1, 0.2 * kPeak}};
    }
  };
  set(ir::DType::kF32, kPeak);
  set(ir::DType::kBF16, 2 * kPeak);
  set(ir::DType::kF16, 2 * kPeak);
  set(ir::DType::kF64, kPeak / 16);  // the reference kernels: plain loops
  for (KernelRates& rates : profile.kernels) rates.bytes_per_s = kBytesPerS;
  profile.Rates(KernelClass::kGather).bytes_per_s = kBytesPerS / 2;
  return profile;
}

std::vector<Datasheet> Datasheets() {
  constexpr double kHopper = kH100Achievable / kA100Achievable;
  return {
      {"v100-32g", 32, 0.900 * kTera, 125 * kTera, 15.7 * kTera, 7.8 * kTera, false, 0.150 * kTera,
       125 * kTera / kA100Peak, 0.35, 0.35,
       "NVIDIA V100 datasheet; curves scaled from cuBLAS on A100, attention assumed"},
      {"a100-40g", 40, 1.555 * kTera, kA100Peak, 19.5 * kTera, 9.7 * kTera, true, 0.300 * kTera, 1,
       0.50, 0.63, "NVIDIA A100 datasheet; cuBLAS in Triton tutorial 3; FlashAttention-2"},
      {"a100-80g", 80, 2.039 * kTera, kA100Peak, 19.5 * kTera, 9.7 * kTera, true, 0.300 * kTera, 1,
       0.50, 0.63, "NVIDIA A100 datasheet; cuBLAS in Triton tutorial 3; FlashAttention-2"},
      {"h100-80g", 80, 3.35 * kTera, 989.4 * kTera, 66.9 * kTera, 33.5 * kTera, true, 0.450 * kTera,
       kHopper, 0.35, 0.75,
       "NVIDIA H100 datasheet; curves scaled from A100 by Bekman's table; FlashAttention-3"},
      {"h800-80g", 80, 3.35 * kTera, 989.4 * kTera, 66.9 * kTera, 1 * kTera, true, 0.200 * kTera,
       kHopper, 0.35, 0.75, "an H100 with less f64 and NVLink; rates as h100-80g"},
      {"h200-141g", 141, 4.8 * kTera, 989.4 * kTera, 66.9 * kTera, 33.5 * kTera, true,
       0.450 * kTera, kHopper, 0.35, 0.75, "NVIDIA H200 datasheet; rates as h100-80g"},
  };
}

}  // namespace

const std::map<std::string, SharedProfile>& KnownDeviceProfiles() {
  static const std::map<std::string, SharedProfile> profiles = [] {
    std::map<std::string, SharedProfile> known;
    for (const Datasheet& sheet : Datasheets()) {
      known[sheet.name] = std::make_shared<const DeviceProfile>(ProfileOf(sheet));
    }
    known["cpu"] = std::make_shared<const DeviceProfile>(CpuProfile());
    return known;
  }();
  return profiles;
}

DeviceKind KindOfProfileName(std::string_view name) {
  const auto& known = KnownDeviceProfiles();
  const auto it = known.find(std::string(name));
  return it == known.end() ? DeviceKind::kCpu : it->second->kind;
}

MeasuredLinks LinksOfGpu(std::string_view name, const DeviceProfile& known) {
  MeasuredLinks links = known.links;
  for (const Datasheet& sheet : Datasheets()) {
    if (sheet.name != known.name) continue;
    const bool pci = name.find("PCI") != std::string_view::npos;
    const double bytes_per_s = pci ? kPciBytesPerS : sheet.link_bytes_per_s;
    links.process = LinkCost{kMessageS, 1 / (kLinkReached * bytes_per_s)};
    links.host = links.process;
  }
  return links;
}

SharedProfile ProfileOfGpu(std::string_view name, int64_t memory_bytes) {
  SharedProfile nearest;
  const auto distance = [&](const SharedProfile& profile) {
    return std::abs(profile->memory_bytes - memory_bytes);
  };
  for (const auto& [known, profile] : KnownDeviceProfiles()) {
    std::string family = known.substr(0, known.find('-'));  // "a100"
    std::transform(family.begin(), family.end(), family.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    if (known == "cpu" || name.find(family) == std::string_view::npos) continue;
    if (nearest == nullptr || distance(profile) < distance(nearest)) nearest = profile;
  }
  return nearest;
}

const SharedProfile& DefaultDeviceProfile() {
  static const SharedProfile profile = KnownDeviceProfiles().at("cpu");
  return profile;
}

}  // namespace meshwright::mesh
