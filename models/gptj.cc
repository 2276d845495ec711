#include "models/gptj.h"

#include <fmt/format.h>

#include "client/paged_layers.h"
#include "models/hf_config.h"
#include "models/language_model.h"
#include "models/linear.h"

namespace meshwright::models {
namespace {

using client::Builder;
using client::Dims;

class Gptj {
 public:
  Gptj(Builder& builder, const GptjConfig& config) : b_(builder), config_(config) {}

  // tokens i32[b, s] -> logits [b, s, v]
  ValueId Logits(ValueId tokens) {
    b_.SetLayer(0);
    CheckSequence(b_, tokens, config_.positions);
    segments_ = client::DocumentsOf(b_, tokens, config_.document_separator);
    const Dims table = {config_.vocabulary, config_.width};
    const ValueId embedding = b_.Param("transformer.wte.weight", table);
    ValueId x =
        b_.Dropout(b_.Lookup(embedding, tokens), config_.embedding_dropout, "transformer.drop");
    for (int64_t i = 0; i < config_.layers; ++i) {
      b_.SetLayer(static_cast<int>(i));
      x = Block(x, fmt::format("transformer.h.{}", i));
    }
    x = b_.LayerNorm(client::Wanted(b_, x), "transformer.ln_f", config_.epsilon);
    const ValueId head = config_.tied ? embedding : b_.Param("lm_head.weight", table);
    const ValueId bias = b_.Param("lm_head.bias", {config_.vocabulary}, {.init = "zeros"});
    return b_.AddTo(b_.Einsum("bsd,vd->bsv", x, head), bias);
  }

 private:
  ValueId Block(ValueId x, const std::string& name) {
    const ValueId normed = b_.LayerNorm(x, name + ".ln_1", config_.epsilon);
    const double rate = config_.residual_dropout;
    const ValueId attention =
        b_.Dropout(Attention(normed, name + ".attn"), rate, name + ".attn.resid_dropout");
    const ValueId mlp = b_.Dropout(Mlp(normed, name + ".mlp"), rate, name + ".mlp.dropout");
    return b_.AddTo(x, b_.AddTo(attention, mlp));
  }

  ValueId Attention(ValueId x, const std::string& name) {
    const Dims heads = {config_.heads, config_.head_size()};
    const auto part = [&](const char* which) {
      return ToHeads(b_, x, name + which, heads, {.bias = false});
    };
    const ValueId o =
        b_.Attention(Turned(part(".q_proj")), Turned(part(".k_proj")), part(".v_proj"),
                     {config_.attention_dropout, name + ".attn_dropout"}, segments_);
    return FromHeads(b_, o, name + ".out_proj", config_.width,
                     {false, ResidualStdOf(config_.layers)});
  }

  // Neighbours turn together. Queries and keys come out in one other order of their elements, which
  // their products do not see: first elements of the pairs, second ones, the rest.
  ValueId Turned(ValueId x) {
    const Dims dims = b_.dims(x);
    if (dims.size() != 4) return x;  // after an error
    const int64_t turned = config_.turned;
    const Dims pairs = {dims[0], dims[1], dims[2], turned / 2, 2};
    const ValueId apart =
        b_.Transpose(b_.Reshape(b_.Slice(x, 3, 0, turned), pairs), {0, 1, 2, 4, 3});
    const ValueId y = b_.Rotary(b_.Reshape(apart, {dims[0], dims[1], dims[2], turned}));
    if (turned == dims[3]) return y;
    return b_.Concat({y, b_.Slice(x, 3, turned, dims[3] - turned)}, 3);
  }

  ValueId Mlp(ValueId x, const std::string& name) {
    const ValueId up = Product(b_, x, name + ".fc_in", config_.inner_width());
    return Product(b_, Activate(b_, up, config_.activation), name + ".fc_out", config_.width,
                   {true, ResidualStdOf(config_.layers)});
  }

  Builder& b_;
  const GptjConfig& config_;
  ValueId segments_;  // invalid: a row is one document
};

}  // namespace

Status Validate(const GptjConfig& config) {
  MW_TRY(CheckPositive({{"vocab_size", config.vocabulary},
                        {"positions", config.positions},
                        {"dim", config.width},
                        {"inner width", config.inner_width()},
                        {"n_layers", config.layers},
                        {"n_heads", config.heads},
                        {"rotary_dim", config.turned}}));
  MW_TRY(CheckLayers(config.layers));
  MW_TRY(CheckSeparator(config.document_separator, config.vocabulary));
  MW_TRY(CheckHeads(config.width, config.heads));
  if (config.turned % 2 != 0 || config.turned > config.head_size()) {
    return InvalidArgument(
        fmt::format("model: rotary_dim is {}; an even number of the {} elements of a head turns",
                    config.turned, config.head_size()));
  }
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  MW_TRY(CheckRate("embedding dropout", config.embedding_dropout));
  MW_TRY(CheckRate("residual dropout", config.residual_dropout));
  return CheckRate("attention dropout", config.attention_dropout);
}

client::TrainerFunctions MakeGptj(const GptjConfig& config) { return LanguageModel<Gptj>(config); }

int64_t ParamCount(const GptjConfig& config) {
  const int64_t d = config.width;
  const int64_t f = config.inner_width();
  const int64_t layer = 4 * d * d + 2 * d * f + f + d + 2 * d;
  return config.vocabulary * (d * (config.tied ? 1 : 2) + 1) + config.layers * layer + 2 * d;
}

}  // namespace meshwright::models
