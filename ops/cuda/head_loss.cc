// head_loss: logits of one block of tokens at a time, a product each way and a kernel over the rows
// between them. The block's memory is a result of the node, so that it is in the plan; it holds the
// logits, then their gradient in the operands' type. Rows start at multiples of 64 bytes, without
// which products take slow kernels: where the vocabulary is no such multiple, the memory holds
// somewhat fewer tokens than its type says.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "ops/cuda/cuda.h"
#include "ops/cuda/library_kernels.h"
#include "ops/token_ids.h"

namespace meshwright::ops::cuda {
namespace {

constexpr int64_t kFloatBytes = static_cast<int64_t>(sizeof(float));
// Of tokens of a block.
constexpr int64_t kGrain = 16;

struct HeadShape {
  int64_t tokens = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;
  int64_t pitch = 0;  // elements from row to row of logits
  int64_t block = 0;  // tokens of a block, but of the last
  ir::DType dtype = ir::DType::kF32;
  bool tf32 = false;
};

// Tokens of a block for which memory of `elements` is enough: blocks of about one size, which is a
// multiple of kGrain where that many fit. One row fits however far the next one would be.
int64_t BlockTokens(const HeadShape& shape, int64_t elements) {
  if (shape.pitch == shape.vocabulary) return std::min(shape.tokens, elements / shape.pitch);
  int64_t most = std::max(elements / shape.pitch, int64_t{1});
  const int64_t grain = most < kGrain ? 1 : kGrain;
  most -= most % grain;
  const int64_t blocks = (shape.tokens + most - 1) / most;
  return std::min(shape.tokens, device::AlignUp((shape.tokens + blocks - 1) / blocks, grain));
}

// The products of a block of `rows` tokens; g is the gradient of its logits.
struct HeadPlans {
  const BlasPlan* logits = nullptr;     // x w^T
  const BlasPlan* dx = nullptr;         // g w
  const BlasPlan* dw = nullptr;         // g^T x
  const BlasPlan* dw_adding = nullptr;  // the same, added
};

class HeadPlanner {
 public:
  HeadPlanner(const HeadShape& shape, Blas& blas) : shape_(shape), blas_(blas) {}

  Result<HeadPlans> Run(int64_t rows, bool gradient) {
    HeadPlans plans;
    BlasProduct logits = Start(rows, shape_.vocabulary, shape_.width);
    logits.a_row = shape_.width;
    logits.b_row = shape_.width;
    logits.transpose_b = true;
    logits.c_row = shape_.pitch;
    MW_ASSIGN_OR_RETURN(plans.logits, blas_.Plan(logits));
    if (!gradient) return plans;
    BlasProduct dx = Start(rows, shape_.width, shape_.vocabulary);
    dx.a_row = GradientRow();
    dx.b_row = shape_.width;
    dx.c_row = shape_.width;
    MW_ASSIGN_OR_RETURN(plans.dx, blas_.Plan(dx));
    BlasProduct dw = Start(shape_.vocabulary, shape_.width, rows);
    dw.transpose_a = true;
    dw.a_row = GradientRow();
    dw.b_row = shape_.width;
    dw.c_row = shape_.width;
    MW_ASSIGN_OR_RETURN(plans.dw, blas_.Plan(dw));
    dw.accumulate = true;
    MW_ASSIGN_OR_RETURN(plans.dw_adding, blas_.Plan(dw));
    return plans;
  }

 private:
  // A row of the gradient lies where the row of f32 logits did.
  int64_t GradientRow() const { return shape_.pitch * kFloatBytes / ir::DTypeBytes(shape_.dtype); }

  BlasProduct Start(int64_t m, int64_t n, int64_t k) const {
    BlasProduct product;
    product.m = m;
    product.n = n;
    product.k = k;
    product.operands = shape_.dtype;
    product.tf32 = shape_.tf32;
    // Blocks start anywhere in x and dx.
    const int64_t bytes = shape_.block * shape_.width * ir::DTypeBytes(shape_.dtype);
    if (shape_.block < shape_.tokens) {
      while (bytes % product.alignment_bytes != 0) product.alignment_bytes /= 2;
    }
    return product;
  }

  const HeadShape& shape_;
  Blas& blas_;
};

class HeadLossKernel final : public Kernel {
 public:
  HeadLossKernel(const HeadShape& shape, const KernelSpec& spec, CudaDevice& device,
                 Toolkit& toolkit)
      : shape_(shape),
        op_(spec.op),
        gradient_(spec.op == ir::Op::kHeadLossGrad),
        ignored_(spec.attrs.Int("ignore_index", kDefaultIgnoreIndex)),
        device_(device),
        toolkit_(toolkit) {}

  Status ChoosePlans() {
    HeadPlanner planner(shape_, *toolkit_.blas);
    MW_TRY(device_.context().Run("choosing products", [] { return device::cuda::kSuccess; }));
    MW_ASSIGN_OR_RETURN(full_, planner.Run(shape_.block, gradient_));
    last_ = full_;
    const int64_t rest = shape_.tokens % shape_.block;
    if (rest != 0) {
      MW_ASSIGN_OR_RETURN(last_, planner.Run(rest, gradient_));
    }
    for (const HeadPlans& plans : {full_, last_}) {
      for (const BlasPlan* plan : {plans.logits, plans.dx, plans.dw, plans.dw_adding}) {
        if (plan != nullptr) workspace_bytes_ = std::max(workspace_bytes_, plan->workspace_bytes());
      }
    }
    return OkStatus();
  }

  int64_t scratch_bytes() const override { return LossBytes() + workspace_bytes_; }

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    if (inputs.size() > 4 && inputs[4].data != outputs[3].data) {
      MW_TRY(context.queue->Copy(outputs[3].data, inputs[4].data, inputs[4].type->bytes()));
    }
    auto* const losses = reinterpret_cast<float*>(context.scratch);
    for (int64_t first = 0; first < shape_.tokens; first += shape_.block) {
      MW_TRY(RunBlock(context, first, losses, inputs, outputs));
    }
    return device_.context().Run("adding up the losses", [&] {
      return toolkit_.head_rows->AddUp(losses, inputs[2].as<int32_t>(), shape_.tokens, ignored_,
                                       outputs[0].as<float>(), outputs[1].as<float>(),
                                       context.queue->native());
    });
  }

 private:
  int64_t LossBytes() const { return device::AlignUp(shape_.tokens * kFloatBytes); }

  Status RunBlock(const RunContext& context, int64_t first, float* losses, Inputs inputs,
                  Outputs outputs) {
    const int64_t rows = std::min(shape_.block, shape_.tokens - first);
    const HeadPlans& plans = rows == shape_.block ? full_ : last_;
    const int64_t offset = first * shape_.width;
    const int64_t bytes = ir::DTypeBytes(shape_.dtype);
    const std::byte* const x = inputs[0].as<std::byte>() + offset * bytes;
    void* const logits = outputs[gradient_ ? 4 : 2].data;
    const auto run = [&](const BlasPlan& plan, const void* a, const void* b, void* c) {
      const BlasMemory memory{a, b, c, nullptr, nullptr, context.scratch + LossBytes()};
      return toolkit_.blas->Run(plan, memory, context.queue->native());
    };
    MW_TRY(run(*plans.logits, x, inputs[1].data, logits));
    HeadBlockRows block;
    block.logits = logits;
    block.labels = inputs[2].as<int32_t>() + first;
    block.losses = losses + first;
    block.rows = rows;
    block.columns = shape_.vocabulary;
    block.pitch = shape_.pitch;
    block.ignored = ignored_;
    if (gradient_) block.dloss = inputs[3].as<float>();
    block.gradient = shape_.dtype;
    block.fault = context.fault;
    block.op = static_cast<int32_t>(op_);
    block.first_position = first;
    MW_TRY(device_.context().Run("the rows of a head", [&] {
      return toolkit_.head_rows->RunBlock(block, context.queue->native());
    }));
    if (!gradient_) return OkStatus();
    MW_TRY(run(*plans.dx, logits, inputs[1].data, outputs[2].as<float>() + offset));
    const bool adds = inputs.size() > 4 || first > 0;
    return run(adds ? *plans.dw_adding : *plans.dw, logits, x, outputs[3].data);
  }

  const HeadShape shape_;
  const ir::Op op_;
  const bool gradient_;
  const int64_t ignored_;
  CudaDevice& device_;
  Toolkit& toolkit_;
  HeadPlans full_;
  HeadPlans last_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace

KernelResult MakeHeadLoss(const Maker& maker) {
  const auto& [spec, device, toolkit] = maker;
  const ir::DType dtype = spec.inputs[0].dtype;
  if (!ir::ComputesInF32(dtype) || spec.inputs[1].dtype != dtype ||
      spec.outputs[0].dtype != ir::DType::kF32) {
    return std::unique_ptr<Kernel>();
  }
  const int64_t tokens = Product(spec.inputs[2].dims);
  if (tokens == 0) return std::unique_ptr<Kernel>();
  HeadShape shape;
  shape.tokens = tokens;
  shape.width = spec.inputs[1].dims[1];
  shape.vocabulary = spec.inputs[1].dims[0];
  shape.pitch = HeadPitch(shape.vocabulary);
  shape.block = BlockTokens(shape, spec.outputs.back().elements());
  shape.dtype = dtype;
  shape.tf32 = toolkit.tf32 && dtype == ir::DType::kF32;
  auto kernel = std::make_unique<HeadLossKernel>(shape, spec, device, toolkit);
  MW_TRY(kernel->ChoosePlans());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

}  // namespace meshwright::ops::cuda
