#include "ops/cuda/sdpa_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "ops/attention_shape.h"
#include "ops/cuda/refusal.h"

namespace meshwright::ops::cuda {
namespace {

// Which tensors of the node are what.
struct SdpaForm {
  bool sliced = false;  // q, k and v, and their gradients, are slices of one tensor
  bool gradient = false;
  size_t inputs = 0;  // without segments
  int64_t slice_bytes = 0;
};

SdpaForm FormOf(ir::Op op) {
  SdpaForm form;
  form.sliced = op == ir::Op::kAttentionQkv || op == ir::Op::kAttentionQkvGrad;
  form.gradient = op == ir::Op::kAttentionGrad || op == ir::Op::kAttentionQkvGrad;
  form.inputs = (form.sliced ? 1 : 3) + (form.gradient ? 3 : 0);
  return form;
}

SdpaShape ShapeOf(const AttentionShape& of, const SdpaForm& form, ir::DType dtype) {
  SdpaShape shape;
  shape.gradient = form.gradient;
  shape.batch = of.b;
  shape.sequence = of.s;
  shape.heads = of.h;
  shape.kv_heads = of.g;
  shape.head_size = of.e;
  shape.causal = of.causal;
  shape.dtype = dtype;
  const auto strides = [&](int64_t row) { return SdpaStrides{of.s * row, row, of.e}; };
  const int64_t slices = form.sliced ? 3 : 1;
  shape.q = strides(slices * of.q_stride());
  shape.kv = strides(slices * of.kv_stride());
  shape.o = strides(of.q_stride());
  shape.lse_batch = of.h * of.s;
  return shape;
}

// Enough work for any GPU in one call, and little beside a job's memory.
constexpr int64_t kMostScoreBytes = int64_t{1} << 30;
constexpr int64_t kShareOfMemory = 64;

int64_t LargestDivisor(int64_t number, int64_t most) {
  int64_t divisor = std::clamp<int64_t>(most, 1, number);
  while (number % divisor != 0) --divisor;
  return divisor;
}

// The address so many bytes further on; null stays null.
template <typename T>
T* Moved(T* place, int64_t by) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return place == nullptr ? nullptr : static_cast<T*>(static_cast<Byte*>(place) + by);
}

class SdpaKernel final : public Kernel {
 public:
  SdpaKernel(Sdpa& sdpa, const SdpaPlan& plan, const SdpaForm& form, const SdpaShape& whole,
             const SdpaShape& part)
      : sdpa_(sdpa), plan_(plan), form_(form), whole_(whole), part_(part) {}

  int64_t scratch_bytes() const override { return plan_.workspace_bytes(); }

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    const SdpaMemory memory = MemoryOf(context, inputs, outputs);
    for (int64_t row = 0; row < whole_.batch; row += part_.batch) {
      for (int64_t head = 0; head < whole_.kv_heads; head += part_.kv_heads) {
        MW_TRY(sdpa_.Run(plan_, PartAt(memory, row, head), context.queue->native()));
      }
    }
    return OkStatus();
  }

 private:
  SdpaMemory MemoryOf(const RunContext& context, Inputs inputs, Outputs outputs) const {
    SdpaMemory memory;
    memory.q = Slice(inputs, 0);
    memory.k = Slice(inputs, 1);
    memory.v = Slice(inputs, 2);
    memory.workspace = context.scratch;
    if (form_.gradient) {
      const size_t first = form_.sliced ? 1 : 3;
      memory.o = inputs[first].data;
      memory.lse = inputs[first + 1].as<float>();
      memory.d_o = inputs[first + 2].data;
      memory.dq = Slice(outputs, 0);
      memory.dk = Slice(outputs, 1);
      memory.dv = Slice(outputs, 2);
    } else {
      memory.o = outputs[0].data;
      memory.lse = outputs[1].as<float>();
    }
    return memory;
  }

  SdpaMemory PartAt(const SdpaMemory& memory, int64_t row, int64_t kv_head) const {
    const int64_t head = kv_head * (whole_.heads / whole_.kv_heads);
    const int64_t element = ir::DTypeBytes(whole_.dtype);
    const int64_t q = (row * whole_.q.batch + head * whole_.q.head) * element;
    const int64_t kv = (row * whole_.kv.batch + kv_head * whole_.kv.head) * element;
    const int64_t o = (row * whole_.o.batch + head * whole_.o.head) * element;
    SdpaMemory part = memory;
    part.q = Moved(memory.q, q);
    part.dq = Moved(memory.dq, q);
    part.k = Moved(memory.k, kv);
    part.v = Moved(memory.v, kv);
    part.dk = Moved(memory.dk, kv);
    part.dv = Moved(memory.dv, kv);
    part.o = Moved(memory.o, o);
    part.d_o = Moved(memory.d_o, o);
    part.lse = memory.lse + row * whole_.lse_batch + head * whole_.sequence;
    return part;
  }

  void* Slice(std::span<const Tensor> tensors, size_t i) const {
    if (!form_.sliced) return tensors[i].data;
    return tensors[0].as<std::byte>() + static_cast<int64_t>(i) * form_.slice_bytes;
  }

  Sdpa& sdpa_;
  const SdpaPlan& plan_;
  const SdpaForm form_;
  const SdpaShape whole_;
  const SdpaShape part_;
};

// "": a library may take it.
std::string WhyNot(const KernelSpec& spec, const SdpaForm& form, const SdpaShape& shape,
                   bool has_part) {
  if (spec.inputs.size() > form.inputs) return "documents";
  if (spec.attrs.Real("dropout") > 0) return "dropout";
  if (!MayRunSdpa(shape)) {
    return fmt::format("heads of {} x {} in {}", shape.sequence, shape.head_size,
                       ir::DTypeName(shape.dtype));
  }
  return has_part ? "" : fmt::format("{} scores a head", shape.sequence * shape.sequence);
}

}  // namespace

std::optional<SdpaShape> PartOf(const SdpaShape& whole, int64_t most_score_bytes) {
  if (!whole.gradient || ScoreBytes(whole) == 0) return whole;
  SdpaShape part = whole;
  const int64_t row_bytes = ScoreBytes(whole) / whole.batch;
  if (row_bytes <= most_score_bytes) {
    part.batch = LargestDivisor(whole.batch, most_score_bytes / row_bytes);
    return part;
  }
  const int64_t kv_head_bytes = row_bytes / whole.kv_heads;
  if (kv_head_bytes > most_score_bytes) return std::nullopt;
  part.batch = 1;
  part.kv_heads = LargestDivisor(whole.kv_heads, most_score_bytes / kv_head_bytes);
  part.heads = part.kv_heads * (whole.heads / whole.kv_heads);
  return part;
}

KernelResult TryMakeSdpa(const KernelSpec& spec, CudaDevice& device, Toolkit& toolkit) {
  if (toolkit.sdpa == nullptr) return std::unique_ptr<Kernel>();
  SdpaForm form = FormOf(spec.op);
  MW_ASSIGN_OR_RETURN(const AttentionShape attention,
                      form.sliced ? AttentionQkvShapeOf(spec) : AttentionShapeOf(spec));
  // A causal mask of the library is that of a whole sequence.
  if (!attention.whole() || attention.window > 0) return std::unique_ptr<Kernel>();
  const ir::DType dtype = spec.inputs[0].dtype;
  const SdpaShape shape = ShapeOf(attention, form, dtype);
  const std::optional<SdpaShape> part =
      PartOf(shape, std::min(kMostScoreBytes, device.description().memory_bytes / kShareOfMemory));
  const std::string why_not = WhyNot(spec, form, shape, part.has_value());
  if (!why_not.empty()) {
    (void)MayDoWithout(Unimplemented("attention with " + why_not + " is not cuDNN's"), device,
                       false);
    return std::unique_ptr<Kernel>();
  }
  form.slice_bytes = attention.q_stride() * ir::DTypeBytes(dtype);
  MW_TRY(device.context().Run("choosing an attention", [] { return device::cuda::kSuccess; }));
  const Result<const SdpaPlan*> plan = toolkit.sdpa->Plan(*part);
  if (!plan && MayDoWithout(plan.error(), device, false)) return std::unique_ptr<Kernel>();
  if (!plan) return Fail(plan.error());
  return std::unique_ptr<Kernel>(
      std::make_unique<SdpaKernel>(*toolkit.sdpa, **plan, form, shape, *part));
}

}  // namespace meshwright::ops::cuda
