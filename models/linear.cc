#include "models/linear.h"

#include <cmath>

namespace meshwright::models {

using client::Builder;
using client::Dims;

ValueId Product(Builder& builder, ValueId x, const std::string& name, int64_t out,
                const ProductOptions& options) {
  const Dims in = builder.dims(x);
  if (in.size() != 3) return x;  // after an error
  const ValueId weight =
      builder.Param(name + ".weight", {in[2], out},
                    {.std_dev = options.std_dev, .export_perm = {1, 0}, .drawn = options.drawn});
  const ValueId y = builder.Einsum("bsd,df->bsf", x, weight);
  if (!options.bias) return y;
  return builder.AddTo(
      y, builder.Param(name + ".bias", {out}, {.init = "zeros", .drawn = options.drawn}));
}

ValueId ToHeads(Builder& builder, ValueId x, const std::string& name, const Dims& heads_and_size,
                const ProductOptions& options) {
  const Dims in = builder.dims(x);
  if (in.size() != 3) return x;  // after an error
  const int64_t h = heads_and_size[0];
  const int64_t e = heads_and_size[1];
  const ValueId weight = builder.Param(
      name + ".weight", {in[2], h, e},
      {.std_dev = options.std_dev, .export_perm = {1, 2, 0}, .export_shape = {h * e, in[2]}});
  const ValueId y = builder.Einsum("bsd,dhe->bshe", x, weight);
  if (!options.bias) return y;
  return builder.AddTo(y, builder.Param(name + ".bias", {h, e},
                                        {.init = "zeros", .decay = 0, .export_shape = {h * e}}));
}

ValueId FromHeads(Builder& builder, ValueId x, const std::string& name, int64_t out,
                  const ProductOptions& options) {
  const Dims in = builder.dims(x);
  if (in.size() != 4) return x;  // after an error
  const ValueId weight = builder.Param(
      name + ".weight", {in[2], in[3], out},
      {.std_dev = options.std_dev, .export_perm = {2, 0, 1}, .export_shape = {out, in[2] * in[3]}});
  const ValueId y = builder.Einsum("bshe,hed->bsd", x, weight);
  if (!options.bias) return y;
  return builder.AddTo(y, builder.Param(name + ".bias", {out}, {.init = "zeros"}));
}

double ResidualStdOf(int64_t layers) { return 0.02 / std::sqrt(2.0 * static_cast<double>(layers)); }

}  // namespace meshwright::models
