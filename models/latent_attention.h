// Multi-head latent attention: keys and values of all heads are made of one short vector a token,
// and positions turn a part of each head that all heads share on the side of the keys.
//
// Of a head of queries and keys the first `plain` elements know no positions, the other `turned`
// ones do; values have a width of their own. Params carry the names of Hugging Face's DeepseekV3;
// which
// turned elements are a pair, `rope` says.
//
// Thread rule: values. Source: DeepSeek-V2 2024, section 2.1.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/layers.h"
#include "models/rope.h"

namespace meshwright::models {

struct LatentHeads {
  int64_t query_rank = 0;  // length of the vector that queries are made of; 0: of x itself
  int64_t rank = 0;        // of keys and values; 0: no latent attention
  int64_t plain = 0;
  int64_t turned = 0;  // even
  int64_t value = 0;

  bool any() const { return rank > 0; }
  int64_t head() const { return plain + turned; }
};

struct LatentOptions {
  int64_t heads = 1;
  LatentHeads of = {};
  Rope rope = {};  // of the turned elements
  double dropout = 0;
  double out_std = 0.02;
  ValueId segments = {};  // as of client::Builder::Attention
};

// x [b, s, d] -> [b, s, d].
ValueId LatentAttention(client::Builder& builder, ValueId x, const std::string& name,
                        const LatentOptions& options);

// Errors: kInvalidArgument naming the field.
Status Validate(const LatentHeads& heads);

// Trained values by formula, of one layer.
int64_t ParamCount(const LatentHeads& of, int64_t width, int64_t heads);

}  // namespace meshwright::models
