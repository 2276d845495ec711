// What a device can do: the numbers that turn FLOPs and bytes into seconds.
//
// Kernels come in classes that reach different shares of a machine. Of each class and element type
// there is a curve of the rate over the FLOPs of one call, given by points and straight between
// them on the logarithm of the FLOPs; behind the last point the rate stays, and a call below the
// first one takes as long as the first, since its start and its tail are what takes the time.
// Seconds of a call = launch + max(FLOPs / rate, bytes / bandwidth of the class).
//
// Profiles of workers are measured when they register; those of known accelerators are data with
// their sources (mesh/known_profiles.cc). The text form, one fact a line, "#" starts a comment:
//   profile "a100-80g"
//   source "NVIDIA A100 datasheet"
//   kind gpu                      # or cpu; without it what the name says: a GPU if it is a known
//   one memory_bytes 85899345920 reserve_bytes 4294967296      # of these plans use none launch_s
//   1e-06 peak bf16 312000000000000 bytes_per_s product 1835100000000 rate product bf16
//   33554432:4.1e12 268435456:2.62e13 link host 2.1e-06 4.5e-11     # seconds per message, seconds
//   per byte link memory 1e-05 4.2e-11     # between the memories of the host and the device link
//   disk 1e-04 5e-10         # between the worker's disk and the device host_bytes_per_s
//   31000000000 host_compute_share 0.87
//
// Thread rule: values, pure functions. Source: the roofline model (Williams et al., CACM 2009)
// with measured roofs; the growth of a rate with the work, Hockney and Jesshope, Parallel
// Computers, 1981, 1.3.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/dtype.h"
#include "ir/op.h"
#include "ir/schema.h"
#include "mesh/cost.h"

namespace meshwright::mesh {

enum class KernelClass : uint8_t {
  kProduct,      // einsum, convolution, an expert's rows with its weights
  kAttention,    // and its gradient
  kHead,         // the product with the vocabulary and its loss as one node
  kElementwise,  // everything that passes over memory once: norms, activations, sums, softmax
  kOptimizer,
  kGather,  // rows by index: embedding and its gradient, tokens to the slots of experts
};
inline constexpr size_t kKernelClassCount = 6;
inline constexpr size_t kDTypeCount = 7;  // of ir::DType

std::string_view KernelClassName(KernelClass kernel);  // "product", "attention", ...
// Of a node that is neither a collective nor fused. Fused ones have a class per step.
KernelClass KernelClassOf(ir::Op op);

struct RatePoint {
  double flops = 0;  // of one call
  double flops_per_s = 0;
  friend bool operator==(const RatePoint&, const RatePoint&) = default;
};
using RateCurve = std::vector<RatePoint>;  // FLOPs ascend

struct KernelRates {
  double bytes_per_s = 0;
  std::array<RateCurve, kDTypeCount> curves;  // by ir::DType; empty: as f32
  friend bool operator==(const KernelRates&, const KernelRates&) = default;
};

// What a worker measured with a partner of its own (worker/link_timing.h), and what is between its
// devices' memory and the host's, where that is known. Links between hosts are
// not among them: a worker that registers has no peer elsewhere to measure with.
struct MeasuredLinks {
  std::optional<LinkCost> process;  // devices of one worker
  std::optional<LinkCost> host;     // workers of one host
  std::optional<LinkCost> memory;   // of the host, for a device
  std::optional<LinkCost> disk;     // of the worker, for a device
  friend bool operator==(const MeasuredLinks&, const MeasuredLinks&) = default;
};

// What decides how a plan uses a device, beside its numbers: GPUs have queues, a host that computes
// beside them, and no disk.
enum class DeviceKind : uint8_t { kCpu, kGpu };
std::string_view DeviceKindName(DeviceKind kind);  // "cpu", "gpu"
// Of a profile whose text does not say it: that of the known one of this name, else kCpu.
DeviceKind KindOfProfileName(std::string_view name);

struct DeviceProfile {
  std::string name;
  DeviceKind kind = DeviceKind::kCpu;
  std::string source;        // where the numbers are from
  int64_t memory_bytes = 0;  // 0: not known
  // What plans leave of it to what they do not count (base/gpu_reserve.h): driver, libraries.
  int64_t reserve_bytes = 0;
  double launch_s = 0;
  // What the vendor states, or the best that was measured: the measure of utilisation. 0: as f32.
  std::array<double, kDTypeCount> peak_flops_per_s = {};
  std::array<KernelRates, kKernelClassCount> kernels;
  MeasuredLinks links;
  // What all cores of the host stream together, where that was measured; 0: not known. A device
  // alone streams the bytes_per_s of kElementwise.
  double host_bytes_per_s = 0;
  // What a core keeps of its rates while all cores of the host compute: cores may be two threads of
  // one, and clocks fall. 0: not known, taken as 1.
  double host_compute_share = 0;

  // What a job may use. 0: not known.
  int64_t usable_bytes() const { return memory_bytes - reserve_bytes; }
  KernelRates& Rates(KernelClass kernel) { return kernels[static_cast<size_t>(kernel)]; }
  const KernelRates& Rates(KernelClass kernel) const {
    return kernels[static_cast<size_t>(kernel)];
  }
  double PeakOf(ir::DType dtype) const;
  // FLOPs per second of a call with `flops`. REQUIRES: CheckDeviceProfile is OK.
  double RateOf(KernelClass kernel, ir::DType dtype, double flops) const;
  // Seconds of a call. REQUIRES: as above.
  double Seconds(KernelClass kernel, ir::DType dtype, const ir::OpCost& cost) const;
  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

// Every class has a curve of f32 and a bandwidth; numbers are above 0 (latencies and launch_s may
// be 0), FLOPs of points ascend.
// Errors: kInvalidArgument naming the profile, the class and the number.
Status CheckDeviceProfile(const DeviceProfile& profile);

std::string FormatDeviceProfile(const DeviceProfile& profile);
// Parse(Format(x)) == x. Errors: kInvalidArgument "line 4: ..." naming what was expected there, and
// as CheckDeviceProfile.
Result<DeviceProfile> ParseDeviceProfile(std::string_view text);

using SharedProfile = std::shared_ptr<const DeviceProfile>;

// By name: "v100-32g", "a100-40g", "a100-80g", "h100-80g", "h800-80g", "h200-141g", "cpu". Those of
// GPUs have the link to the host's memory, and none between GPUs.
const std::map<std::string, SharedProfile>& KnownDeviceProfiles();
// That of a GPU as its driver names it ("NVIDIA A100-SXM4-80GB"), the one of the nearest memory
// where several are of this name; null: not known.
SharedProfile ProfileOfGpu(std::string_view name, int64_t memory_bytes);
// Between GPUs of that name on one host, which ProfileOfGpu() knows.
MeasuredLinks LinksOfGpu(std::string_view name, const DeviceProfile& known);
// "cpu": one core of some server, where nothing was measured.
const SharedProfile& DefaultDeviceProfile();

}  // namespace meshwright::mesh
