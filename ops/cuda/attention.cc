// attention and attention_qkv with their gradients: by a library where it takes the shape, else by
// our own kernels, for any head size up to 256.
#include <fmt/format.h>

#include "base/philox.h"
#include "ops/attention_shape.h"
#include "ops/cuda/cuda.h"
#include "ops/cuda/sdpa_attention.h"
#include "ops/dropout_mask.h"

namespace meshwright::ops::cuda {
namespace {

// Everything that is known when the kernel is made.
struct Attention {
  AttentionArgs args;
  bool packed = false;  // q, k, v are slices of one tensor
  size_t operands = 0;  // before the segments
  AttentionDropout dropout;
  ShardBlock query;  // with dropout

  AttentionArgs At(const RunContext& context, Inputs inputs) const {
    AttentionArgs call = args;
    if (inputs.size() > operands) call.segments = inputs[operands].as<int32_t>();
    if (!dropout.active()) return call;
    call.mask.state = context.state;
    call.mask.first = query.Start(0, context.microbatch) * query.global_dims[2] +
                      query.Start(2, context.microbatch);
    return call;
  }
};

// [b, rows, heads, e], or slice `index` of [b, rows, 3, heads, e].
HeadsArgs Heads(const AttentionArgs& args, int64_t rows, int64_t heads, bool packed, void* data,
                int64_t index) {
  const int64_t token = heads * args.head_size;
  HeadsArgs result;
  result.token_stride = packed ? 3 * token : token;
  result.batch_stride = rows * result.token_stride;
  result.head_stride = args.head_size;
  result.data =
      static_cast<std::byte*>(data) + (packed ? index * token * FloatBytes(args.type) : 0);
  return result;
}

// Sets q, k and v from three tensors, or from one that holds all; the same for their gradients.
void SetSlices(const Attention& attention, std::span<const Tensor> tensors, HeadsArgs& q,
               HeadsArgs& k, HeadsArgs& v) {
  const AttentionArgs& args = attention.args;
  const bool packed = attention.packed;
  q = Heads(args, args.sequence, args.heads, packed, tensors[0].data, 0);
  k = Heads(args, args.keys, args.kv_heads, packed, tensors[packed ? 0 : 1].data, 1);
  v = Heads(args, args.keys, args.kv_heads, packed, tensors[packed ? 0 : 2].data, 2);
}

Result<Attention> Describe(const KernelSpec& spec, bool packed, bool gradient) {
  Attention result;
  MW_ASSIGN_OR_RETURN(const AttentionShape shape,
                      packed ? AttentionQkvShapeOf(spec) : AttentionShapeOf(spec));
  if (shape.e > kMaxHeadSize) {
    return Fail(Unimplemented(
        fmt::format("{}: heads on GPUs have at most {} elements", spec.ToString(), kMaxHeadSize)));
  }
  const ir::TensorType query{spec.inputs[0].dtype, {shape.b, shape.s, shape.h, shape.e}};
  MW_ASSIGN_OR_RETURN(result.dropout, AttentionDropout::Of(spec, query));
  result.packed = packed;
  result.operands = (packed ? 1 : 3) + (gradient ? 3 : 0);
  AttentionArgs& args = result.args;
  args.batch = shape.b;
  args.sequence = shape.s;
  args.keys = shape.keys;
  args.tokens = shape.tokens;
  args.query_places = PlacesOf(spec, shape.query_block, shape.tokens);
  args.key_places = PlacesOf(spec, shape.key_block, shape.tokens);
  args.heads = shape.h;
  args.kv_heads = shape.g;
  args.head_size = shape.e;
  args.scale = static_cast<float>(shape.scale());
  args.causal = shape.causal;
  args.window = shape.window;
  args.type = TypeOf(query);
  if (!result.dropout.active()) return result;
  MW_ASSIGN_OR_RETURN(result.query, spec.BlockOf(query));
  args.mask.stream = StreamOf(spec.attrs.Str("name"));
  args.mask.threshold = result.dropout.mask().threshold();
  args.mask.keep_scale = static_cast<float>(result.dropout.mask().keep_scale());
  args.mask.heads = result.query.global_dims[2];
  args.mask.sequence = result.query.global_dims[1];
  return result;
}

KernelResult MakeForward(const Maker& maker, bool packed) {
  MW_ASSIGN_OR_RETURN(const Attention attention, Describe(maker.spec, packed, false));
  return MakeCall(maker, 0,
                  [attention](Kernels& kernels, StreamHandle stream, const RunContext& context,
                              Inputs inputs, Outputs outputs) {
                    AttentionArgs call = attention.At(context, inputs);
                    SetSlices(attention, inputs, call.q, call.k, call.v);
                    call.o = Heads(call, call.sequence, call.heads, false, outputs[0].data, 0);
                    call.lse = outputs[1].as<float>();
                    return kernels.Attention(call, stream);
                  });
}

// (q, k, v, o, lse, do) or (qkv, o, lse, do), then the segments.
KernelResult MakeGrad(const Maker& maker, bool packed) {
  MW_ASSIGN_OR_RETURN(const Attention attention, Describe(maker.spec, packed, true));
  const AttentionArgs& shape = attention.args;
  const int64_t scratch =
      shape.batch * shape.heads * shape.sequence * static_cast<int64_t>(sizeof(float));
  return MakeCall(
      maker, scratch,
      [attention](Kernels& kernels, StreamHandle stream, const RunContext& context, Inputs inputs,
                  Outputs outputs) {
        const size_t behind = attention.packed ? 1 : 3;
        AttentionGradArgs call;
        AttentionArgs& forward = call.forward;
        forward = attention.At(context, inputs);
        SetSlices(attention, inputs, forward.q, forward.k, forward.v);
        forward.o = Heads(forward, forward.sequence, forward.heads, false, inputs[behind].data, 0);
        forward.lse = inputs[behind + 1].as<float>();
        call.d_o =
            Heads(forward, forward.sequence, forward.heads, false, inputs[behind + 2].data, 0);
        SetSlices(attention, outputs, call.dq, call.dk, call.dv);
        call.scratch = ScratchOf<float>(context);
        return kernels.AttentionGrad(call, stream);
      });
}

}  // namespace

KernelResult MakeAttention(const Maker& maker) {
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> library,
                      TryMakeSdpa(maker.spec, maker.device, maker.toolkit));
  if (library != nullptr) return library;
  const ir::Op op = maker.spec.op;
  const bool packed = op == ir::Op::kAttentionQkv || op == ir::Op::kAttentionQkvGrad;
  const bool gradient = op == ir::Op::kAttentionGrad || op == ir::Op::kAttentionQkvGrad;
  return gradient ? MakeGrad(maker, packed) : MakeForward(maker, packed);
}

}  // namespace meshwright::ops::cuda
