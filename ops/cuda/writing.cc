// paged_attention, and products whose results are alone: what programs over pages have besides.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ir/gpu_support.h"
#include "ops/cuda/cuda.h"
#include "ops/einsum_plan.h"
#include "ops/paged_shape.h"

namespace meshwright::ops::cuda {
namespace {

using Loop = AloneProductArgs::Loop;

Loop LoopOf(const EinsumLoop& loop) { return {loop.size, loop.a, loop.b, loop.c}; }

// false: there are too many.
bool Take(const std::vector<EinsumLoop>& from, Loop (&to)[AloneProductArgs::kMostLoops]) {
  if (from.size() > std::size(to)) return false;
  std::transform(from.begin(), from.end(), to, LoopOf);
  return true;
}

Status CopyOver(const RunContext& context, const Tensor& from, const Tensor& to) {
  if (from.data == to.data) return OkStatus();
  return context.queue->Copy(to.data, from.data, from.type->bytes());
}

// A call behind a copy of the operand that a result takes the place of.
class Over final : public Kernel {
 public:
  Over(std::unique_ptr<Kernel> call, size_t operand, size_t result)
      : call_(std::move(call)), operand_(operand), result_(result) {}

  int64_t scratch_bytes() const override { return call_->scratch_bytes(); }
  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    MW_TRY(CopyOver(context, inputs[operand_], outputs[result_]));
    return call_->Run(context, inputs, outputs);
  }

 private:
  const std::unique_ptr<Kernel> call_;
  const size_t operand_;
  const size_t result_;
};

KernelResult Behind(KernelResult call, size_t operand, size_t result) {
  if (!call) return call;
  return std::unique_ptr<Kernel>(std::make_unique<Over>(*std::move(call), operand, result));
}

PagedAttentionArgs ArgsOf(const KernelSpec& spec, const PagedShape& shape) {
  PagedAttentionArgs args;
  args.b = shape.b;
  args.n = shape.n;
  args.keys = shape.keys;
  args.h = shape.h;
  args.g = shape.g;
  args.e = shape.e;
  args.page_count = shape.pages;
  args.page_tokens = shape.page_tokens;
  args.texts = shape.texts;
  args.text_pages = shape.text_pages;
  args.window = shape.window;
  args.distances = shape.distances;
  args.scale = static_cast<float>(shape.scale());
  args.cap = static_cast<float>(shape.score_cap);
  args.type = TypeOf(spec.inputs[kPagedQ]);
  return args;
}

}  // namespace

KernelResult MakePagedAttention(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  const PagedShape shape = PagedShapeOf(spec);
  if (spec.inputs[kPagedPages].dtype != spec.inputs[kPagedQ].dtype) {
    return Fail(Unimplemented(
        fmt::format("{}: GPUs take pages in the type of the queries", spec.ToString())));
  }
  if (shape.e > ir::kMostGpuHeadElements) {
    return Fail(Unimplemented(fmt::format("{}: GPUs take heads of at most {}", spec.ToString(),
                                          ir::kMostGpuHeadElements)));
  }
  const PagedAttentionArgs args = ArgsOf(spec, shape);
  const bool own_places = shape.own_places;
  const std::optional<size_t> bias =
      shape.distances > 0 ? std::optional<size_t>(shape.bias()) : std::nullopt;
  return Behind(
      MakeCall(maker, 0,
               [args, own_places, bias](Kernels& kernels, StreamHandle stream,
                                        const RunContext& context, Inputs inputs, Outputs outputs) {
                 PagedAttentionArgs call = args;
                 call.q = inputs[kPagedQ].data;
                 call.k = inputs[kPagedK].data;
                 call.v = inputs[kPagedV].data;
                 call.table = inputs[kPagedTable].as<int32_t>();
                 call.row = inputs[kPagedRow].as<int32_t>();
                 call.position = inputs[kPagedPosition].as<int32_t>();
                 call.key_row = inputs[own_places ? kPagedKeyRow : kPagedRow].as<int32_t>();
                 call.key_position =
                     inputs[own_places ? kPagedKeyPosition : kPagedPosition].as<int32_t>();
                 if (bias) call.bias = inputs[*bias].data;
                 call.o = outputs[0].data;
                 call.lse = outputs[1].as<float>();
                 call.pages = outputs[2].data;
                 call.fault = FaultOf(context, ir::Op::kPagedAttention, args.page_count);
                 return kernels.PagedAttention(call, stream);
               }),
      kPagedPages, 2);
}

KernelResult MakeAloneProduct(const Maker& maker) {
  const KernelSpec& spec = maker.spec;
  MW_ASSIGN_OR_RETURN(const EinsumLoops loops,
                      ClassifyEinsum(spec.attrs.Str("equation"), spec.inputs[0].dims,
                                     spec.inputs[1].dims, spec.outputs[0].dims));
  const std::optional<GemmLoops> gemm = ChooseGemm(MergeLoops(loops));
  AloneProductArgs args;
  if (!gemm || !Take(gemm->outer, args.outer) || !Take(gemm->depth, args.depth)) {
    return Fail(NoKernel(spec, "cuda"));
  }
  args.m = LoopOf(gemm->m);
  args.n = LoopOf(gemm->n);
  args.k = LoopOf(gemm->k);
  args.accumulate = spec.inputs.size() > 2;
  args.a_type = TypeOf(spec.inputs[0]);
  args.b_type = TypeOf(spec.inputs[1]);
  args.c_type = TypeOf(spec.outputs[0]);
  KernelResult call = MakeCall(maker, 0,
                               [args](Kernels& kernels, StreamHandle stream, const RunContext&,
                                      Inputs inputs, Outputs outputs) {
                                 AloneProductArgs product = args;
                                 product.a = inputs[0].data;
                                 product.b = inputs[1].data;
                                 product.c = outputs[0].data;
                                 return kernels.AloneProduct(product, stream);
                               });
  return args.accumulate ? Behind(std::move(call), 2, 0) : std::move(call);
}

}  // namespace meshwright::ops::cuda
