#include "models/bart.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "client/paged_layers.h"
#include "client/scored_attention.h"
#include "models/hf_config.h"
#include "models/linear.h"
#include "models/pair_model.h"

namespace meshwright::models {
namespace {

using client::Dims;

constexpr int64_t kRowsInFront = 2;  // of a table of places, which no place has

class Bart : public PairSides<Bart, BartConfig> {
 public:
  using PairSides::PairSides;

 private:
  friend PairSides;

  void MakeEmbedding() {
    b_.SetLayer(0);
    embedding_ = b_.Param("model.shared.weight", {config_.vocabulary, config_.width});
  }

  void Read(ValueId source) {
    b_.SetLayer(0);
    const Dims dims = b_.dims(source);
    if (dims.size() != 2) return;  // after an error
    // A row of the encoder is a whole text in programs over pages, too.
    CheckPlaces(dims[1]);
    const std::string side = "model.encoder";
    ValueId x = Embed(source, b_.Slice(Places(side), 0, kRowsInFront, dims[1]), side);
    for (int64_t i = 0; i < config_.layers; ++i) {
      b_.SetLayer(static_cast<int>(i));
      const std::string name = fmt::format("{}.layers.{}", side, i);
      client::AttentionOptions options;
      options.causal = false;
      options.seen_keys = source_seen_;
      x = Behind(x, OfSource(x, x, name + ".self_attn", config_.heads, options),
                 name + ".self_attn_layer_norm");
      x = Behind(x, Mlp(x, name, config_.inner), name + ".final_layer_norm");
    }
    told_ = x;
  }

  ValueId Write(ValueId read) {
    b_.SetLayer(static_cast<int>(config_.layers));
    CheckPlaces(client::PositionCount(b_, read));
    const std::string side = "model.decoder";
    const ValueId places = b_.Slice(Places(side), 0, kRowsInFront, config_.positions);
    ValueId x = Embed(read, client::AtPositions(b_, places, read), side);
    for (int64_t i = 0; i < config_.decoder_layers; ++i) {
      b_.SetLayer(static_cast<int>(config_.layers + i));
      const std::string name = fmt::format("{}.layers.{}", side, i);
      x = Behind(x, OfText(x, name + ".self_attn"), name + ".self_attn_layer_norm");
      x = Behind(x, ToSource(x, name + ".encoder_attn"), name + ".encoder_attn_layer_norm");
      x = Behind(x, Mlp(x, name, config_.decoder_inner), name + ".final_layer_norm");
    }
    return x;
  }

  ValueId Head(ValueId y) { return b_.Einsum("bsd,vd->bsv", y, embedding_); }

  void CheckPlaces(int64_t count) {
    if (count <= config_.positions) return;
    b_.Fail(InvalidArgument(fmt::format("sequence {} is longer than the model's {} positions",
                                        count, config_.positions)));
  }

  ValueId Places(const std::string& side) {
    return b_.Param(side + ".embed_positions.weight",
                    {config_.positions + kRowsInFront, config_.width});
  }

  ValueId Embed(ValueId tokens, ValueId places, const std::string& side) {
    ValueId x = b_.Lookup(embedding_, tokens);
    if (config_.scaled) x = b_.Scale(x, std::sqrt(static_cast<double>(config_.width)));
    x = b_.LayerNorm(b_.AddTo(x, places), side + ".layernorm_embedding", config_.epsilon);
    return b_.Dropout(x, config_.dropout, side + ".dropout");
  }

  // What is said of x is added to it, and the sum normed.
  ValueId Behind(ValueId x, ValueId said, const std::string& norm) {
    const ValueId sum = b_.AddTo(x, b_.Dropout(said, config_.dropout, norm + ".dropout"));
    return b_.LayerNorm(sum, norm, config_.epsilon);
  }

  ValueId Mlp(ValueId x, const std::string& name, int64_t inner) {
    const ValueId y = Activate(b_, Product(b_, x, name + ".fc1", inner), config_.activation);
    return Product(b_, b_.Dropout(y, config_.activation_dropout, name + ".dropout"), name + ".fc2",
                   config_.width);
  }

  ValueId Heads(ValueId x, const std::string& name, int64_t heads) {
    return ToHeads(b_, x, name, {heads, config_.width / heads});
  }

  ValueId Out(ValueId o, const std::string& name) {
    return FromHeads(b_, o, name + ".out_proj", config_.width);
  }

  // Attention of x to the places of a source.
  ValueId OfSource(ValueId x, ValueId source, const std::string& name, int64_t heads,
                   client::AttentionOptions options) {
    options.dropout = {config_.attention_dropout, name + ".dropout"};
    const ValueId q = Heads(x, name + ".q_proj", heads);
    const ValueId k = Heads(source, name + ".k_proj", heads);
    const ValueId v = Heads(source, name + ".v_proj", heads);
    return Out(client::ScoredAttention(b_, q, k, v, options), name);
  }

  ValueId OfText(ValueId x, const std::string& name) {
    const int64_t heads = config_.decoder_heads;
    const ValueId q = Heads(x, name + ".q_proj", heads);
    const ValueId k = Heads(x, name + ".k_proj", heads);
    const ValueId v = Heads(x, name + ".v_proj", heads);
    return Out(b_.Attention(q, k, v, {config_.attention_dropout, name + ".dropout"}), name);
  }

  ValueId ToSource(ValueId x, const std::string& name) {
    const int64_t heads = config_.decoder_heads;
    if (in_pages_ == nullptr) {
      client::AttentionOptions options;
      options.causal = false;
      options.seen_keys = source_seen_;
      return OfSource(x, told_, name, heads, options);
    }
    client::SourceKeys keys{heads, config_.width / heads, {}, {}, 0};
    if (told_.valid()) {
      keys.k = Heads(told_, name + ".k_proj", heads);
      keys.v = Heads(told_, name + ".v_proj", heads);
    }
    const ValueId q = Heads(x, name + ".q_proj", heads);
    return Out(client::SourceAttention(b_, q, keys, *in_pages_), name);
  }
};

}  // namespace

Status Validate(const BartConfig& config) {
  MW_TRY(CheckPositive({{"vocab_size", config.vocabulary},
                        {"max_seq_len", config.positions},
                        {"dim", config.width},
                        {"inner width", config.inner},
                        {"decoder_ffn_dim", config.decoder_inner},
                        {"n_layers", config.layers},
                        {"decoder_layers", config.decoder_layers},
                        {"target_seq_len", config.target_tokens + 1}}));
  MW_TRY(CheckLayers(config.all_layers()));
  MW_TRY(CheckHeads(config.width, config.heads));
  MW_TRY(CheckHeads(config.width, config.decoder_heads));
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  for (const auto& [name, rate] : {std::pair("dropout", config.dropout),
                                   std::pair("attention dropout", config.attention_dropout),
                                   std::pair("activation dropout", config.activation_dropout)}) {
    MW_TRY(CheckRate(name, rate));
  }
  MW_TRY(CheckPairs(config));
  if (!config.tied) return Unimplemented("a head of its own is not built of 'bart'; tie it");
  return OkStatus();
}

client::TrainerFunctions MakeBart(const BartConfig& config) { return PairModel<Bart>(config); }

int64_t ParamCount(const BartConfig& config) {
  const int64_t d = config.width;
  const int64_t norm = 2 * d;
  const int64_t attention = 4 * (d * d + d) + norm;
  const auto mlp = [&](int64_t inner) { return 2 * d * inner + inner + d + norm; };
  return config.vocabulary * d + 2 * ((config.positions + kRowsInFront) * d + norm) +
         config.layers * (attention + mlp(config.inner)) +
         config.decoder_layers * (2 * attention + mlp(config.decoder_inner));
}

}  // namespace meshwright::models
