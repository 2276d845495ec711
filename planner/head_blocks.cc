#include "planner/head_blocks.h"

#include <algorithm>
#include <cmath>

namespace meshwright::planner {
namespace {

constexpr double kTokensPerBalance = 20;
// Where the memory is that slow, CPUs want larger blocks, too.
constexpr int64_t kFewTokens = 1024;

}  // namespace

std::optional<ir::JobRequest> WithHeadBlocks(const ir::JobRequest& job,
                                             const mesh::Topology& topology) {
  if (job.parallel.head_block_tokens > 0 || topology.devices.empty()) return std::nullopt;
  const mesh::DeviceProfile& profile = topology.ProfileOf(0);
  const mesh::KernelRates& rates = profile.Rates(mesh::KernelClass::kHead);
  const mesh::RateCurve& curve = rates.curves[static_cast<size_t>(job.train.compute_dtype)];
  if (curve.empty() || rates.bytes_per_s <= 0) return std::nullopt;
  const auto tokens = static_cast<int64_t>(
      std::ceil(kTokensPerBalance * curve.back().flops_per_s / rates.bytes_per_s));
  if (tokens <= kFewTokens) return std::nullopt;
  std::optional<ir::JobRequest> sized = job;
  sized->parallel.head_block_tokens = tokens;
  return sized;
}

}  // namespace meshwright::planner
