#include "ops/dropout_mask.h"

#include <algorithm>
#include <cmath>

namespace meshwright::ops {

DropoutMask::DropoutMask(double rate, std::string_view name)
    : rate_(rate),
      stream_(StreamOf(name)),
      threshold_(static_cast<uint32_t>(std::ceil(std::clamp(rate, 0.0, 1.0) * 0x1.0p24))) {}

double DropoutMask::Factor(const RunContext& context, uint64_t index) const {
  const uint32_t bits =
      PhiloxBits(context.seed, stream_, static_cast<uint64_t>(context.step), index);
  return bits >> 8 >= threshold_ ? keep_scale() : 0.0;
}

Result<AttentionDropout> AttentionDropout::Of(const KernelSpec& spec, const ir::TensorType& query) {
  AttentionDropout dropout;
  const double rate = spec.attrs.Real("dropout");
  if (rate <= 0) return dropout;
  dropout.mask_ = DropoutMask(rate, spec.attrs.Str("name"));
  MW_ASSIGN_OR_RETURN(dropout.query_, spec.BlockOf(query));
  return dropout;
}

uint64_t AttentionDropout::RowStart(int64_t batch, int64_t head, int64_t position,
                                    int32_t microbatch) const {
  const int64_t sequence = query_.global_dims[1];
  const int64_t heads = query_.global_dims[2];
  const int64_t row =
      (query_.Start(0, microbatch) + batch) * heads + (query_.Start(2, microbatch) + head);
  return static_cast<uint64_t>((row * sequence + position) * sequence);
}

}  // namespace meshwright::ops
