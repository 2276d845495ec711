#include "ops/attention_shape.h"

#include <fmt/format.h>

#include <cmath>

namespace meshwright::ops {
namespace {

AttentionShape ShapeOf(int64_t b, int64_t s, int64_t h, int64_t e) {
  AttentionShape shape;
  shape.b = b;
  shape.s = shape.keys = s;
  shape.h = shape.g = h;
  shape.e = e;
  return shape;
}

// The blocks of q and k in a row of shape.tokens.
Status PlaceBlocks(const KernelSpec& spec, const ir::TensorType& query, AttentionShape& shape) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(query));
  shape.tokens = block.global_dims[1];
  const int64_t start = block.Start(1, 0);
  const int64_t blocks = shape.tokens / shape.s;
  const bool all = shape.keys == shape.tokens;
  if (!all && (shape.keys != shape.s || blocks * shape.s != shape.tokens)) {
    return InvalidArgument(
        fmt::format("{}: keys of {} tokens are neither a row of {} nor its block", spec.ToString(),
                    shape.keys, shape.tokens));
  }
  if (!all) {
    const int64_t own = start / shape.s;
    shape.key_block.start =
        ((own - spec.attrs.Int("kv_shift")) % blocks + blocks) % blocks * shape.s;
  }
  MW_ASSIGN_OR_RETURN(shape.query_block, TokenBlock::Of(spec, block));
  MW_ASSIGN_OR_RETURN(shape.key_block,
                      TokenBlock::At(spec, shape.tokens, shape.key_block.start, shape.keys));
  return OkStatus();
}

}  // namespace

double AttentionShape::scale() const { return 1.0 / std::sqrt(static_cast<double>(e)); }

Result<AttentionShape> AttentionShapeOf(const KernelSpec& spec) {
  const ir::Dims& q = spec.inputs[0].dims;
  const ir::Dims& k = spec.inputs[1].dims;
  const bool fits = q.size() == 4 && k.size() == 4 && spec.inputs[2].dims == k && q[0] == k[0] &&
                    q[3] == k[3] && k[2] > 0 && q[2] % k[2] == 0;
  if (!fits) {
    return Fail(InvalidArgument(
        fmt::format("{}: needs q[b,s,h,e], k and v[b,s,g,e] with g dividing h", spec.ToString())));
  }
  AttentionShape shape = ShapeOf(q[0], q[1], q[2], q[3]);
  shape.keys = k[1];
  shape.g = k[2];
  shape.causal = spec.attrs.Int("causal", 1) != 0;
  shape.window = spec.attrs.Int("window");
  MW_TRY(PlaceBlocks(spec, spec.inputs[0], shape));
  return shape;
}

Result<AttentionShape> AttentionQkvShapeOf(const KernelSpec& spec) {
  const ir::Dims& qkv = spec.inputs[0].dims;
  if (qkv.size() != 5 || qkv[2] != 3) {
    return Fail(InvalidArgument(fmt::format("{}: needs qkv[b,s,3,h,e]", spec.ToString())));
  }
  AttentionShape shape = ShapeOf(qkv[0], qkv[1], qkv[3], qkv[4]);
  shape.causal = spec.attrs.Int("causal", 1) != 0;
  shape.window = spec.attrs.Int("window");
  MW_TRY(PlaceBlocks(spec, {spec.inputs[0].dtype, {shape.b, shape.s, shape.h, shape.e}}, shape));
  return shape;
}

}  // namespace meshwright::ops
