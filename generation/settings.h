// How a model wants to be generated with: its generation_config.json.
//
// What a request says counts before what the file says, and that before the defaults, which are
// ours: all tokens may be drawn, where transformers keeps 50 unless told otherwise. Thread rule:
// pure functions. Source: transformers, generation/configuration_utils.py.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "generation/beam_search.h"
#include "generation/sampling.h"
#include "generation/text_rules.h"

namespace meshwright::generation {

struct Settings {
  Sampling sampling;
  std::optional<int64_t> max_new_tokens;
  std::optional<int64_t> max_length = {};  // with the prompt, where max_new_tokens is not said
  TextRules rules = {};
  BeamOptions beams;                  // of a search, which is one where there are several
  std::set<int32_t> stops;            // tokens that end a text: "eos_token_id", one or several
  std::optional<int32_t> start = {};  // what a decoder reads first: "decoder_start_token_id"
  // What the file asks for besides, as `"guidance_scale": 2`, which would change the text.
  std::vector<std::string> unknown = {};
};

// That nothing is left out which would change the text. Errors: kUnimplemented naming the key.
Status CheckKnown(const Settings& settings);

// Of the text of a generation_config.json, or of the config.json of a model that has no such file.
// Keys that do not change a text are passed over. Errors: kInvalidArgument naming the key, what it
// is and what it should be, or where the text is no JSON.
Result<Settings> ParseSettings(std::string_view json);

}  // namespace meshwright::generation
