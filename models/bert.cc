#include "models/bert.h"

#include <fmt/format.h>

#include "client/paged_layers.h"
#include "models/class_loss.h"
#include "models/hf_config.h"
#include "models/language_model.h"
#include "models/linear.h"
#include "models/token_rows.h"

namespace meshwright::models {
namespace {

using client::Batch;
using client::Builder;
using client::Dims;

// Of the tokens that are hidden so many become the mask, so many of the rest another token; the
// others stay.
constexpr double kShareOfMask = 0.8;
constexpr double kShareOfMaskAndOthers = 0.9;

class Bert {
 public:
  Bert(Builder& builder, const BertConfig& config) : b_(builder), config_(config) {}

  // tokens i32[b, s], types i32[b, s] or invalid for zeros -> [b, s, d]
  ValueId Encode(ValueId tokens, ValueId types) {
    b_.SetLayer(0);
    CheckSequence(b_, tokens, config_.positions);
    if (b_.pages()) {
      b_.Fail(Unimplemented("model 'bert' sees what comes behind a token, so it writes no text"));
      return ValueId();
    }
    segments_ = SegmentsOf(tokens);
    embedding_ =
        b_.Param("bert.embeddings.word_embeddings.weight", {config_.vocabulary, config_.width});
    ValueId x = Embed(tokens, types);
    for (int64_t i = 0; i < config_.layers; ++i) {
      b_.SetLayer(static_cast<int>(i));
      x = Block(x, fmt::format("bert.encoder.layer.{}", i));
    }
    return x;
  }

  // -> [b, s, v]
  ValueId Logits(ValueId tokens) {
    const std::string head = "cls.predictions";
    const ValueId x = Encode(tokens, {});
    const ValueId turned =
        Activate(b_, Product(b_, x, head + ".transform.dense", config_.width), config_.activation);
    const ValueId normed = Normed(turned, head + ".transform.LayerNorm");
    return b_.AddTo(b_.Einsum("bsd,vd->bsv", normed, embedding_),
                    b_.Param(head + ".bias", {config_.vocabulary}, {.init = "zeros"}));
  }

  // -> [b, labels]
  ValueId Classes(ValueId tokens, ValueId types) {
    const ValueId x = Encode(tokens, types);
    const Dims dims = b_.dims(x);
    if (dims.size() != 3) return x;  // after an error
    const ValueId first = b_.Slice(x, 1, 0, 1);
    const ValueId pooled =
        b_.Tanh(Product(b_, first, "bert.pooler.dense", config_.width, {.drawn = true}));
    const double rate =
        config_.classifier_dropout < 0 ? config_.dropout : config_.classifier_dropout;
    const ValueId read = b_.Dropout(pooled, rate, "classifier.dropout");
    const ValueId y = Product(b_, read, "classifier", config_.labels, {.drawn = true});
    return b_.Reshape(y, {dims[0], config_.labels});
  }

 private:
  // Of rows that hold several documents theirs. Padding is a segment of its own: what it says is
  // read by nobody.
  ValueId SegmentsOf(ValueId tokens) {
    if (b_.documents()) return b_.documents()->segments;
    if (config_.document_separator >= 0) return b_.Segments(tokens, config_.document_separator);
    if (config_.padding < 0) return ValueId();
    return b_.Cast(IsNot(b_, tokens, config_.padding), ir::DType::kI32);
  }

  ValueId Embed(ValueId tokens, ValueId types) {
    const std::string name = "bert.embeddings";
    const ValueId x = b_.Lookup(embedding_, tokens);
    if (b_.dims(x).size() != 3) return x;  // after an error
    const ValueId places =
        b_.Param(name + ".position_embeddings.weight", {config_.positions, config_.width});
    const ValueId kinds =
        b_.Param(name + ".token_type_embeddings.weight", {config_.types, config_.width});
    const ValueId kind = types.valid() ? b_.Lookup(kinds, types)
                                       : b_.Reshape(b_.Slice(kinds, 0, 0, 1), {config_.width});
    const ValueId sum = b_.AddTo(b_.AddTo(x, kind), client::AtPositions(b_, places, tokens));
    return b_.Dropout(Normed(sum, name + ".LayerNorm"), config_.dropout, name + ".dropout");
  }

  ValueId Block(ValueId x, const std::string& name) {
    x = Behind(x, Attention(x, name + ".attention"), name + ".attention.output");
    const ValueId up = Product(b_, x, name + ".intermediate.dense", config_.inner);
    const ValueId down =
        Product(b_, Activate(b_, up, config_.activation), name + ".output.dense", config_.width);
    return Behind(x, down, name + ".output");
  }

  // What is said of x is added to it, and the sum normed.
  ValueId Behind(ValueId x, ValueId said, const std::string& name) {
    const ValueId sum = b_.AddTo(x, b_.Dropout(said, config_.dropout, name + ".dropout"));
    return Normed(sum, name + ".LayerNorm");
  }

  ValueId Attention(ValueId x, const std::string& name) {
    const auto part = [&](const char* which) {
      return ToHeads(b_, x, name + ".self." + which, {config_.heads, config_.head_size()});
    };
    client::AttentionOptions options;
    options.causal = false;
    options.dropout = {config_.attention_dropout, name + ".self.dropout"};
    options.segments = segments_;
    const ValueId o = b_.Attention(part("query"), part("key"), part("value"), options);
    return FromHeads(b_, o, name + ".output.dense", config_.width);
  }

  ValueId Normed(ValueId x, const std::string& name) {
    return b_.LayerNorm(x, name, config_.epsilon);
  }

  Builder& b_;
  const BertConfig& config_;
  ValueId segments_;  // invalid: all tokens see each other
  ValueId embedding_;
};

// Which tokens are hidden and what stands in their place are numbers of seed, step and row, so
// every layout hides the same ones; the labels of the others do not count. Tokens of one word have
// the number of its first one.
Batch Hide(Builder& b, const Batch& batch, const BertConfig& config) {
  const ValueId tokens = batch.at("tokens");
  const ValueId shape = b.Cast(tokens, b.dtype());
  const auto below = [&](ValueId numbers, double share) {
    return b.Less(numbers, b.Fill({}, share));
  };
  ValueId drawn = b.Uniform(shape, "masked_lm.hidden");
  const auto words = batch.find("words");
  if (words != batch.end()) drawn = b.Gather(drawn, words->second, 1);
  ValueId hidden = below(drawn, config.hidden_share);
  for (const int64_t never : {config.padding, config.document_separator}) {
    if (never >= 0) hidden = b.And(hidden, IsNot(b, tokens, never));
  }
  const ValueId any =
      b.Scale(b.Uniform(shape, "masked_lm.other"), static_cast<double>(config.vocabulary));
  const ValueId other = b.Minimum(b.Cast(any, ir::DType::kI32), Whole(b, config.vocabulary - 1));
  const ValueId way = b.Uniform(shape, "masked_lm.way");
  const ValueId stays_or_other = b.Where(below(way, kShareOfMaskAndOthers), other, tokens);
  const ValueId shown =
      b.Where(below(way, kShareOfMask), Whole(b, config.mask_token), stays_or_other);
  return {{"tokens", b.Where(hidden, shown, tokens)},
          {"labels", b.Where(hidden, tokens, Whole(b, config.ignore_index))}};
}

client::TrainerFunctions Classifier(const BertConfig& config) {
  client::TrainerFunctions functions;
  functions.inputs = [](const client::GraphShape& shape) {
    const ir::TensorType tokens{ir::DType::kI32, {shape.batch, shape.sequence}};
    return std::vector<client::InputSpec>{
        {"tokens", tokens}, {"types", tokens}, {"label", {ir::DType::kI32, {shape.batch}}}};
  };
  functions.predict = [config](Builder& builder, const Batch& batch) {
    return Bert(builder, config).Classes(batch.at("tokens"), batch.at("types"));
  };
  functions.loss = [predict = functions.predict, config](Builder& builder, const Batch& batch) {
    return ClassLoss(builder, predict(builder, batch), batch.at("label"), config.ignore_index);
  };
  return functions;
}

}  // namespace

Status Validate(const BertConfig& config) {
  MW_TRY(CheckPositive({{"vocab_size", config.vocabulary},
                        {"positions", config.positions},
                        {"dim", config.width},
                        {"inner width", config.inner},
                        {"n_layers", config.layers},
                        {"n_heads", config.heads},
                        {"type_vocab_size", config.types},
                        {"n_labels", config.labels + 1}}));
  MW_TRY(CheckLayers(config.layers));
  MW_TRY(CheckSeparator(config.document_separator, config.vocabulary));
  MW_TRY(CheckHeads(config.width, config.heads));
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  MW_TRY(CheckRate("hidden dropout", config.dropout));
  MW_TRY(CheckRate("attention dropout", config.attention_dropout));
  MW_TRY(CheckAboveZero("noise_density", config.hidden_share, 1));
  if (!config.tied) return Unimplemented("a head of its own is not built of 'bert'; tie it");
  if (config.labels == 1) {
    return Unimplemented(
        "n_labels is 1, which means a number for each row; rows have classes here, "
        "2 at least");
  }
  if (config.labels > 0 && config.document_separator >= 0) {
    return InvalidArgument(
        "document_separator: the rows of a classifier are one text each; leave "
        "it out");
  }
  if (config.labels == 0 && (config.mask_token < -1 || config.mask_token >= config.vocabulary)) {
    return InvalidArgument(fmt::format(
        "mask_token is {}; it must be a token below vocab_size {}: the id of [MASK] in the "
        "tokenizer",
        config.mask_token, config.vocabulary));
  }
  return OkStatus();
}

client::TrainerFunctions MakeBert(const BertConfig& config) {
  const bool classifies = config.labels > 0;
  client::TrainerFunctions functions =
      classifies ? Classifier(config) : LanguageModel<Bert>(config);
  if (!classifies) {
    functions.corrupt = [config](Builder& builder, const Batch& batch) {
      return Hide(builder, batch, config);
    };
  }
  functions.encode = [config](Builder& builder, const Batch& batch) {
    return Bert(builder, config).Encode(batch.at("tokens"), {});
  };
  return functions;
}

int64_t ParamCount(const BertConfig& config) {
  const int64_t d = config.width;
  const int64_t f = config.inner;
  const int64_t layer = 4 * d * d + 4 * d + 2 * d * f + f + d + 4 * d;
  const int64_t tables = (config.vocabulary + config.positions + config.types) * d + 2 * d;
  const int64_t masked = d * d + d + 2 * d + config.vocabulary;
  const int64_t classes = d * d + d + d * config.labels + config.labels;
  return tables + config.layers * layer + (config.labels > 0 ? classes : masked);
}

}  // namespace meshwright::models
