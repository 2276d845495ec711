#include "worker/gpu_claims.h"

#include <fmt/format.h>

#include <utility>

#include "worker/core_claims.h"

namespace meshwright::worker {

Result<GpuClaims> GpuClaims::Take(std::span<const device::cuda::Gpu> all, int count,
                                  const std::vector<int>& which, const std::string& realm) {
  GpuClaims claims;
  const auto claim = [&](int index) {
    const char* uuid = all[static_cast<size_t>(index)].description.uuid;
    UniqueFd socket = ClaimName(fmt::format("meshwright-{}-{}", realm, uuid));
    if (!socket.valid()) return false;
    claims.indices_.push_back(index);
    claims.sockets_.push_back(std::move(socket));
    return true;
  };
  for (const int index : which) {
    if (index < 0 || index >= static_cast<int>(all.size())) {
      return Fail(InvalidArgument(fmt::format("GPU {} asked for, this machine has {}: 0 to {}",
                                              index, all.size(), all.size() - 1)));
    }
    if (claim(index)) continue;
    return Fail(FailedPrecondition(fmt::format(
        "GPU {} is another worker's, or named twice; name others with --gpus, or stop that worker",
        index)));
  }
  if (!which.empty()) return claims;
  if (count > static_cast<int>(all.size())) {
    return Fail(
        InvalidArgument(fmt::format("{} GPUs asked for, this machine has {}", count, all.size())));
  }
  const size_t wanted = count == 0 ? all.size() : static_cast<size_t>(count);
  for (int index = 0; index < static_cast<int>(all.size()); ++index) {
    if (claims.indices_.size() < wanted) (void)claim(index);
  }
  const size_t found = claims.indices_.size();
  if (found == 0 || (count > 0 && found < wanted)) {
    return Fail(
        Unavailable(fmt::format("{} of the {} GPUs of this machine are free, the others are "
                                "other workers'",
                                found, all.size())));
  }
  return claims;
}

}  // namespace meshwright::worker
