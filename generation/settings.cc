#include "generation/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/json_error.h"
#include "base/json_int.h"

namespace meshwright::generation {
namespace {

using nlohmann::json;

Status Wrong(const char* key, const json& value, const char* wanted) {
  return InvalidArgument(fmt::format("\"{}\" is {}, not {}", key, value.dump(), wanted));
}

// Nothing where the key is not there, or null.
const json* Find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Status ReadNumber(const json& object, const char* key, double& out) {
  const json* value = Find(object, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_number()) return Wrong(key, *value, "a number");
  out = value->get<double>();
  return OkStatus();
}

Status ReadCount(const json& object, const char* key, std::optional<int64_t>& out) {
  const json* value = Find(object, key);
  if (value == nullptr) return OkStatus();
  out = FindJsonInt(*value, int64_t{0});
  return out ? OkStatus() : Wrong(key, *value, "a whole number of at least 0");
}

Status ReadTokens(const json& object, const char* key, std::set<int32_t>& out) {
  const json* value = Find(object, key);
  if (value == nullptr) return OkStatus();
  const json tokens = value->is_array() ? *value : json::array({*value});
  for (const json& token : tokens) {
    const auto id = FindJsonInt(token, int32_t{0});
    if (!id) return Wrong(key, *value, "a token or a list of tokens");
    out.insert(*id);
  }
  return OkStatus();
}

Status ReadToken(const json& object, const char* key, std::optional<int32_t>& out) {
  const json* value = Find(object, key);
  if (value == nullptr) return OkStatus();
  out = FindJsonInt(*value, int32_t{0});
  return out ? OkStatus() : Wrong(key, *value, "a token");
}

Status ReadBool(const json& object, const char* key, bool& out) {
  const json* value = Find(object, key);
  if (value == nullptr) return OkStatus();
  if (!value->is_boolean()) return Wrong(key, *value, "true or false");
  out = value->get<bool>();
  return OkStatus();
}

Status ReadBadWords(const json& object, std::vector<std::vector<int32_t>>& out) {
  constexpr const char* kKey = "bad_words_ids";
  constexpr const char* kWanted = "a list of lists of tokens";
  const json* value = Find(object, kKey);
  if (value == nullptr) return OkStatus();
  if (!value->is_array()) return Wrong(kKey, *value, kWanted);
  for (const json& word : *value) {
    if (!word.is_array() || word.empty()) return Wrong(kKey, *value, kWanted);
    std::vector<int32_t> tokens;
    for (const json& token : word) {
      const auto id = FindJsonInt(token, int32_t{0});
      if (!id) return Wrong(kKey, *value, kWanted);
      tokens.push_back(*id);
    }
    out.push_back(std::move(tokens));
  }
  return OkStatus();
}

Status ReadRules(const json& object, TextRules& out) {
  std::optional<int64_t> count;
  MW_TRY(ReadCount(object, "no_repeat_ngram_size", count));
  out.no_repeat_ngram = std::exchange(count, {}).value_or(0);
  MW_TRY(ReadBadWords(object, out.bad_words));
  MW_TRY(ReadCount(object, "min_length", count));
  out.min_length = count.value_or(0);
  MW_TRY(ReadCount(object, "min_new_tokens", out.min_new_tokens));
  MW_TRY(ReadToken(object, "forced_bos_token_id", out.forced_bos));
  MW_TRY(ReadTokens(object, "forced_eos_token_id", out.forced_eos));
  MW_TRY(ReadTokens(object, "suppress_tokens", out.suppressed));
  MW_TRY(ReadTokens(object, "begin_suppress_tokens", out.begin_suppressed));
  return ReadBool(object, "renormalize_logits", out.renormalises);
}

// Keys that change a text unless they are null or have one of these values.
struct OtherKey {
  const char* key;
  std::vector<json> does_nothing;
};

const std::vector<OtherKey>& OtherKeys() {
  static const std::vector<OtherKey> keys = {
      {"encoder_repetition_penalty", {1}},
      {"encoder_no_repeat_ngram_size", {0}},
      {"exponential_decay_length_penalty", {}},
      {"sequence_bias", {json::object(), json::array()}},
      {"guidance_scale", {1}},
      {"typical_p", {1}},
      {"epsilon_cutoff", {0}},
      {"eta_cutoff", {0}},
      {"top_h", {}},
      {"num_beam_groups", {1}},
      {"diversity_penalty", {0}},
      {"penalty_alpha", {0}},
      {"constraints", {json::array()}},
      {"force_words_ids", {json::array()}},
      {"forced_decoder_ids", {json::array()}},
      {"stop_strings", {json::array()}},
      {"watermarking_config", {}},
      {"dola_layers", {}},
      {"token_healing", {false}},
      {"max_time", {}},
  };
  return keys;
}

std::vector<std::string> UnknownOf(const json& object) {
  std::vector<std::string> unknown;
  for (const auto& [key, does_nothing] : OtherKeys()) {
    const json* value = Find(object, key);
    if (value == nullptr) continue;
    if (std::find(does_nothing.begin(), does_nothing.end(), *value) != does_nothing.end()) continue;
    const std::string text = value->dump(-1, ' ', false, json::error_handler_t::replace);
    unknown.push_back(fmt::format("\"{}\": {}", key, text));
  }
  return unknown;
}

// "early_stopping" is true, false or "never".
Status ReadBeams(const json& object, BeamOptions& out) {
  std::optional<int64_t> beams;
  MW_TRY(ReadCount(object, "num_beams", beams));
  out.beams = beams.value_or(out.beams);
  MW_TRY(ReadNumber(object, "length_penalty", out.length_penalty));
  if (const json* early = Find(object, "early_stopping"); early != nullptr) {
    const std::string text = early->is_string() ? early->get<std::string>() : early->dump();
    MW_ASSIGN_OR_RETURN(out.early_stopping, ParseEarlyStop(text));
  }
  return CheckBeams(out);
}

}  // namespace

Status CheckKnown(const Settings& settings) {
  if (settings.unknown.empty()) return OkStatus();
  return Unimplemented(fmt::format(
      "{} is not built, and the text would be another one: take the key out of the file to have "
      "texts without it",
      fmt::join(settings.unknown, ", ")));
}

Result<Settings> ParseSettings(std::string_view text) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Fail(InvalidArgument("it is " + WhyNoJsonObject(text)));
  Settings settings;
  Sampling& sampling = settings.sampling;
  MW_TRY(ReadBool(object, "do_sample", sampling.draws));
  std::optional<int64_t> top_k;
  MW_TRY(ReadCount(object, "top_k", top_k));
  sampling.top_k = top_k.value_or(0);
  MW_TRY(ReadNumber(object, "temperature", sampling.temperature));
  MW_TRY(ReadNumber(object, "top_p", sampling.top_p));
  MW_TRY(ReadNumber(object, "min_p", sampling.min_p));
  MW_TRY(ReadNumber(object, "repetition_penalty", sampling.repetition_penalty));
  MW_TRY(ReadCount(object, "max_new_tokens", settings.max_new_tokens));
  MW_TRY(ReadCount(object, "max_length", settings.max_length));
  MW_TRY(ReadTokens(object, "eos_token_id", settings.stops));
  MW_TRY(ReadToken(object, "decoder_start_token_id", settings.start));
  MW_TRY(ReadRules(object, settings.rules));
  settings.unknown = UnknownOf(object);
  MW_TRY(ReadBeams(object, settings.beams));
  // A temperature of 0 says what do_sample = false says.
  if (sampling.temperature == 0) {
    sampling.draws = false;
    sampling.temperature = 1;
  }
  MW_TRY(CheckSampling(sampling));
  return settings;
}

}  // namespace meshwright::generation
