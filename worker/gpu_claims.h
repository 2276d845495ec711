// The GPUs that a worker has taken. Workers of a host claim them by their unique ids, so that
// no two use the same one, whoever started them; a claim is as that of a core
// (worker/core_claims.h).
//
// Thread rule: immutable. Ownership: gives the GPUs back when destroyed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "device/cuda/plugin.h"

namespace meshwright::worker {

class GpuClaims {
 public:
  // Those of `which`; none named: the first `count` that nobody has, 0: all of these. `realm`:
  // claims of different realms do not meet. Errors: kInvalidArgument: there are not so many;
  // kFailedPrecondition: a named one is another worker's; kUnavailable: not enough are free.
  static Result<GpuClaims> Take(std::span<const device::cuda::Gpu> all, int count,
                                const std::vector<int>& which, const std::string& realm = "gpu");

  const std::vector<int>& indices() const { return indices_; }

 private:
  std::vector<int> indices_;
  std::vector<UniqueFd> sockets_;
};

}  // namespace meshwright::worker
