// Products of a model's weights in the layout of Hugging Face's nn.Linear, which stores [out, in]:
// here weights are [in, out], and heads are dims of their own, so that devices may share them.
//
// Thread rule: pure functions; `name` names the layer, as in client/layers.h.
#pragma once

#include <cstdint>
#include <string>

#include "client/layers.h"

namespace meshwright::models {

struct ProductOptions {
  bool bias = true;
  double std_dev = 0.02;
  bool drawn = false;  // as client::ParamOptions
};

// x [b, s, in] -> [b, s, out].
ValueId Product(client::Builder& builder, ValueId x, const std::string& name, int64_t out,
                const ProductOptions& options = {});
// x [b, s, in] -> [b, s, heads, size].
ValueId ToHeads(client::Builder& builder, ValueId x, const std::string& name,
                const client::Dims& heads_and_size, const ProductOptions& options = {});
// x [b, s, heads, size] -> [b, s, out].
ValueId FromHeads(client::Builder& builder, ValueId x, const std::string& name, int64_t out,
                  const ProductOptions& options = {});

// Of weights that write to the residual stream of so many layers.
double ResidualStdOf(int64_t layers);

}  // namespace meshwright::models
