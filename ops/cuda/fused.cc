// fused nodes: a chain alone is one generated kernel; behind a matrix product it is the product's
// epilogue where that is all it is, else a kernel over the product, which lies in the memory of a
// result. Other producers are left to the steps one by one.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "ir/fused.h"
#include "ops/cuda/chain.h"
#include "ops/cuda/cuda.h"
#include "ops/cuda/einsum.h"
#include "ops/cuda/epilogue.h"
#include "ops/cuda/library_kernels.h"
#include "ops/cuda/refusal.h"

namespace meshwright::ops::cuda {
namespace {

// A product that finishes the body by itself.
class EpilogueKernel final : public Kernel {
 public:
  EpilogueKernel(Blas& blas, const BlasPlan& plan, const EpilogueForm& form, size_t a, size_t b)
      : blas_(blas), plan_(plan), form_(form), a_(a), b_(b) {}

  int64_t scratch_bytes() const override { return plan_.workspace_bytes(); }
  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    BlasMemory memory;
    memory.a = inputs[a_].data;
    memory.b = inputs[b_].data;
    memory.workspace = context.scratch;
    form_.SetMemory(inputs, outputs, memory);
    return blas_.Run(plan_, memory, context.queue->native());
  }

 private:
  Blas& blas_;
  const BlasPlan& plan_;
  const EpilogueForm form_;
  const size_t a_;
  const size_t b_;
};

// A product, then a chain over it.
class ProductKernel final : public Kernel {
 public:
  ProductKernel(EinsumRunner product, ChainRunner chain, int64_t product_bytes, size_t a, size_t b)
      : product_(std::move(product)), chain_(std::move(chain)), a_(a), b_(b) {
    holder_ = chain_.plan().accumulator_result();
    if (holder_ < 0) own_bytes_ = device::AlignUp(product_bytes);
  }

  int64_t scratch_bytes() const override {
    return own_bytes_ + std::max(product_.scratch_bytes(), chain_.scratch_bytes());
  }
  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    void* const held = holder_ < 0 ? context.scratch : outputs[static_cast<size_t>(holder_)].data;
    std::byte* const scratch = context.scratch == nullptr ? nullptr : context.scratch + own_bytes_;
    MW_TRY(product_.Run(context, inputs[a_].data, inputs[b_].data, held, scratch));
    return chain_.Run(context, inputs, outputs, held, scratch);
  }

 private:
  const EinsumRunner product_;
  ChainRunner chain_;
  const size_t a_;
  const size_t b_;
  int holder_ = -1;  // the result in whose memory the product lies; -1: scratch
  int64_t own_bytes_ = 0;
};

// The only node of the body that is no step of a chain; nothing when there are several, or it is
// not the first. -1: none.
std::optional<int> ProducerOf(const ir::Graph& body) {
  int producer = -1;
  bool first = true;
  for (size_t n = 0; n < body.nodes.size(); ++n) {
    const ir::Node& node = body.nodes[n];
    if (node.op == ir::Op::kInput) continue;
    if (!ir::IsElementwise(node.op) && !ir::IsColumnSum(node)) {
      if (!first) return std::nullopt;
      producer = static_cast<int>(n);
    }
    first = false;
  }
  return producer;
}

// Null when the library has no such kernel: the chain does it.
KernelResult MakeWithEpilogue(const ir::Graph& body, int producer, const EinsumRunner& runner,
                              CudaDevice& device, Toolkit& toolkit) {
  const ir::Node& node = body.nodes[static_cast<size_t>(producer)];
  std::optional<BlasProduct> product = runner.OnlyProduct();
  if (!product) return std::unique_ptr<Kernel>();
  const std::optional<EpilogueForm> form = FindEpilogue(body, producer, product->n);
  if (!form) return std::unique_ptr<Kernel>();
  product->epilogue = form->epilogue;
  if (form->aux_operand >= 0 || form->aux_result >= 0) product->aux_row = product->n;
  const Result<const BlasPlan*> plan = toolkit.blas->Plan(*product);
  if (!plan && MayDoWithout(plan.error(), device, true)) return std::unique_ptr<Kernel>();
  if (!plan) return Fail(plan.error());
  auto a = node.inputs[0].index();
  auto b = node.inputs[1].index();
  if (runner.swapped()) std::swap(a, b);
  return std::unique_ptr<Kernel>(
      std::make_unique<EpilogueKernel>(*toolkit.blas, **plan, *form, a, b));
}

KernelResult MakeProduct(const ir::Graph& body, int producer, const DeviceCoords& coords,
                         CudaDevice& device, Toolkit& toolkit) {
  const ir::Node& node = body.nodes[static_cast<size_t>(producer)];
  const ir::TensorType& type = body.type(node.outputs[0]);
  if (node.inputs.size() != 2) return std::unique_ptr<Kernel>();
  MW_ASSIGN_OR_RETURN(std::optional<EinsumRunner> runner,
                      EinsumRunner::Make({node.attrs.Str("equation"), body.type(node.inputs[0]),
                                          body.type(node.inputs[1]), type, false},
                                         device, toolkit));
  if (!runner) return std::unique_ptr<Kernel>();
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> whole,
                      MakeWithEpilogue(body, producer, *runner, device, toolkit));
  if (whole) return whole;
  MW_ASSIGN_OR_RETURN(std::optional<ChainPlan> plan, PlanChain(body, producer, coords));
  if (!plan || plan->elements != type.elements()) return std::unique_ptr<Kernel>();
  MW_ASSIGN_OR_RETURN(ChainRunner chain, ChainRunner::Make(*std::move(plan), device, toolkit));
  return std::unique_ptr<Kernel>(
      std::make_unique<ProductKernel>(*std::move(runner), std::move(chain), type.bytes(),
                                      node.inputs[0].index(), node.inputs[1].index()));
}

}  // namespace

KernelResult MakeFused(const Maker& maker) {
  const auto& [spec, device, toolkit] = maker;
  MW_ASSIGN_OR_RETURN(const ir::Graph body, ir::ExpandFused(spec.attrs, spec.inputs));
  const std::optional<int> producer = ProducerOf(body);
  if (!producer) return std::unique_ptr<Kernel>();
  if (*producer < 0) return MakePlainChain(body, spec.coords, device, toolkit);
  if (body.nodes[static_cast<size_t>(*producer)].op != ir::Op::kEinsum) {
    return std::unique_ptr<Kernel>();
  }
  return MakeProduct(body, *producer, spec.coords, device, toolkit);
}

}  // namespace meshwright::ops::cuda
