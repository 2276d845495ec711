// What a folder of sentence-transformers says of the vectors that its model makes.
//
//   modules.json               in this order: a transformer, a pooling, and maybe that vectors have
//                              the length 1; other modules are refused
//   1_Pooling/config.json      how the states of tokens become a vector
//   sentence_bert_config.json  max_seq_length: of a longer text the rest is left out
//
// A folder without them is a plain model: vectors are means of states, as they are.
// Thread rule: reads files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "client/embedding.h"

namespace meshwright::cli {

struct SentenceFolder {
  std::string model;  // folder of the transformer: config.json, weights, tokenizer
  client::EmbedRules rules;
  std::optional<int64_t> most_tokens;
};

// Errors: kInvalidArgument naming the file: no JSON, no such field; kUnimplemented naming a module
// or a pooling that is not built; those of reading.
Result<SentenceFolder> ReadSentenceFolder(const std::string& folder);

}  // namespace meshwright::cli
