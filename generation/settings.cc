#include "generation/settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

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

Status ReadStops(const json& object, std::set<int32_t>& out) {
  constexpr const char* kKey = "eos_token_id";
  const json* value = Find(object, kKey);
  if (value == nullptr) return OkStatus();
  const json tokens = value->is_array() ? *value : json::array({*value});
  for (const json& token : tokens) {
    const auto id = FindJsonInt(token, int32_t{0});
    if (!id) return Wrong(kKey, *value, "a token or a list of tokens");
    out.insert(*id);
  }
  return OkStatus();
}

Status ReadStart(const json& object, std::optional<int32_t>& out) {
  constexpr const char* kKey = "decoder_start_token_id";
  const json* value = Find(object, kKey);
  if (value == nullptr) return OkStatus();
  out = FindJsonInt(*value, int32_t{0});
  return out ? OkStatus() : Wrong(kKey, *value, "a token");
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

Result<Settings> ParseSettings(std::string_view text) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Fail(InvalidArgument("it is " + WhyNoJsonObject(text)));
  Settings settings;
  Sampling& sampling = settings.sampling;
  if (const json* draws = Find(object, "do_sample"); draws != nullptr) {
    if (!draws->is_boolean()) return Fail(Wrong("do_sample", *draws, "true or false"));
    sampling.draws = draws->get<bool>();
  }
  std::optional<int64_t> top_k;
  MW_TRY(ReadCount(object, "top_k", top_k));
  sampling.top_k = top_k.value_or(0);
  MW_TRY(ReadNumber(object, "temperature", sampling.temperature));
  MW_TRY(ReadNumber(object, "top_p", sampling.top_p));
  MW_TRY(ReadNumber(object, "min_p", sampling.min_p));
  MW_TRY(ReadNumber(object, "repetition_penalty", sampling.repetition_penalty));
  MW_TRY(ReadCount(object, "max_new_tokens", settings.max_new_tokens));
  MW_TRY(ReadStops(object, settings.stops));
  MW_TRY(ReadStart(object, settings.start));
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
