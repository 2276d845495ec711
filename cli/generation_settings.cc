#include "cli/generation_settings.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "base/file.h"
#include "cli/documents.h"
#include "cli/job_codec.h"

namespace meshwright::cli {
namespace {

constexpr int64_t kMostTokens = 128;  // where neither the user nor the model says

// None: the file is not there.
Result<std::optional<generation::Settings>> SettingsOfFile(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text && text.error().code() == StatusCode::kNotFound) {
    return std::optional<generation::Settings>();
  }
  if (!text) return Fail(text.error());
  auto settings = generation::ParseSettings(*text);
  if (!settings) return Fail(settings.error().WithContext(path));
  return std::optional(*std::move(settings));
}

}  // namespace

Result<generation::Settings> SettingsOfFolder(const std::string& folder) {
  const std::string first = folder + "/generation_config.json";
  const std::string second = folder + "/config.json";
  MW_ASSIGN_OR_RETURN(std::optional<generation::Settings> found, SettingsOfFile(first));
  const std::string path = found ? first : second;
  if (!found || found->stops.empty() || !found->start) {
    MW_ASSIGN_OR_RETURN(std::optional<generation::Settings> model, SettingsOfFile(second));
    if (!model) model.emplace();
    if (!found) found = *model;
    if (found->stops.empty()) found->stops = model->stops;
    if (!found->start) found->start = model->start;
  }
  if (Status known = generation::CheckKnown(*found); !known.ok()) {
    return Fail(known.WithContext(path));
  }
  return *std::move(found);
}

Result<generation::Settings> SettingsOfJob(const ir::JobRequest& job, int64_t id) {
  generation::Settings settings;
  if (const auto folder = FolderWithTokensOfJob(job)) {
    MW_ASSIGN_OR_RETURN(settings, SettingsOfFolder(*folder));
  }
  if (const auto end = EndOfJobTexts(job, id)) settings.stops.insert(*end);
  return settings;
}

Result<int64_t> MostNewTokens(const GenerateArgs& args, const generation::Settings& settings,
                              int64_t prompt) {
  if (args.max_new_tokens) return *args.max_new_tokens;
  if (settings.max_new_tokens) return *settings.max_new_tokens;
  if (!settings.max_length) return kMostTokens;
  if (prompt < *settings.max_length) return *settings.max_length - prompt;
  return Fail(InvalidArgument(
      fmt::format("the prompt has {} tokens, and the model's generation_config.json has "
                  "\"max_length\" {}, prompt included: say --max-new-tokens",
                  prompt, *settings.max_length)));
}

generation::TextRules RulesOf(const GenerateArgs& args, const generation::Settings& settings) {
  generation::TextRules rules = settings.rules;
  if (args.min_new_tokens) rules.min_new_tokens = args.min_new_tokens;
  rules.no_repeat_ngram = args.no_repeat_ngram_size.value_or(rules.no_repeat_ngram);
  if (args.ignore_stops) rules.forced_eos.clear();
  return rules;
}

}  // namespace meshwright::cli
