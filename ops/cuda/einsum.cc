#include "ops/cuda/einsum.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ir/fused.h"
#include "ops/cuda/cuda.h"
#include "ops/cuda/library_kernels.h"

namespace meshwright::ops::cuda {
namespace {

// Calls of one einsum: beyond, packing its operands costs less than launching them.
constexpr int64_t kMostCalls = 64;
// What kernels can use; addresses of the plan are multiples of kAlignmentBytes.
constexpr int64_t kLargestAlignment = 16;

using LabelStride = int64_t EinsumLoop::*;

int64_t VolumeOf(const std::vector<EinsumLoop>& loops) {
  int64_t volume = 1;
  for (const EinsumLoop& loop : loops) volume *= loop.size;
  return volume;
}

std::vector<EinsumLoop> Joined(const std::vector<EinsumLoop>& x, const std::vector<EinsumLoop>& y,
                               const std::vector<EinsumLoop>& z) {
  std::vector<EinsumLoop> all = x;
  all.insert(all.end(), y.begin(), y.end());
  all.insert(all.end(), z.begin(), z.end());
  return all;
}

// The loops of packed operands: one batch, m, n and k label each.
EinsumLoops PackedForm(const EinsumLoops& loops) {
  const int64_t m = VolumeOf(loops.m);
  const int64_t n = VolumeOf(loops.n);
  const int64_t k = VolumeOf(loops.k);
  return {{{'b', VolumeOf(loops.batch), m * k, k * n, m * n}},
          {{'m', m, k, 0, n}},
          {{'n', n, 0, 1, 1}},
          {{'k', k, 1, n, 0}}};
}

// How a matrix [rows, columns] with these strides is stored.
struct Storage {
  bool transposed = false;  // as [columns, rows]
  int64_t row = 1;
};
Storage StorageOf(int64_t rows, int64_t row_stride, int64_t columns, int64_t column_stride) {
  if (columns == 1 || column_stride == 1) {
    // With a single row the stride between rows may be anything that a library accepts.
    return {false, rows == 1 ? columns : std::max(row_stride, columns == 1 ? int64_t{1} : columns)};
  }
  return {true, columns == 1 ? rows : std::max(column_stride, rows)};
}

bool IsProductType(ir::DType operands, ir::DType result) {
  return ir::ComputesInF32(operands) && (result == operands || result == ir::DType::kF32);
}

class EinsumKernel final : public Kernel {
 public:
  EinsumKernel(EinsumRunner runner, bool accumulates)
      : runner_(std::move(runner)), accumulates_(accumulates) {}

  int64_t scratch_bytes() const override { return runner_.scratch_bytes(); }
  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    if (accumulates_ && inputs[2].data != outputs[0].data) {
      MW_TRY(context.queue->Copy(outputs[0].data, inputs[2].data, inputs[2].type->bytes()));
    }
    return runner_.Run(context, inputs[0].data, inputs[1].data, outputs[0].data, context.scratch);
  }

 private:
  const EinsumRunner runner_;
  const bool accumulates_;
};

// f32 operands and a 16-bit result: the product in f32, then a cast.
KernelResult MakeNarrowing(const KernelSpec& spec, CudaDevice& device, Toolkit& toolkit) {
  const std::string to(ir::DTypeName(spec.outputs[0].dtype));
  const ir::Attrs product = {{"equation", spec.attrs.Str("equation")}, {"dtype", "f32"}};
  ir::FusedBody body;
  int value = static_cast<int>(spec.inputs.size());
  body.steps.push_back({ir::Op::kEinsum, {0, 1}, product});
  if (spec.inputs.size() > 2) {
    body.steps.push_back({ir::Op::kCast, {2}, {{"dtype", "f32"}}});
    body.steps.push_back({ir::Op::kAdd, {value + 1, value}, {}});
    value += 2;
  }
  body.steps.push_back({ir::Op::kCast, {value}, {{"dtype", to}}});
  body.results = {value + 1};
  KernelSpec fused = spec;
  fused.op = ir::Op::kFused;
  fused.attrs = {};
  ir::SetFusedBody(body, fused.attrs);
  return MakeFused({fused, device, toolkit});
}

}  // namespace

Result<std::optional<EinsumRunner>> EinsumRunner::Make(const Form& form, CudaDevice& device,
                                                       Toolkit& toolkit) {
  if (form.a.dtype != form.b.dtype || !IsProductType(form.a.dtype, form.c.dtype)) {
    return std::optional<EinsumRunner>();
  }
  MW_ASSIGN_OR_RETURN(const EinsumLoops loops,
                      ClassifyEinsum(form.equation, form.a.dims, form.b.dims, form.c.dims));
  if (form.a.elements() == 0 || form.b.elements() == 0) return std::optional<EinsumRunner>();
  EinsumRunner runner(device, *toolkit.blas);
  runner.product_.operands = form.a.dtype;
  runner.product_.result = form.c.dtype;
  runner.product_.tf32 = toolkit.tf32 && form.a.dtype == ir::DType::kF32;
  runner.product_.accumulate = form.accumulate;
  const std::optional<GemmLoops> gemm = ChooseGemm(MergeLoops(loops));
  if (!gemm || !runner.Arrange(*gemm)) runner.Pack(loops, form);
  MW_TRY(runner.Choose());
  return std::optional<EinsumRunner>(std::move(runner));
}

bool EinsumRunner::Arrange(const GemmLoops& gemm) {
  calls_.clear();
  std::vector<EinsumLoop> outer = gemm.outer;
  EinsumLoop batch;
  const auto largest =
      std::max_element(outer.begin(), outer.end(),
                       [](const EinsumLoop& x, const EinsumLoop& y) { return x.size < y.size; });
  if (largest != outer.end()) {
    batch = *largest;
    outer.erase(largest);
  }
  const int64_t depth = VolumeOf(gemm.depth);
  if (VolumeOf(outer) * depth > kMostCalls) return false;
  if (depth > 1 && product_.result != ir::DType::kF32) return false;
  std::vector<Call> starts = {{}};
  for (const EinsumLoop& loop : Joined(outer, gemm.depth, {})) {
    std::vector<Call> next;
    for (const Call& start : starts) {
      for (int64_t i = 0; i < loop.size; ++i) {
        next.push_back({start.a + i * loop.a, start.b + i * loop.b, start.c + i * loop.c});
      }
    }
    starts = std::move(next);
  }
  calls_ = std::move(starts);
  for (size_t i = 0; i < calls_.size(); ++i) {
    calls_[i].accumulate = product_.accumulate || static_cast<int64_t>(i) % depth != 0;
  }
  EinsumLoop m = gemm.m;
  EinsumLoop n = gemm.n;
  EinsumLoop k = gemm.k;
  swapped_ = n.size != 1 && n.c != 1 && (m.size == 1 || m.c == 1);
  if (swapped_) {
    for (EinsumLoop* loop : {&m, &n, &k, &batch}) std::swap(loop->a, loop->b);
    for (Call& call : calls_) std::swap(call.a, call.b);
    std::swap(m, n);
  }
  const Storage a = StorageOf(m.size, m.a, k.size, k.a);
  const Storage b = StorageOf(k.size, k.b, n.size, n.b);
  product_.m = m.size;
  product_.n = n.size;
  product_.k = k.size;
  product_.batch = batch.size;
  product_.transpose_a = a.transposed;
  product_.transpose_b = b.transposed;
  product_.a_row = a.row;
  product_.b_row = b.row;
  product_.c_row = m.size == 1 ? n.size : m.c;
  product_.a_batch = batch.size == 1 ? 0 : batch.a;
  product_.b_batch = batch.size == 1 ? 0 : batch.b;
  product_.c_batch = batch.size == 1 ? 0 : batch.c;
  return true;
}

void EinsumRunner::Pack(const EinsumLoops& loops, const Form& form) {
  const auto packing = [](const std::vector<EinsumLoop>& labels, LabelStride stride,
                          ir::DType dtype) {
    const int64_t bytes = ir::DTypeBytes(dtype);
    Packing packed{VolumeOf(labels) * bytes, bytes, {}};
    for (const EinsumLoop& label : labels) {
      if (label.size == 1) continue;
      const device::StridedRuns::Loop loop{label.size, label.*stride * bytes};
      if (!packed.loops.empty() &&
          packed.loops.back().stride_bytes == loop.count * loop.stride_bytes) {
        packed.loops.back() = {packed.loops.back().count * loop.count, loop.stride_bytes};
      } else {
        packed.loops.push_back(loop);
      }
    }
    if (!packed.loops.empty() && packed.loops.back().stride_bytes == bytes) {
      packed.run_bytes *= packed.loops.back().count;
      packed.loops.pop_back();
    }
    return packed;
  };
  packing_ = {packing(Joined(loops.batch, loops.m, loops.k), &EinsumLoop::a, form.a.dtype),
              packing(Joined(loops.batch, loops.k, loops.n), &EinsumLoop::b, form.b.dtype),
              packing(Joined(loops.batch, loops.m, loops.n), &EinsumLoop::c, form.c.dtype)};
  (void)Arrange(*ChooseGemm(PackedForm(loops)));
}

// The alignment that all matrices of all calls have.
Status EinsumRunner::Choose() {
  const int64_t operand_bytes = ir::DTypeBytes(product_.operands);
  const int64_t result_bytes = ir::DTypeBytes(product_.result);
  const auto aligned = [&](int64_t bytes) {
    return std::all_of(calls_.begin(), calls_.end(), [&](const Call& call) {
      return call.a * operand_bytes % bytes == 0 && call.b * operand_bytes % bytes == 0 &&
             call.c * result_bytes % bytes == 0;
    });
  };
  product_.alignment_bytes = kLargestAlignment;
  while (!aligned(product_.alignment_bytes)) product_.alignment_bytes /= 2;
  const auto plan = [&](bool accumulate) -> Result<const BlasPlan*> {
    BlasProduct product = product_;
    product.accumulate = accumulate;
    const BlasPlan* made = nullptr;
    MW_TRY(device_->context().Run("choosing a product", [] { return device::cuda::kSuccess; }));
    MW_ASSIGN_OR_RETURN(made, blas_->Plan(product));
    return made;
  };
  const auto adds = [](const Call& call) { return call.accumulate; };
  if (std::any_of(calls_.begin(), calls_.end(), adds)) {
    MW_ASSIGN_OR_RETURN(adding_plan_, plan(true));
  }
  if (!std::all_of(calls_.begin(), calls_.end(), adds)) {
    MW_ASSIGN_OR_RETURN(plan_, plan(false));
  }
  return OkStatus();
}

int64_t EinsumRunner::scratch_bytes() const {
  int64_t bytes = 0;
  for (const Packing& packing : packing_) bytes += device::AlignUp(packing.bytes);
  int64_t workspace = 0;
  for (const BlasPlan* plan : {plan_, adding_plan_}) {
    if (plan != nullptr) workspace = std::max(workspace, plan->workspace_bytes());
  }
  return bytes + workspace;
}

Status EinsumRunner::Run(const RunContext& context, const void* a, const void* b, void* c,
                         std::byte* scratch) const {
  void* result = c;
  if (!packing_.empty()) {
    std::byte* packed[3];
    for (size_t i = 0; i < 3; ++i) {
      packed[i] = scratch;
      scratch += device::AlignUp(packing_[i].bytes);
    }
    MW_TRY(context.queue->Gather(packed[0], a, packing_[0].runs()));
    MW_TRY(context.queue->Gather(packed[1], b, packing_[1].runs()));
    if (product_.accumulate) MW_TRY(context.queue->Gather(packed[2], c, packing_[2].runs()));
    a = packed[0];
    b = packed[1];
    result = packed[2];
  }
  const auto* left = static_cast<const std::byte*>(swapped_ ? b : a);
  const auto* right = static_cast<const std::byte*>(swapped_ ? a : b);
  const int64_t operand_bytes = ir::DTypeBytes(product_.operands);
  const int64_t result_bytes = ir::DTypeBytes(product_.result);
  for (const Call& call : calls_) {
    BlasMemory memory;
    memory.a = left + call.a * operand_bytes;
    memory.b = right + call.b * operand_bytes;
    memory.c = static_cast<std::byte*>(result) + call.c * result_bytes;
    memory.workspace = scratch;
    MW_TRY(blas_->Run(call.accumulate ? *adding_plan_ : *plan_, memory, context.queue->native()));
  }
  if (packing_.empty()) return OkStatus();
  return context.queue->Scatter(c, result, packing_[2].runs());
}

std::optional<BlasProduct> EinsumRunner::OnlyProduct() const {
  if (calls_.size() != 1 || product_.batch != 1 || !packing_.empty()) return std::nullopt;
  if (product_.c_row != product_.n) return std::nullopt;
  return product_;
}

KernelResult MakeEinsum(const Maker& maker) {
  const auto& [spec, device, toolkit] = maker;
  if (spec.inputs[0].dtype == ir::DType::kF32 && spec.inputs[1].dtype == ir::DType::kF32 &&
      spec.outputs[0].dtype != ir::DType::kF32) {
    return MakeNarrowing(spec, device, toolkit);
  }
  const bool accumulates = spec.inputs.size() > 2;
  const EinsumRunner::Form form{spec.attrs.Str("equation"), spec.inputs[0], spec.inputs[1],
                                spec.outputs[0], accumulates};
  MW_ASSIGN_OR_RETURN(std::optional<EinsumRunner> runner,
                      EinsumRunner::Make(form, device, toolkit));
  if (!runner) return std::unique_ptr<Kernel>();
  return std::unique_ptr<Kernel>(std::make_unique<EinsumKernel>(*std::move(runner), accumulates));
}

}  // namespace meshwright::ops::cuda
