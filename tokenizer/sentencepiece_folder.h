// What stands beside a tokenizer.model: tokens that are cut out of a text before SentencePiece sees
// it, and those that are put around one.
//
// A tokenizer.model alone knows neither: its library spells "<s>" in a text, and puts nothing
// around. tokenizer_config.json and added_tokens.json of the same folder say more, as
// `transformers` writes them for its tokenizers in Python.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meshwright::tokenizer {

struct AroundSentencePiece {
  // The list "added_tokens" of a tokenizer.json, as JSON.
  std::string added_tokens = "[]";
  std::string begin;  // "" where the file says it
  std::string end;
  bool adds_begin = false;
  bool adds_end = false;
  // Whether a text behind an added token gets the space of the text's beginning, too.
  bool space_behind_added = true;
};

// config: of tokenizer_config.json, added: of added_tokens.json; "" where a folder has none.
// Errors: kInvalidArgument naming file and key.
Result<AroundSentencePiece> ParseAround(std::string_view config, std::string_view added);

}  // namespace meshwright::tokenizer
