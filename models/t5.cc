#include "models/t5.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "client/paged_layers.h"
#include "client/paged_source.h"
#include "client/scored_attention.h"
#include "models/hf_config.h"
#include "models/linear.h"
#include "models/pair_model.h"
#include "models/token_rows.h"

namespace meshwright::models {
namespace {

using client::Builder;
using client::Dims;

double StdOf(int64_t size) { return 1 / std::sqrt(static_cast<double>(size)); }

// What one side's layers share.
struct Side {
  std::string name;
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool decodes = false;
  ValueId seen;  // keys of its own: bool [b, s]; invalid: all
};

// What scores have for how far a key is from its query, of one table for the layers of a side.
class Distances {
 public:
  Distances(Builder& builder, const T5Config& config) : b_(builder), config_(config) {}

  // [1, h, s, s]: of each head, the number in the table's row of every distance; devices that share
  // heads share the table by heads. Places differ by -(s - 1) to s - 1, so the rows of the
  // distances are taken once, and then by difference.
  ValueId OfRows(const std::string& name, bool decodes, int64_t tokens) {
    const ValueId of_distance = b_.Lookup(BiasTable(name), BucketsOf(decodes, tokens));
    const ValueId keys = b_.Iota(tokens);
    const ValueId queries = b_.Reshape(keys, {tokens, 1});
    const ValueId ahead = b_.AddTo(b_.BroadcastTo(keys, {tokens, tokens}), Whole(b_, tokens - 1));
    const ValueId distance = b_.Sub(ahead, queries);
    const ValueId bias = b_.Lookup(of_distance, distance);
    return b_.Reshape(b_.Transpose(bias, {2, 0, 1}), {1, config_.heads, tokens, tokens});
  }

  // [h, d]: the same of keys that are 0 to d - 1 places before their query.
  ValueId Behind(const std::string& name) {
    const int64_t far = std::min(b_.pages()->shape.positions, config_.max_distance + 1);
    // Places from -(far - 1) to 0, backwards.
    const ValueId buckets = b_.Slice(BucketsOf(true, far), 0, 0, far);
    const ValueId behind = b_.Sub(Whole(b_, far - 1), b_.Iota(far));
    const ValueId of_distance = b_.Lookup(b_.Lookup(BiasTable(name), buckets), behind);
    return b_.Transpose(of_distance, {1, 0});
  }

 private:
  ValueId BiasTable(const std::string& name) {
    return b_.Param(
        name + ".relative_attention_bias.weight", {config_.buckets, config_.heads},
        {.std_dev = StdOf(config_.width), .beside = name + ".q.weight", .beside_dims = {-1, 1}});
  }

  // i32[2s - 1]: the bucket of each distance from -(s - 1) on. It changes at few places, so it is a
  // sum of steps.
  ValueId BucketsOf(bool decodes, int64_t tokens) {
    const auto bucket = [&](int64_t place) {
      return T5Bucket(place - (tokens - 1), !decodes, config_.buckets, config_.max_distance);
    };
    const int64_t distances = 2 * tokens - 1;
    const ValueId places = b_.Iota(distances);
    ValueId found = b_.BroadcastTo(Whole(b_, bucket(0)), {distances});
    for (int64_t place = 1; place < distances; ++place) {
      const int64_t step = bucket(place) - bucket(place - 1);
      if (step == 0) continue;
      const ValueId behind = b_.GreaterEqual(places, Whole(b_, place));
      found = b_.AddTo(found, b_.MulBy(b_.Cast(behind, ir::DType::kI32), Whole(b_, step)));
    }
    return found;
  }

  Builder& b_;
  const T5Config& config_;
};

class T5 : public PairSides<T5, T5Config> {
 public:
  using PairSides::PairSides;

 private:
  friend PairSides;

  void MakeEmbedding() {
    b_.SetLayer(0);
    embedding_ = b_.Param("shared.weight", {config_.vocabulary, config_.width}, {.std_dev = 1.0});
  }

  void Read(ValueId source) {
    told_ = Through({"encoder", 0, config_.layers, false, source_seen_}, source);
  }

  ValueId Write(ValueId read) {
    const int64_t layers = config_.all_layers() - config_.layers;
    return Through({"decoder", config_.layers, layers, true, {}}, read);
  }

  ValueId Head(ValueId y) {
    if (config_.tied) {
      return b_.Einsum("bsd,vd->bsv", b_.Scale(y, StdOf(config_.width)), embedding_);
    }
    return b_.Einsum("bsd,vd->bsv", y,
                     b_.Param("lm_head.weight", {config_.vocabulary, config_.width}));
  }

  ValueId Through(const Side& side, ValueId tokens) {
    b_.SetLayer(static_cast<int>(side.first_layer));
    ValueId x =
        b_.Dropout(b_.Lookup(embedding_, tokens), config_.dropout, side.name + ".embed.dropout");
    const Dims dims = b_.dims(x);
    if (dims.size() != 3) return x;  // after an error
    bias_ = ValueId();
    for (int64_t i = 0; i < side.layers; ++i) {
      b_.SetLayer(static_cast<int>(side.first_layer + i));
      x = Block(side, x, fmt::format("{}.block.{}", side.name, i));
    }
    return b_.Dropout(b_.RmsNorm(x, side.name + ".final_layer_norm", config_.epsilon),
                      config_.dropout, side.name + ".dropout");
  }

  ValueId Block(const Side& side, ValueId x, const std::string& name) {
    client::AttentionOptions own;
    own.causal = side.decodes;
    own.seen_keys = side.seen;
    x = Around(x, name + ".layer.0", [&](ValueId read, const std::string& of) {
      return Attention(read, read, of + ".SelfAttention", own, &side);
    });
    if (side.decodes) {
      client::AttentionOptions told;
      told.causal = false;
      told.seen_keys = source_seen_;
      x = Around(x, name + ".layer.1", [&](ValueId read, const std::string& of) {
        return in_pages_ != nullptr
                   ? SourceInPages(read, of + ".EncDecAttention")
                   : Attention(read, told_, of + ".EncDecAttention", told, nullptr);
      });
    }
    return Around(
        x, fmt::format("{}.layer.{}", name, side.decodes ? 2 : 1),
        [&](ValueId read, const std::string& of) { return Mlp(read, of + ".DenseReluDense"); });
  }

  // What is said of the norm of x is added to it.
  template <typename Say>
  ValueId Around(ValueId x, const std::string& name, const Say& say) {
    const ValueId read = b_.RmsNorm(x, name + ".layer_norm", config_.epsilon);
    return b_.AddTo(x, b_.Dropout(say(read, name), config_.dropout, name + ".dropout"));
  }

  // `side`: whose distances count, or null.
  ValueId Attention(ValueId x, ValueId of, const std::string& name,
                    client::AttentionOptions options, const Side* side) {
    options.scale = 1;
    options.dropout = {config_.dropout, name + ".dropout"};
    const ValueId q = Queries(x, name);
    const ValueId k = Keys(of, name + ".k");
    const ValueId v = Keys(of, name + ".v");
    const Dims dims = b_.dims(q);
    if (dims.size() != 4) return q;  // after an error
    if (side != nullptr && side->decodes && in_pages_ != nullptr) {
      return Out(TextInPages(q, k, v, name), name);
    }
    if (side != nullptr) {
      if (!bias_.valid()) bias_ = Distances(b_, config_).OfRows(name, side->decodes, dims[1]);
      options.bias = bias_;
    }
    // The encoder's rows are whole texts in programs over pages, too.
    return Out(client::ScoredAttention(b_, q, k, v, options), name);
  }

  ValueId Queries(ValueId x, const std::string& name) {
    return ToHeads(b_, x, name + ".q", {config_.heads, config_.head_size},
                   {false, StdOf(config_.width * config_.head_size)});
  }

  ValueId Keys(ValueId x, const std::string& name) {
    return ToHeads(b_, x, name, {config_.heads, config_.head_size}, {false, StdOf(config_.width)});
  }

  ValueId Out(ValueId o, const std::string& name) {
    return FromHeads(b_, o, name + ".o", config_.width,
                     {false, StdOf(config_.heads * config_.head_size)});
  }

  // The op's own scale is 1 / sqrt(head size).
  ValueId TextInPages(ValueId q, ValueId k, ValueId v, const std::string& name) {
    if (!bias_.valid()) bias_ = Distances(b_, config_).Behind(name);
    const ValueId unscaled = b_.Scale(q, std::sqrt(static_cast<double>(config_.head_size)));
    const std::vector<ValueId> results =
        client::PagedAttention(b_, unscaled, k, v, {.causal = true}, bias_);
    return results.empty() ? ValueId() : results[0];
  }

  ValueId SourceInPages(ValueId x, const std::string& name) {
    client::SourceKeys keys{config_.heads, config_.head_size, {}, {}, 1};
    if (told_.valid()) {
      keys.k = Keys(told_, name + ".k");
      keys.v = Keys(told_, name + ".v");
    }
    return Out(client::SourceAttention(b_, Queries(x, name), keys, *in_pages_), name);
  }

  ValueId Mlp(ValueId x, const std::string& name) {
    const auto up = [&](const char* which) {
      return Product(b_, x, name + which, config_.inner, {false, StdOf(config_.width)});
    };
    ValueId y = Activate(b_, up(config_.gated ? ".wi_0" : ".wi"), config_.activation);
    if (config_.gated) y = b_.MulBy(y, up(".wi_1"));
    y = b_.Dropout(y, config_.dropout, name + ".dropout");
    return Product(b_, y, name + ".wo", config_.width, {false, StdOf(config_.inner)});
  }

  ValueId bias_;  // of the side that is built
};

}  // namespace

int64_t T5Bucket(int64_t distance, bool both_ways, int64_t buckets, int64_t max_distance) {
  const int64_t share = both_ways ? buckets / 2 : buckets;
  const int64_t first = both_ways && distance > 0 ? share : 0;
  const int64_t far = both_ways ? std::abs(distance) : std::max<int64_t>(0, -distance);
  const int64_t exact = share / 2;
  if (far < exact) return first + far;
  const auto near = static_cast<float>(exact);
  const auto span =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const float octave = std::log(static_cast<float>(far) / near) / span;
  const int64_t large = exact + static_cast<int64_t>(octave * static_cast<float>(share - exact));
  return first + std::min(large, share - 1);
}

Status Validate(const T5Config& config) {
  MW_TRY(CheckPositive({{"vocab_size", config.vocabulary},
                        {"dim", config.width},
                        {"inner width", config.inner},
                        {"d_kv", config.head_size},
                        {"n_layers", config.layers},
                        {"num_decoder_layers", config.all_layers() - config.layers},
                        {"n_heads", config.heads},
                        {"target_seq_len", config.target_tokens + 1}}));
  MW_TRY(CheckLayers(config.all_layers()));
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  MW_TRY(CheckRate("dropout", config.dropout));
  if (config.buckets < 4 || config.buckets % 4 != 0 || config.max_distance <= config.buckets / 2) {
    return InvalidArgument(fmt::format(
        "relative_attention_num_buckets is {} and relative_attention_max_distance {}; buckets are "
        "a multiple of 4, and half of them is below the distance",
        config.buckets, config.max_distance));
  }
  return CheckPairs(config);
}

client::TrainerFunctions MakeT5(const T5Config& config) { return PairModel<T5>(config); }

int64_t ParamCount(const T5Config& config) {
  const int64_t d = config.width;
  const int64_t attention = 4 * d * config.heads * config.head_size + d;
  const int64_t mlp = (config.gated ? 3 : 2) * d * config.inner + d;
  const int64_t decoder = config.all_layers() - config.layers;
  return config.vocabulary * d * (config.tied ? 1 : 2) + 2 * config.buckets * config.heads + 2 * d +
         config.layers * (attention + mlp) + decoder * (2 * attention + mlp);
}

}  // namespace meshwright::models
