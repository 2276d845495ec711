#include "models/latent_attention.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace meshwright::models {
namespace {

using client::Builder;
using client::Dims;

constexpr double kEpsilon =
    1e-6;  // of the norms of short vectors, whatever the model's others have

class Latent {
 public:
  Latent(Builder& builder, const std::string& name, const LatentOptions& options)
      : b_(builder), name_(name), options_(options), of_(options.of) {}

  ValueId Attend(ValueId x) {
    const Dims dims = b_.dims(x);
    if (dims.size() != 3) return ValueId();  // after an error
    const ValueId q = Queries(x);
    const ValueId low = Down(x, name_ + ".kv_a_proj_with_mqa.weight", of_.rank + of_.turned);
    const ValueId latent =
        b_.RmsNorm(b_.Slice(low, 2, 0, of_.rank), name_ + ".kv_a_layernorm", kEpsilon);
    const ValueId both = Up(latent, name_ + ".kv_b_proj.weight", of_.plain + of_.value);
    const ValueId k = b_.Concat({b_.Slice(both, 3, 0, of_.plain), SharedKey(low, dims)}, 3);
    // Values as wide as keys are: what is behind them is zero, and stays so.
    const ValueId values = b_.Slice(both, 3, of_.plain, of_.value);
    const bool narrow = of_.value < of_.head();
    const ValueId v = narrow ? b_.Pad(values, 3, 0, of_.head() - of_.value) : values;
    client::AttentionOptions options;
    options.dropout = {options_.dropout, name_ + ".dropout"};
    options.segments = options_.segments;
    const double growth = ScoreGrowth(options_.rope.scaling);
    if (growth != 1) options.scale = growth / std::sqrt(static_cast<double>(of_.head()));
    const ValueId y = b_.Attention(q, k, v, options);
    const int64_t d = dims[2];
    const ValueId out = b_.Param(name_ + ".o_proj.weight", {options_.heads, of_.value, d},
                                 {.std_dev = options_.out_std,
                                  .export_perm = {2, 0, 1},
                                  .export_shape = {d, options_.heads * of_.value}});
    return b_.Einsum("bshe,hed->bsd", narrow ? b_.Slice(y, 3, 0, of_.value) : y, out);
  }

 private:
  ValueId Queries(ValueId x) {
    if (of_.query_rank == 0) return Turned(Up(x, name_ + ".q_proj.weight", of_.head()));
    const ValueId low = Down(x, name_ + ".q_a_proj.weight", of_.query_rank);
    const ValueId normed = b_.RmsNorm(low, name_ + ".q_a_layernorm", kEpsilon);
    return Turned(Up(normed, name_ + ".q_b_proj.weight", of_.head()));
  }

  // The last elements of each head, by their positions.
  ValueId Turned(ValueId q) {
    const ValueId turned = Turn(b_, b_.Slice(q, 3, of_.plain, of_.turned), options_.rope);
    return b_.Concat({b_.Slice(q, 3, 0, of_.plain), turned}, 3);
  }

  // [b, s, rank + turned] -> [b, s, h, turned]
  ValueId SharedKey(ValueId low, const Dims& dims) {
    const ValueId key =
        b_.Reshape(b_.Slice(low, 2, of_.rank, of_.turned), {dims[0], dims[1], 1, of_.turned});
    return b_.BroadcastTo(Turn(b_, key, options_.rope),
                          {dims[0], dims[1], options_.heads, of_.turned});
  }

  ValueId Down(ValueId x, const std::string& name, int64_t rank) {
    const ValueId weight = b_.Param(name, {b_.dims(x)[2], rank}, {.export_perm = {1, 0}});
    return b_.Einsum("bsd,dr->bsr", x, weight);
  }

  ValueId Up(ValueId x, const std::string& name, int64_t head) {
    const int64_t rank = b_.dims(x)[2];
    const int64_t h = options_.heads;
    const ValueId weight = b_.Param(name, {rank, h, head},
                                    {.export_perm = {1, 2, 0}, .export_shape = {h * head, rank}});
    return b_.Einsum("bsd,dhe->bshe", x, weight);
  }

  Builder& b_;
  const std::string& name_;
  const LatentOptions& options_;
  const LatentHeads& of_;
};

}  // namespace

ValueId LatentAttention(Builder& builder, ValueId x, const std::string& name,
                        const LatentOptions& options) {
  return Latent(builder, name, options).Attend(x);
}

Status Validate(const LatentHeads& heads) {
  for (const auto& [name, value] :
       {std::pair("plain", heads.plain), std::pair("turned", heads.turned),
        std::pair("value", heads.value)}) {
    if (value >= 1) continue;
    return InvalidArgument(fmt::format("latent attention: {} is {}; at least 1", name, value));
  }
  if (heads.turned % 2 != 0) {
    return InvalidArgument(
        fmt::format("latent attention: turned is {}; rotary positions need pairs", heads.turned));
  }
  if (heads.value > heads.head()) {
    return InvalidArgument(
        fmt::format("latent attention: values of {} elements are wider than keys of {}",
                    heads.value, heads.head()));
  }
  return OkStatus();
}

int64_t ParamCount(const LatentHeads& of, int64_t width, int64_t heads) {
  const int64_t queries = of.query_rank == 0 ? width * heads * of.head()
                                             : width * of.query_rank + of.query_rank +
                                                   of.query_rank * heads * of.head();
  const int64_t keys_and_values =
      width * (of.rank + of.turned) + of.rank + of.rank * heads * (of.plain + of.value);
  return queries + keys_and_values + heads * of.value * width;
}

}  // namespace meshwright::models
