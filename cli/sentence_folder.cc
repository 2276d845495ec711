#include "cli/sentence_folder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_error.h"
#include "base/json_int.h"

namespace meshwright::cli {
namespace {

using client::Pooling;

constexpr const char* kPoolingFile = "/config.json";
constexpr int64_t kMostSaidTokens = int64_t{1} << 24;

// Nothing: there is no such file.
Result<std::optional<nlohmann::json>> ReadSentenceFile(const std::string& path) {
  if (!FileExists(path)) return std::optional<nlohmann::json>();
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() || json.is_array()) return std::optional(std::move(json));
  return Fail(InvalidArgument(fmt::format("{} is {}", path, WhyNoJsonObject(text))));
}

// A text of an object, or "".
std::string SentenceText(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// In the order in which sentence-transformers puts several of them. No pooling: it is not built.
const std::vector<std::pair<const char*, std::optional<Pooling>>>& PoolingModes() {
  static const std::vector<std::pair<const char*, std::optional<Pooling>>> modes = {
      {"cls_token", Pooling::kFirst},
      {"max_tokens", std::nullopt},
      {"mean_tokens", Pooling::kMean},
      {"mean_sqrt_len_tokens", Pooling::kMeanSqrt},
      {"weightedmean_tokens", Pooling::kWeightedMean},
      {"lasttoken", Pooling::kLast}};
  return modes;
}

Result<std::vector<Pooling>> PoolingsOf(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const auto json, ReadSentenceFile(path));
  if (!json || !json->is_object()) {
    return Fail(InvalidArgument(fmt::format("{} is missing or no JSON object", path)));
  }
  std::vector<Pooling> poolings;
  for (const auto& [mode, pooling] : PoolingModes()) {
    const auto set = json->find(fmt::format("pooling_mode_{}", mode));
    if (set == json->end() || !set->is_boolean() || !set->get<bool>()) continue;
    if (!pooling) {
      return Fail(Unimplemented(fmt::format("{}: pooling_mode_{} is not built", path, mode)));
    }
    poolings.push_back(*pooling);
  }
  // Newer files say it in a word.
  if (const std::string word = SentenceText(*json, "pooling_mode");
      poolings.empty() && !word.empty()) {
    auto pooling = client::ParsePooling(word);
    if (!pooling.has_value()) return Fail(pooling.error().WithContext(path));
    poolings.push_back(*pooling);
  }
  if (!poolings.empty()) return poolings;
  return Fail(InvalidArgument(fmt::format("{} says no pooling_mode", path)));
}

// "sentence_transformers.models.Pooling" -> "Pooling".
std::string ModuleKind(const nlohmann::json& module) {
  const std::string type = SentenceText(module, "type");
  return type.substr(type.rfind('.') + 1);
}

Status ReadModules(const nlohmann::json& modules, const std::string& folder,
                   SentenceFolder& found) {
  const std::string file = folder + "/modules.json";
  if (!modules.is_array()) return InvalidArgument(fmt::format("{} is no list of modules", file));
  for (const nlohmann::json& module : modules) {
    const std::string kind = ModuleKind(module);
    const std::string path = SentenceText(module, "path");
    const std::string place = path.empty() ? folder : folder + "/" + path;
    if (kind == "Transformer") {
      found.model = place;
    } else if (kind == "Pooling") {
      MW_ASSIGN_OR_RETURN(found.rules.poolings, PoolingsOf(place + kPoolingFile));
    } else if (kind == "Normalize") {
      found.rules.normalised = true;
    } else {
      return Unimplemented(fmt::format(
          "{}: module '{}' is not built; known: Transformer, Pooling, Normalize", file,
          kind.empty() ? module.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                       : kind));
    }
  }
  return OkStatus();
}

}  // namespace

Result<SentenceFolder> ReadSentenceFolder(const std::string& folder) {
  SentenceFolder found{folder, {}, {}};
  MW_ASSIGN_OR_RETURN(const auto modules, ReadSentenceFile(folder + "/modules.json"));
  if (modules) {
    MW_TRY(ReadModules(*modules, folder, found));
  } else if (const std::string pooling = folder + "/1_Pooling"; FileExists(pooling + "/.")) {
    MW_ASSIGN_OR_RETURN(found.rules.poolings, PoolingsOf(pooling + kPoolingFile));
    found.rules.normalised = FileExists(folder + "/2_Normalize/.");
  }
  const std::string sizes = found.model + "/sentence_bert_config.json";
  MW_ASSIGN_OR_RETURN(const auto said, ReadSentenceFile(sizes));
  if (!said || !said->is_object()) return found;
  const auto most = said->find("max_seq_length");
  if (most == said->end() || most->is_null()) return found;
  const auto tokens = JsonInt<int64_t>(*most, "max_seq_length", 1, kMostSaidTokens);
  if (!tokens.has_value()) return Fail(tokens.error().WithContext(sizes));
  found.most_tokens = *tokens;
  return found;
}

}  // namespace meshwright::cli
