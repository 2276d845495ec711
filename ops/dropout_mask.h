// DropoutMask: which elements a dropout keeps, as a function of (seed, step, name, global element
// index).
//
// AttentionDropout is the same for the probabilities inside `attention`: probability (b, h, i, j)
// of the global [batch, heads, s, s] has the mask of its linear index, so no layout changes a mask.
// Thread rule: immutable.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/philox.h"
#include "base/result.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops {

class DropoutMask {
 public:
  DropoutMask() = default;
  // `name` is the random stream; 0 <= rate < 1.
  DropoutMask(double rate, std::string_view name);

  bool active() const { return rate_ > 0; }
  double keep_scale() const { return 1.0 / (1.0 - rate_); }
  // An element is kept when its bits >> 8 are at least this: u * 2^-24 >= rate, exactly.
  uint32_t threshold() const { return threshold_; }
  // Key of Philox for a run with this seed.
  uint64_t Key(uint64_t seed) const { return PhiloxKey(seed, stream_); }
  // 0 or keep_scale() of one element.
  double Factor(const RunContext& context, uint64_t index) const;

 private:
  double rate_ = 0;
  uint64_t stream_ = 0;
  uint32_t threshold_ = 0;
};

class AttentionDropout {
 public:
  // From the attributes {dropout, name} and the block that q is, which has the type `query`;
  // operand 0 without. Errors: kInvalidArgument when the block does not fit q.
  static Result<AttentionDropout> Of(const KernelSpec& spec, const ir::TensorType& query);
  static Result<AttentionDropout> Of(const KernelSpec& spec) { return Of(spec, spec.inputs[0]); }

  const DropoutMask& mask() const { return mask_; }
  bool active() const { return mask_.active(); }
  // Index of the probability of the key at position 0 in the row of the query at `position` of the
  // sequence; batch row and head are local.
  uint64_t RowStart(int64_t batch, int64_t head, int64_t position, int32_t microbatch) const;

 private:
  DropoutMask mask_;
  ShardBlock query_;  // [b, s, h, e]
};

}  // namespace meshwright::ops
