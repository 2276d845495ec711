#include "models/decoder.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "client/paged_layers.h"
#include "models/hf_config.h"
#include "models/language_model.h"
#include "models/linear.h"

namespace meshwright::models {
namespace {

using client::Builder;
using client::Dims;
using client::ParamOptions;

// Heads of queries, keys and values: [b, s, h, e].
struct Heads {
  ValueId q;
  ValueId k;
  ValueId v;
};

// The product of x and what files have as one tensor.
class FusedHeads {
 public:
  FusedHeads(Builder& builder, const DecoderConfig& config, const std::string& name)
      : b_(builder), config_(config), name_(name) {}

  // x [b, s, d]
  Heads Of(ValueId x) { return config_.files == QkvFiles::kOfOneHead ? OfOneHead(x) : OfGroups(x); }

 private:
  Heads OfGroups(ValueId x) {
    const int64_t d = config_.width;
    const int64_t g = config_.kv_head_count();
    const int64_t r = config_.heads / g;
    const int64_t e = config_.head_size();
    const int64_t rows = (r + 2) * g * e;
    const ValueId weight = b_.Param(name_ + ".weight", {d, r + 2, g, e},
                                    {.export_perm = {2, 1, 3, 0}, .export_shape = {rows, d}});
    ValueId all = b_.Einsum("bsd,dtge->bstge", x, weight);
    if (config_.attention_bias) {
      const ParamOptions bias = {
          .init = "zeros", .decay = 0, .export_perm = {1, 0, 2}, .export_shape = {rows}};
      all = b_.AddTo(all, b_.Param(name_ + ".bias", {r + 2, g, e}, bias));
    }
    const Dims dims = b_.dims(all);
    if (dims.size() != 5) return {x, x, x};  // after an error
    const auto one = [&](int64_t which) {
      return b_.Reshape(b_.Slice(all, 2, which, 1), {dims[0], dims[1], g, e});
    };
    if (r == 1) return {one(0), one(1), one(2)};
    const ValueId q = b_.Transpose(b_.Slice(all, 2, 0, r), {0, 1, 3, 2, 4});
    return {b_.Reshape(q, {dims[0], dims[1], g * r, e}), one(r), one(r + 1)};
  }

  Heads OfOneHead(ValueId x) {
    MW_CHECK(config_.kv_head_count() == 1) << "one head of keys is " << config_.kv_head_count();
    const int64_t h = config_.heads;
    Heads heads{Rows(x, ".query", 0, h), Rows(x, ".key", h, 1), Rows(x, ".value", h + 1, 1)};
    // Each head has them as its own, so that devices may share heads; pages keep one.
    const Dims dims = b_.dims(heads.q);
    if (b_.pages() || dims.size() != 4) return heads;
    heads.k = b_.BroadcastTo(heads.k, dims);
    heads.v = b_.BroadcastTo(heads.v, dims);
    return heads;
  }

  // Heads from `first` on.
  ValueId Rows(ValueId x, const char* part, int64_t first, int64_t heads) {
    const int64_t d = config_.width;
    const int64_t e = config_.head_size();
    ParamOptions options = {.export_name = name_ + ".weight",
                            .export_perm = {1, 2, 0},
                            .export_shape = {heads * e, d},
                            .export_rows = (config_.heads + 2) * e,
                            .export_row = first * e};
    const ValueId y =
        b_.Einsum("bsd,dhe->bshe", x, b_.Param(name_ + part + ".weight", {d, heads, e}, options));
    if (!config_.attention_bias) return y;
    options.init = "zeros";
    options.decay = 0;
    options.export_name = name_ + ".bias";
    options.export_perm = {};
    options.export_shape = {heads * e};
    return b_.AddTo(y, b_.Param(name_ + part + ".bias", {heads, e}, options));
  }

  Builder& b_;
  const DecoderConfig& config_;
  const std::string& name_;
};

// ALiBi's slopes [h]: 2^(-8/n), its square, and so on for the n heads of a power of two; what is
// above has those of twice as many, every second one.
ValueId Slopes(Builder& builder, int64_t heads) {
  const auto whole = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const auto powers = [&](int64_t count, double first, double step) {
    const ValueId places = builder.Cast(builder.Iota(count), builder.dtype());
    const ValueId logs = builder.Shift(builder.Scale(places, step), first);
    return builder.Exp(builder.Scale(logs, std::numbers::ln2));
  };
  const double speed = -8.0 / static_cast<double>(whole);
  const ValueId slopes = powers(whole, speed, speed);
  if (whole == heads) return slopes;
  return builder.Concat({slopes, powers(heads - whole, speed / 2, speed)}, 0);
}

class Decoder {
 public:
  Decoder(Builder& builder, const DecoderConfig& config)
      : b_(builder), config_(config), names_(config.names) {}

  // tokens i32[b, s] -> logits [b, s, v]
  ValueId Logits(ValueId tokens) {
    b_.SetLayer(0);
    CheckSequence(b_, tokens, config_.positions);
    segments_ = client::DocumentsOf(b_, tokens, config_.document_separator);
    const Dims table = {config_.vocabulary, config_.table_width()};
    const ValueId embedding = b_.Param(names_.embedding + ".weight", table);
    ValueId x = Embed(embedding, tokens);
    for (int64_t i = 0; i < config_.layers; ++i) {
      b_.SetLayer(static_cast<int>(i));
      x = Block(x, fmt::format("{}.{}", names_.blocks, i));
    }
    x = client::Wanted(b_, x);
    if (config_.final_norm) x = Norm(x, names_.final_norm);
    if (config_.table_width() != config_.width) {
      x = Product(b_, x, names_.project_out, config_.table_width(), {.bias = false});
    }
    const ValueId head = config_.tied ? embedding : b_.Param(names_.head + ".weight", table);
    const ValueId logits = b_.Einsum("bsd,vd->bsv", x, head);
    if (!config_.head_bias) return logits;
    return b_.AddTo(logits,
                    b_.Param(names_.head + ".bias", {config_.vocabulary}, {.init = "zeros"}));
  }

 private:
  ValueId Norm(ValueId x, const std::string& name) {
    return b_.LayerNorm(x, name, config_.epsilon);
  }

  ValueId Embed(ValueId embedding, ValueId tokens) {
    ValueId x = b_.Lookup(embedding, tokens);
    if (b_.dims(x).size() != 3) return x;  // after an error
    if (config_.table_width() != config_.width) {
      x = Product(b_, x, names_.project_in, config_.width, {.bias = false});
    }
    if (config_.embedding_norm) x = Norm(x, names_.embedding_norm);
    if (config_.places == DecoderPlaces::kLearned) {
      const ValueId table = b_.Param(names_.places + ".weight",
                                     {config_.positions + config_.rows_in_front, config_.width});
      const ValueId counted = config_.rows_in_front > 0
                                  ? b_.Slice(table, 0, config_.rows_in_front, config_.positions)
                                  : table;
      x = b_.AddTo(x, client::AtPositions(b_, counted, tokens));
    }
    return b_.Dropout(x, config_.embedding_dropout, names_.embedding + ".dropout");
  }

  ValueId Block(ValueId x, const std::string& name) {
    const auto under = [&](const std::string& part) { return name + "." + part; };
    const bool behind = config_.residual == DecoderResidual::kBehind;
    const ValueId read = behind ? x : Norm(x, under(names_.norm));
    const ValueId said = Dropped(Attention(read, name), name + ".attention_dropout");
    if (config_.residual == DecoderResidual::kTogether) {
      return b_.AddTo(x, b_.AddTo(said, Dropped(Mlp(read, name), name + ".mlp_dropout")));
    }
    if (config_.residual == DecoderResidual::kSideBySide) {
      const ValueId of_mlp = Mlp(Norm(x, under(names_.mlp_norm)), name);
      return b_.AddTo(x, b_.AddTo(said, Dropped(of_mlp, name + ".mlp_dropout")));
    }
    x = b_.AddTo(x, said);
    if (behind) x = Norm(x, under(names_.norm));
    const ValueId mlp = Mlp(behind ? x : Norm(x, under(names_.mlp_norm)), name);
    x = b_.AddTo(x, Dropped(mlp, name + ".mlp_dropout"));
    return behind ? Norm(x, under(names_.mlp_norm)) : x;
  }

  ValueId Dropped(ValueId x, const std::string& name) {
    return b_.Dropout(x, config_.residual_dropout, name);
  }

  Heads HeadsOf(ValueId x, const std::string& block) {
    if (config_.files != QkvFiles::kApart) {
      const std::string name = block + "." + names_.qkv;
      return FusedHeads(b_, config_, name).Of(x);
    }
    const auto part = [&](const std::string& name, int64_t heads) {
      return ToHeads(b_, x, block + "." + name, {heads, config_.head_size()},
                     {.bias = config_.attention_bias});
    };
    const int64_t g = config_.kv_head_count();
    return {part(names_.q, config_.heads), part(names_.k, g), part(names_.v, g)};
  }

  ValueId Attention(ValueId x, const std::string& block) {
    Heads heads = HeadsOf(x, block);
    if (config_.places == DecoderPlaces::kTurned) {
      const Rope rope = config_.rope();
      heads.q = Turn(b_, heads.q, rope);
      heads.k = Turn(b_, heads.k, rope);
    }
    client::AttentionOptions options;
    options.dropout = {config_.attention_dropout, block + ".scores_dropout"};
    options.segments = segments_;
    return FromHeads(b_, Attend(heads, options, b_.dims(x)), block + "." + names_.out,
                     config_.width, {config_.output_bias, ResidualStdOf(config_.layers)});
  }

  ValueId Attend(const Heads& heads, client::AttentionOptions options, const Dims& of_x) {
    const bool falls = config_.places == DecoderPlaces::kSlopes;
    if (falls && b_.pages()) {
      const std::vector<ValueId> results =
          client::PagedAttention(b_, heads.q, heads.k, heads.v, options, FallingBehind());
      return results.empty() ? ValueId() : results[0];
    }
    if (falls) options.bias = Falling(of_x);
    return b_.Attention(heads.q, heads.k, heads.v, options);
  }

  // [h, positions]: the same by the distance of a key to its query.
  ValueId FallingBehind() {
    const int64_t positions = client::PositionCount(b_, ValueId());
    const ValueId places = b_.Cast(b_.Iota(positions), b_.dtype());
    const ValueId back = b_.Reshape(b_.Neg(places), {1, positions});
    return b_.MulBy(b_.Reshape(Slopes(b_, config_.heads), {config_.heads, 1}), back);
  }

  // [1, h, s, s]: what scores get by the place of the key. Softmax does not see that the place of
  // the query is not taken off.
  ValueId Falling(const Dims& of_x) {
    if (of_x.size() != 3) return ValueId();  // after an error
    const int64_t s = of_x[1];
    const ValueId slopes = b_.Reshape(Slopes(b_, config_.heads), {1, config_.heads, 1, 1});
    const ValueId places = b_.Reshape(b_.Cast(b_.Iota(s), b_.dtype()), {1, 1, 1, s});
    return b_.BroadcastTo(b_.MulBy(slopes, places), {1, config_.heads, s, s});
  }

  ValueId Mlp(ValueId x, const std::string& block) {
    const ValueId up =
        Product(b_, x, block + "." + names_.up, config_.inner_width(), {.bias = config_.mlp_bias});
    return Product(b_, Activate(b_, up, config_.activation), block + "." + names_.down,
                   config_.width, {config_.mlp_bias, ResidualStdOf(config_.layers)});
  }

  Builder& b_;
  const DecoderConfig& config_;
  const DecoderNames& names_;
  ValueId segments_;  // invalid: a row is one document
};

}  // namespace

Status Validate(const DecoderConfig& config) {
  MW_TRY(CheckPositive({{"vocab_size", config.vocabulary},
                        {"dim", config.width},
                        {"word_embed_proj_dim", config.table_width()},
                        {"inner width", config.inner_width()},
                        {"n_layers", config.layers},
                        {"n_heads", config.heads},
                        {"n_kv_heads", config.kv_head_count()}}));
  if (config.places == DecoderPlaces::kLearned) {
    MW_TRY(CheckPositive({{"positions", config.positions}}));
  }
  MW_TRY(CheckLayers(config.layers));
  MW_TRY(CheckSeparator(config.document_separator, config.vocabulary));
  MW_TRY(CheckHeads(config.width, config.heads));
  if (config.heads % config.kv_head_count() != 0) {
    return InvalidArgument(fmt::format("n_heads {} is not a multiple of n_kv_heads {}",
                                       config.heads, config.kv_head_count()));
  }
  if (config.places == DecoderPlaces::kTurned) {
    if (!(config.rope_part > 0 && config.rope_part <= 1)) {
      return InvalidArgument(fmt::format(
          "model: the part of a head that turns is {}; it must be above 0 and at most 1",
          config.rope_part));
    }
    if (config.turned > config.head_size()) {
      return InvalidArgument(fmt::format("model: {} of the {} elements of a head turn",
                                         config.turned, config.head_size()));
    }
    MW_TRY(Validate(config.rope()));
  }
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  MW_TRY(CheckRate("embedding dropout", config.embedding_dropout));
  MW_TRY(CheckRate("residual dropout", config.residual_dropout));
  return CheckRate("attention dropout", config.attention_dropout);
}

client::TrainerFunctions MakeDecoder(const DecoderConfig& config) {
  return LanguageModel<Decoder>(config);
}

int64_t ParamCount(const DecoderConfig& config) {
  const int64_t d = config.width;
  const int64_t f = config.inner_width();
  const int64_t kv = 2 * config.kv_head_count() * config.head_size();
  const int64_t attention =
      d * (2 * d + kv) + (config.attention_bias ? d + kv : 0) + (config.output_bias ? d : 0);
  const int64_t mlp = 2 * d * f + (config.mlp_bias ? d + f : 0);
  const int64_t norms = config.residual == DecoderResidual::kTogether ? 2 * d : 4 * d;
  const int64_t table = config.vocabulary * config.table_width();
  const int64_t projections = config.table_width() != d ? 2 * d * config.table_width() : 0;
  const int64_t places =
      config.places == DecoderPlaces::kLearned ? (config.positions + config.rows_in_front) * d : 0;
  return table * (config.tied ? 1 : 2) + (config.head_bias ? config.vocabulary : 0) + projections +
         places + config.layers * (attention + mlp + norms) +
         2 * d * ((config.final_norm ? 1 : 0) + (config.embedding_norm ? 1 : 0));
}

}  // namespace meshwright::models
