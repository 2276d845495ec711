#include "tokenizer/sentencepiece_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_error.h"
#include "base/json_int.h"
#include "tokenizer/vocabulary.h"

namespace meshwright::tokenizer {
namespace {

using nlohmann::json;

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kAdded = "added_tokens.json";

// What classes of transformers put around a text where the file does not say it.
struct ClassRow {
  std::string_view name;
  bool begin;
  bool end;
};
constexpr std::array<ClassRow, 6> kClasses = {{{"LlamaTokenizer", true, false},
                                               {"CodeLlamaTokenizer", true, false},
                                               {"GemmaTokenizer", true, false},
                                               {"T5Tokenizer", false, true},
                                               {"PegasusTokenizer", false, true},
                                               {"BigBirdTokenizer", false, true}}};

Result<json> ParseObject(const char* file, std::string_view text) {
  if (text.empty()) return json::object();
  json parsed = json::parse(text, nullptr, false);
  if (parsed.is_object()) return parsed;
  return Fail(InvalidArgument(fmt::format("{} is {}", file, WhyNoJsonObject(text))));
}

Status Wrong(const char* file, std::string_view key, std::string_view what) {
  return InvalidArgument(fmt::format("{}: {}: {}", file, key, what));
}

Result<bool> BoolOr(const json& config, const char* key, bool absent) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return absent;
  if (found->is_boolean()) return found->get<bool>();
  return Fail(Wrong(kConfig, key, "is not true or false"));
}

// A token is written as its text, or as an object with it.
std::optional<std::string> ContentOf(const json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (!token.is_object()) return std::nullopt;
  const auto content = token.find("content");
  if (content == token.end() || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

Result<std::string> TokenOr(const json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::string();
  if (const auto content = ContentOf(*found)) return *content;
  return Fail(Wrong(kConfig, key, "is no token"));
}

// Tokens by id, and those whose id nobody says.
class TokenList {
 public:
  void Add(std::optional<int64_t> id, const json& from, const std::string& content, bool special) {
    if (content.empty() || !seen_.emplace(content, true).second) return;
    const auto flag = [&](const char* key) {
      return from.is_object() && from.contains(key) && from[key].is_boolean() &&
             from[key].get<bool>();
    };
    const bool said = from.is_object() && from.contains("special");
    // Nothing normalizes an added token here: SentencePiece has not seen the text yet.
    json token = {{"content", content},       {"single_word", flag("single_word")},
                  {"lstrip", flag("lstrip")}, {"rstrip", flag("rstrip")},
                  {"normalized", false},      {"special", said ? flag("special") : special}};
    by_id_.emplace(id.value_or(INT64_MAX), std::move(token));
  }
  std::string Dump() const {
    json list = json::array();
    for (const auto& [id, token] : by_id_) list.push_back(token);
    return list.dump();
  }

 private:
  std::map<std::string, bool> seen_;
  std::multimap<int64_t, json> by_id_;
};

Result<int64_t> IdOfKey(const std::string& key) {
  const bool digits =
      !key.empty() && key.size() < 10 &&
      std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (digits && std::stoll(key) <= kMaxTokenId) return std::stoll(key);
  return Fail(Wrong(kConfig, "added_tokens_decoder", fmt::format("'{}' is no id", key)));
}

Status AddDecoder(const json& config, TokenList& list) {
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end() || decoder->is_null()) return OkStatus();
  for (const auto& [key, token] : decoder->items()) {
    MW_ASSIGN_OR_RETURN(const int64_t id, IdOfKey(key));
    const auto content = ContentOf(token);
    if (!content) return Wrong(kConfig, "added_tokens_decoder." + key, "has no content");
    list.Add(id, token, *content, false);
  }
  return OkStatus();
}

Status AddNamed(const json& config, TokenList& list) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                          "cls_token", "mask_token"}) {
    MW_ASSIGN_OR_RETURN(const std::string content, TokenOr(config, key));
    list.Add(std::nullopt, config.value(key, json()), content, true);
  }
  const auto more = config.find("additional_special_tokens");
  if (more == config.end() || more->is_null()) return OkStatus();
  for (const json& token : *more) {
    const auto content = ContentOf(token);
    if (!content) return Wrong(kConfig, "additional_special_tokens", "has what is no token");
    list.Add(std::nullopt, token, *content, true);
  }
  return OkStatus();
}

Status AddFile(const json& added, TokenList& list) {
  for (const auto& [content, id] : added.items()) {
    const auto number = FindJsonInt(id, int64_t{0}, int64_t{kMaxTokenId});
    if (!number) return Wrong(kAdded, content, "has no id");
    list.Add(*number, json(), content, false);
  }
  return OkStatus();
}

}  // namespace

Result<AroundSentencePiece> ParseAround(std::string_view config_text, std::string_view added_text) {
  MW_ASSIGN_OR_RETURN(const json config, ParseObject(kConfig, config_text));
  MW_ASSIGN_OR_RETURN(const json added, ParseObject(kAdded, added_text));
  AroundSentencePiece around;
  const auto name = config.find("tokenizer_class");
  for (const ClassRow& row : kClasses) {
    if (name == config.end() || !name->is_string()) continue;
    const auto text = name->get<std::string>();
    if (text != row.name && text != fmt::format("{}Fast", row.name)) continue;
    around.adds_begin = row.begin;
    around.adds_end = row.end;
  }
  MW_ASSIGN_OR_RETURN(around.adds_begin, BoolOr(config, "add_bos_token", around.adds_begin));
  MW_ASSIGN_OR_RETURN(around.adds_end, BoolOr(config, "add_eos_token", around.adds_end));
  MW_ASSIGN_OR_RETURN(around.space_behind_added, BoolOr(config, "legacy", true));
  MW_ASSIGN_OR_RETURN(around.begin, TokenOr(config, "bos_token"));
  MW_ASSIGN_OR_RETURN(around.end, TokenOr(config, "eos_token"));
  TokenList list;
  MW_TRY(AddDecoder(config, list));
  MW_TRY(AddFile(added, list));
  MW_TRY(AddNamed(config, list));
  around.added_tokens = list.Dump();
  return around;
}

}  // namespace meshwright::tokenizer
