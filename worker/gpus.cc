#include "worker/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/gpu_reserve.h"
#include "base/log.h"

namespace meshwright::worker {
namespace {

// A plan takes all devices of a worker to be equal.
void WarnOfAnotherName(const device::cuda::Description& first,
                       const device::cuda::Description& other) {
  if (std::string_view(first.name) == other.name) return;
  LogWarn(
      fmt::format("the GPUs of this worker differ ({}, {}): plans take all to be as the first; "
                  "start a worker for each kind with --gpus",
                  first.name, other.name));
}

// What the devices of the process share.
struct Libraries {
  std::unique_ptr<ops::cuda::CodeCache> code;
  ops::cuda::Toolkit toolkit;
  ops::cuda::Toolkit tf32_toolkit;
  collective::nccl::Combiner* combiner = nullptr;
  std::unique_ptr<collective::nccl::Library> nccl;
  std::string no_nccl;
};

Result<std::unique_ptr<Libraries>> OpenLibraries(const device::cuda::Plugin& plugin) {
  auto opened = std::make_unique<Libraries>();
  MW_ASSIGN_OR_RETURN(void* of_parts, plugin.Symbol(ops::cuda::kPartsSymbol));
  MW_ASSIGN_OR_RETURN(void* of_combiner, plugin.Symbol(collective::nccl::kCombinerSymbol));
  const auto parts = reinterpret_cast<ops::cuda::Parts (*)()>(of_parts)();
  opened->code = std::make_unique<ops::cuda::CodeCache>(*parts.compiler);
  opened->toolkit.kernels = parts.kernels;
  opened->toolkit.blas = parts.blas;
  opened->toolkit.code = opened->code.get();
  opened->toolkit.head_rows = parts.head_rows;
  opened->toolkit.sdpa = parts.sdpa;
  opened->tf32_toolkit = opened->toolkit;
  opened->tf32_toolkit.tf32 = true;
  opened->combiner = reinterpret_cast<collective::nccl::Combiner* (*)()>(of_combiner)();
  auto nccl = collective::nccl::OpenLibrary();
  if (nccl.has_value()) {
    opened->nccl = std::move(*nccl);
  } else {
    opened->no_nccl = nccl.error().message();
    LogWarn("jobs get one GPU at most: " + opened->no_nccl);
  }
  return opened;
}

}  // namespace

Result<Gpus> FindGpus(int count, std::vector<int> which) {
  const Result<device::cuda::System>& system = device::cuda::ThisSystem();
  if (!system.has_value()) return Fail(system.error());
  const std::vector<device::cuda::Gpu>& all = system->gpus;
  if (which.empty()) {
    which.resize(count == 0 ? all.size() : static_cast<size_t>(count));
    std::iota(which.begin(), which.end(), 0);
  }
  for (const int index : which) {
    if (index >= 0 && index < static_cast<int>(all.size())) continue;
    return Fail(InvalidArgument(fmt::format("GPU {} asked for, this machine has {}: 0 to {}", index,
                                            all.size(), all.size() - 1)));
  }
  // Never closed: a device that does not end leaves threads behind, which use them.
  static const auto& libraries =
      *std::make_unique<Result<std::unique_ptr<Libraries>>>(OpenLibraries(system->plugin))
           .release();
  if (!libraries.has_value()) return Fail(libraries.error());
  Gpus gpus;
  gpus.driver = &system->plugin.driver();
  gpus.toolkit = &(*libraries)->toolkit;
  gpus.tf32_toolkit = &(*libraries)->tf32_toolkit;
  gpus.combiner = (*libraries)->combiner;
  gpus.nccl = (*libraries)->nccl.get();
  gpus.no_nccl = (*libraries)->no_nccl;
  gpus.indices = which;
  const auto of = [&](int index) { return all[static_cast<size_t>(index)].description; };
  gpus.name = of(which[0]).name;
  gpus.memory_bytes = of(which[0]).memory_bytes;
  for (const int index : which) {
    MW_TRY(device::cuda::CheckArchitecture(all[static_cast<size_t>(index)]));
    gpus.memory_bytes = std::min(gpus.memory_bytes, of(index).memory_bytes);
    WarnOfAnotherName(of(which[0]), of(index));
  }
  gpus.memory_bytes -= GpuReserveBytes(gpus.memory_bytes);
  return gpus;
}

Result<Gpus> ClaimGpus(int count, const std::vector<int>& which) {
  const Result<device::cuda::System>& system = device::cuda::ThisSystem();
  if (!system.has_value()) return Fail(system.error());
  MW_ASSIGN_OR_RETURN(GpuClaims claims, GpuClaims::Take(system->gpus, count, which));
  MW_ASSIGN_OR_RETURN(Gpus gpus, FindGpus(0, claims.indices()));
  gpus.claims = std::make_shared<const GpuClaims>(std::move(claims));
  return gpus;
}

}  // namespace meshwright::worker
