// What trains and asks a model of tokens, whatever its layers are: `Model` is made of a builder and
// a config, and gives the logits of tokens.
//
// Thread rule: pure functions.
#pragma once

#include <fmt/format.h>

#include "client/paged_layers.h"
#include "client/trainer.h"

namespace meshwright::models {

// An error of the graph when tokens have more positions than `positions`; 0: any.
inline void CheckSequence(client::Builder& builder, ValueId tokens, int64_t positions) {
  const int64_t count = client::PositionCount(builder, tokens);
  if (positions == 0 || count <= positions) return;
  builder.Fail(InvalidArgument(
      fmt::format("sequence {} is longer than the model's {} positions", count, positions)));
}

template <typename Model, typename Config>
client::TrainerFunctions LanguageModel(const Config& config) {
  client::TrainerFunctions functions;
  functions.predict = [config](client::Builder& builder, const client::Batch& batch) {
    return Model(builder, config).Logits(batch.at("tokens"));
  };
  functions.loss = [config](client::Builder& builder, const client::Batch& batch) {
    const ValueId logits = Model(builder, config).Logits(batch.at("tokens"));
    return builder.CrossEntropy(logits, batch.at("labels"), config.ignore_index);
  };
  return functions;
}

}  // namespace meshwright::models
