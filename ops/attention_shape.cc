#include "ops/attention_shape.h"

#include <fmt/format.h>

#include <cmath>

namespace meshwright::ops {

double AttentionShape::scale() const { return 1.0 / std::sqrt(static_cast<double>(e)); }

Result<AttentionShape> AttentionShapeOf(const KernelSpec& spec) {
  const ir::Dims& q = spec.inputs[0].dims;
  const ir::Dims& k = spec.inputs[1].dims;
  const bool fits = q.size() == 4 && k.size() == 4 && spec.inputs[2].dims == k && q[0] == k[0] &&
                    q[1] == k[1] && q[3] == k[3] && k[2] > 0 && q[2] % k[2] == 0;
  if (!fits) {
    return Fail(InvalidArgument(
        fmt::format("{}: needs q[b,s,h,e], k and v[b,s,g,e] with g dividing h", spec.ToString())));
  }
  return AttentionShape{q[0], q[1], q[2], k[2], q[3], spec.attrs.Int("causal", 1) != 0};
}

Result<AttentionShape> AttentionQkvShapeOf(const KernelSpec& spec) {
  const ir::Dims& qkv = spec.inputs[0].dims;
  if (qkv.size() != 5 || qkv[2] != 3) {
    return Fail(InvalidArgument(fmt::format("{}: needs qkv[b,s,3,h,e]", spec.ToString())));
  }
  return AttentionShape{qkv[0], qkv[1], qkv[3], qkv[3], qkv[4], spec.attrs.Int("causal", 1) != 0};
}

}  // namespace meshwright::ops
