#include "models/gpt2.h"

#include <fmt/format.h>

#include <cmath>

#include "client/paged_layers.h"
#include "models/hf_config.h"
#include "models/language_model.h"

namespace meshwright::models {
namespace {

using client::Batch;
using client::Builder;
using client::Dims;
using client::ParamOptions;

class Gpt2 {
 public:
  Gpt2(Builder& builder, const Gpt2Config& config) : b_(builder), config_(config) {}

  // tokens i32[b, s] -> logits [b, s, v]
  ValueId Logits(ValueId tokens) {
    b_.SetLayer(0);
    segments_ = client::DocumentsOf(b_, tokens, config_.document_separator);
    ValueId x = Embed(tokens);
    for (int64_t i = 0; i < config_.layers; ++i) {
      b_.SetLayer(static_cast<int>(i));
      x = Block(x, i);
    }
    x = b_.LayerNorm(client::Wanted(b_, x), "transformer.ln_f", config_.epsilon);
    const ValueId head =
        config_.tied ? wte_ : b_.Param("lm_head.weight", {config_.vocabulary, config_.width});
    return b_.Einsum("bsd,vd->bsv", x, head);
  }

 private:
  ValueId Embed(ValueId tokens) {
    CheckSequence(b_, tokens, config_.positions);
    wte_ = b_.Param("transformer.wte.weight", {config_.vocabulary, config_.width});
    const ValueId wpe = b_.Param("transformer.wpe.weight", {config_.positions, config_.width});
    const ValueId x = b_.AddTo(b_.Lookup(wte_, tokens), client::AtPositions(b_, wpe, tokens));
    return b_.Dropout(x, config_.embedding_dropout, "transformer.drop");
  }

  ValueId Block(ValueId x, int64_t index) {
    const std::string name = fmt::format("transformer.h.{}", index);
    const ValueId attention =
        Attention(b_.LayerNorm(x, name + ".ln_1", config_.epsilon), name + ".attn");
    x = b_.AddTo(x, b_.Dropout(attention, config_.residual_dropout, name + ".attn.resid_dropout"));
    const ValueId mlp = Mlp(b_.LayerNorm(x, name + ".ln_2", config_.epsilon), name + ".mlp");
    return b_.AddTo(x, b_.Dropout(mlp, config_.residual_dropout, name + ".mlp.dropout"));
  }

  ValueId Attention(ValueId x, const std::string& name) {
    const int64_t d = config_.width;
    const int64_t h = config_.heads;
    const int64_t e = config_.head_size();
    const ValueId weight =
        b_.Param(name + ".c_attn.weight", {d, 3, h, e}, {.export_shape = {d, 3 * d}});
    const ValueId bias = b_.Param(name + ".c_attn.bias", {3, h, e},
                                  {.init = "zeros", .decay = 0, .export_shape = {3 * d}});
    const ValueId qkv = b_.AddTo(b_.Einsum("bsd,dthe->bsthe", x, weight), bias);
    const ValueId o =
        b_.AttentionQkv(qkv, {config_.attention_dropout, name + ".attn_dropout"}, segments_);
    const ValueId projection = b_.Param(name + ".c_proj.weight", {h, e, d},
                                        {.std_dev = ResidualStd(), .export_shape = {d, d}});
    return b_.AddTo(b_.Einsum("bshe,hed->bsd", o, projection), ZeroBias(name + ".c_proj.bias", d));
  }

  ValueId Mlp(ValueId x, const std::string& name) {
    const int64_t d = config_.width;
    const int64_t f = config_.inner_width();
    const ValueId up = b_.Einsum("bsd,df->bsf", x, b_.Param(name + ".c_fc.weight", {d, f}));
    const ValueId active =
        Activate(b_, b_.AddTo(up, ZeroBias(name + ".c_fc.bias", f)), config_.activation);
    const ValueId down =
        b_.Einsum("bsf,fd->bsd", active,
                  b_.Param(name + ".c_proj.weight", {f, d}, {.std_dev = ResidualStd()}));
    return b_.AddTo(down, ZeroBias(name + ".c_proj.bias", d));
  }

  ValueId ZeroBias(const std::string& name, int64_t size) {
    return b_.Param(name, {size}, {.init = "zeros"});
  }
  double ResidualStd() const { return 0.02 / std::sqrt(2.0 * static_cast<double>(config_.layers)); }

  Builder& b_;
  const Gpt2Config& config_;
  ValueId wte_;
  ValueId segments_;  // invalid: a row is one document
};

}  // namespace

Status Validate(const Gpt2Config& config) {
  MW_TRY(CheckPositive({{"vocab_size", config.vocabulary},
                        {"positions", config.positions},
                        {"dim", config.width},
                        {"n_layers", config.layers},
                        {"n_heads", config.heads},
                        {"inner width", config.inner_width()}}));
  MW_TRY(CheckLayers(config.layers));
  MW_TRY(CheckSeparator(config.document_separator, config.vocabulary));
  MW_TRY(CheckHeads(config.width, config.heads));
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  MW_TRY(CheckRate("embedding dropout", config.embedding_dropout));
  MW_TRY(CheckRate("residual dropout", config.residual_dropout));
  return CheckRate("attention dropout", config.attention_dropout);
}

client::TrainerFunctions MakeGpt2(const Gpt2Config& config) { return LanguageModel<Gpt2>(config); }

int64_t ParamCount(const Gpt2Config& config) {
  const int64_t d = config.width;
  const int64_t f = config.inner_width();
  const int64_t attention = d * 3 * d + 3 * d + d * d + d;
  const int64_t mlp = d * f + f + f * d + d;
  const int64_t head = config.tied ? 0 : config.vocabulary * d;
  return (config.vocabulary + config.positions) * d + config.layers * (attention + mlp + 4 * d) +
         2 * d + head;
}

}  // namespace meshwright::models
