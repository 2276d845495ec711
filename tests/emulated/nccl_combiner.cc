// The combining kernel, on the host.
#include "collective/cpu/reduce.h"
#include "tests/emulated/nccl.h"

namespace meshwright::emulated {

Status EmulatedCombiner::LogSumExp(const nccl::CombineArgs& args, device::Queue& queue) {
  MW_ASSIGN_OR_RETURN(const auto kernel,
                      collective::FindReduceKernel(args.dtype, collective::Reduction::kLogSumExp));
  const nccl::Code code = static_cast<Stream*>(queue.native())->Push([args, kernel] {
    const int64_t bytes = args.count * ir::DTypeBytes(args.dtype);
    collective::Accumulator accumulator(bytes);
    for (int32_t i = 0; i < args.parts; ++i) {
      accumulator.Add(kernel, static_cast<const std::byte*>(args.pieces) + i * bytes, args.count,
                      i == 0);
    }
    accumulator.Store(kernel, args.output, args.count);
    return true;
  }) == device::cuda::kSuccess
                              ? nccl::Code::kSuccess
                              : nccl::Code::kUnhandledCudaError;
  return code == nccl::Code::kSuccess ? OkStatus() : Internal("the combining kernel was not taken");
}

}  // namespace meshwright::emulated
