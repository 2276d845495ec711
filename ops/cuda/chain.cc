#include "ops/cuda/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ir/fused.h"
#include "ops/cuda/call.h"
#include "ops/cuda/cuda.h"
#include "ops/cuda/library_kernels.h"

namespace meshwright::ops::cuda {
namespace {

constexpr int64_t kChainThreads = 256;  // of a block
// Threads stride over the elements: more blocks than these per multiprocessor gain nothing.
constexpr int64_t kBlocksPerMultiprocessor = 32;

class ChainKernel final : public Kernel {
 public:
  explicit ChainKernel(ChainRunner runner) : runner_(std::move(runner)) {}

  int64_t scratch_bytes() const override { return runner_.scratch_bytes(); }
  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    return runner_.Run(context, inputs, outputs, nullptr, context.scratch);
  }

 private:
  ChainRunner runner_;
};

}  // namespace

SourceCode CodeFor(const CudaDevice& device, std::string text) {
  const device::cuda::Description& gpu = device.description();
  // Products and sums round each alone, as the nodes of the graph do.
  return {std::move(text),
          fmt::format("sm_{}{}", gpu.major, gpu.minor),
          {"--std=c++17", "--fmad=false"}};
}

Result<ChainRunner> ChainRunner::Make(ChainPlan plan, CudaDevice& device, Toolkit& toolkit) {
  ChainRunner runner(std::move(plan), device, toolkit);
  MW_ASSIGN_OR_RETURN(runner.code_, toolkit.code->Get(CodeFor(device, ChainSource(runner.plan_))));
  MW_ASSIGN_OR_RETURN(runner.chain_, runner.code_->Find("chain"));
  return runner;
}

int64_t ChainRunner::scratch_bytes() const {
  return static_cast<int64_t>(plan_.sums.size()) * PartialFloats() *
         static_cast<int64_t>(sizeof(float));
}

Status ChainRunner::LaunchChain(const RunContext& context) {
  int64_t threads = ChainThreads(plan_);
  if (plan_.sums.empty()) {
    threads = std::min(
        threads, kChainThreads * kBlocksPerMultiprocessor * device_->description().multiprocessors);
  }
  const KernelCall call{(threads + kChainThreads - 1) / kChainThreads, kChainThreads, words_.data(),
                        static_cast<int64_t>(words_.size() * sizeof(uint64_t))};
  return device_->context().Run("launching a chain", [&] {
    if (call.blocks > kMostBlocks) return kTooManyBlocks;
    return compiler_->Launch(chain_, call, context.queue->native());
  });
}

Status ChainRunner::Fold(const RunContext& context, const ChainPlan::Result& sum, float* partial,
                         void* out) {
  ReduceSumArgs args;
  args.scratch = partial;
  args.y = out;
  args.outputs = plan_.width;
  args.splits = plan_.groups();
  args.result = *FloatTypeOf(sum.dtype);
  return device_->context().Run("adding up the sums of a chain",
                                [&] { return kernels_->ReduceSum(args, context.queue->native()); });
}

Status ChainRunner::Run(const RunContext& context, Inputs inputs, Outputs outputs,
                        const void* accumulator, std::byte* scratch) {
  auto* partial = reinterpret_cast<float*>(scratch);
  ChainArguments(plan_, {inputs, outputs, accumulator, partial, context.state}, context.microbatch,
                 words_);
  MW_TRY(LaunchChain(context));
  for (const ChainPlan::Result& sum : plan_.sums) {
    MW_TRY(Fold(context, sum, partial, outputs[static_cast<size_t>(sum.output)].data));
    partial += PartialFloats();
  }
  return OkStatus();
}

Result<ir::Graph> BodyOf(const KernelSpec& spec) {
  ir::FusedStep step{spec.op, {}, spec.attrs};
  for (size_t i = 0; i < spec.inputs.size(); ++i) step.operands.push_back(static_cast<int>(i));
  ir::FusedBody body;
  body.steps.push_back(std::move(step));
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    body.results.push_back(static_cast<int>(spec.inputs.size() + i));
  }
  ir::Attrs attrs;
  ir::SetFusedBody(body, attrs);
  return ir::ExpandFused(attrs, spec.inputs);
}

KernelResult MakePlainChain(const ir::Graph& body, const DeviceCoords& coords, CudaDevice& device,
                            Toolkit& toolkit) {
  MW_ASSIGN_OR_RETURN(std::optional<ChainPlan> plan, PlanChain(body, -1, coords));
  if (!plan) return std::unique_ptr<Kernel>();
  MW_ASSIGN_OR_RETURN(ChainRunner runner, ChainRunner::Make(*std::move(plan), device, toolkit));
  return std::unique_ptr<Kernel>(std::make_unique<ChainKernel>(std::move(runner)));
}

KernelResult MakeChain(const Maker& maker) {
  MW_ASSIGN_OR_RETURN(const ir::Graph body, BodyOf(maker.spec));
  return MakePlainChain(body, maker.spec.coords, maker.device, maker.toolkit);
}

}  // namespace meshwright::ops::cuda
