// What trains, asks and writes with a model of an encoder and a decoder, whatever its layers are:
// `Model` is made of a builder and a config, and gives the logits of a target behind a source.
//
// A batch is "source" i32[b, s] and "target" i32[b, t], with padding behind. What is written is the
// target; the decoder reads it one place later, behind `start`. Padding is seen by nobody and is no
// label. Over pages the batch is that of client/paged_source.h. Thread rule: pure functions.
#pragma once

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "client/paged_layers.h"
#include "client/paged_source.h"
#include "client/trainer.h"
#include "models/token_rows.h"

namespace meshwright::models {

// What a row says beside its sizes. Errors: kInvalidArgument naming the field.
template <typename Config>
Status CheckPairs(const Config& config) {
  if (config.hidden_share < 0 || config.hidden_share >= 1 || !(config.mean_span >= 1)) {
    return InvalidArgument(
        fmt::format("noise_density is {} and mean_span_length {}; a share below 1, in spans of 1 "
                    "token at least",
                    config.hidden_share, config.mean_span));
  }
  if (config.document_separator >= 0) {
    return InvalidArgument(
        "document_separator: a row of a model with an encoder is one pair; leave it out");
  }
  for (const auto& [name, token] : {std::pair("pad_token_id", config.padding),
                                    std::pair("decoder_start_token_id", config.start)}) {
    if (token >= 0 && token < config.vocabulary) continue;
    return InvalidArgument(fmt::format("{} is {}; it must be a token below vocab_size {}", name,
                                       token, config.vocabulary));
  }
  return OkStatus();
}

// What the decoder reads: the target of the batch one place later. One of a single token is not
// read at all, and no input of a program that is asked.
inline ValueId Shifted(client::Builder& builder, const client::Batch& batch, int64_t start) {
  const auto target = batch.find("target");
  const ValueId rows = target != batch.end() ? target->second : batch.at("source");
  const client::Dims dims = builder.dims(rows);
  if (dims.size() != 2) return rows;  // after an error
  const ValueId first = builder.BroadcastTo(Whole(builder, start), {dims[0], 1});
  if (target == batch.end() || dims[1] == 1) return first;
  return builder.Concat({first, builder.Slice(rows, 1, 0, dims[1] - 1)}, 1);
}

// What a model of two sides is beside its layers. `Model` derives from it and says how it reads and
// writes: MakeEmbedding(), Read(source, seen), which sets told_, Write(read) and Head(y).
template <typename Model, typename Config>
class PairSides {
 public:
  PairSides(client::Builder& builder, const Config& config) : b_(builder), config_(config) {}

  // source [b, s], read [b, t] -> [b, t, v]
  ValueId Logits(ValueId source, ValueId read) {
    self().MakeEmbedding();
    ReadSource(source, IsNot(b_, source, config_.padding));
    return self().Head(self().Write(read));
  }

  // Of texts in pages, each with a source of its own: of the wanted tokens.
  ValueId LogitsInPages(const client::Batch& batch) {
    in_pages_ = &batch;
    self().MakeEmbedding();
    if (client::ReadsSource(batch)) {
      ReadSource(batch.at(client::kSourceTokens), client::SourceSeen(b_, batch));
    }
    return self().Head(client::Wanted(b_, self().Write(batch.at("tokens"))));
  }

 protected:
  client::Builder& b_;
  const Config& config_;
  ValueId embedding_;
  ValueId source_seen_;  // bool [b, s]
  ValueId told_;         // what the encoder made of the source
  const client::Batch* in_pages_ = nullptr;

 private:
  Model& self() { return static_cast<Model&>(*this); }

  void ReadSource(ValueId source, ValueId seen) {
    source_seen_ = seen;
    self().Read(source);
  }
};

// Model has Logits(source, read) and LogitsInPages(batch); Config target_of(), padding, start and
// ignore_index.
template <typename Model, typename Config>
client::TrainerFunctions PairModel(const Config& config) {
  client::TrainerFunctions functions;
  functions.inputs = [config](const client::GraphShape& shape) {
    const int64_t target = config.target_of(shape.sequence);
    return std::vector<client::InputSpec>{
        {"source", {ir::DType::kI32, {shape.batch, shape.sequence}}},
        {"target", {ir::DType::kI32, {shape.batch, target}}}};
  };
  functions.predict = [config](client::Builder& builder, const client::Batch& batch) {
    Model model(builder, config);
    if (!builder.pages()) {
      return model.Logits(batch.at("source"), Shifted(builder, batch, config.start));
    }
    if (batch.contains(client::kSourceTable)) return model.LogitsInPages(batch);
    builder.Fail(InvalidArgument("a model with an encoder has sources in its programs over pages"));
    return ValueId();
  };
  functions.loss = [predict = functions.predict, config](client::Builder& builder,
                                                         const client::Batch& batch) {
    const ValueId target = batch.at("target");
    const ValueId logits = predict(builder, batch);
    const ValueId labels = builder.Where(IsNot(builder, target, config.padding), target,
                                         Whole(builder, config.ignore_index));
    return builder.CrossEntropy(logits, labels, config.ignore_index);
  };
  return functions;
}

}  // namespace meshwright::models
