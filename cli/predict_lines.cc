#include "cli/predict_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"

namespace meshwright::cli {
namespace {

constexpr const char* kTextNames[] = {"text", "prompt"};

Result<std::vector<int32_t>> TokensOfLine(std::string_view line, const TextCodec& codec) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return Fail(InvalidArgument("is no JSON object"));
  for (const char* name : kTextNames) {
    const auto text = object.find(name);
    if (text == object.end() || !text->is_string()) continue;
    MW_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, codec.Encode(text->get<std::string>()));
    if (tokens.empty()) return Fail(InvalidArgument(fmt::format("\"{}\" has no token", name)));
    return tokens;
  }
  return Fail(InvalidArgument("has neither \"text\" nor \"prompt\", a text"));
}

}  // namespace

Result<bool> AreLinesOfTexts(const std::vector<std::string>& paths, const std::string& format) {
  if (!format.empty()) return format == "jsonl";
  const auto lines = std::count_if(
      paths.begin(), paths.end(), [](const std::string& path) { return path.ends_with(".jsonl"); });
  if (lines == 0) return false;
  if (lines == std::ssize(paths)) return true;
  return Fail(InvalidArgument(
      "--data: some files are .jsonl and some are not; ask about the ones and then the others"));
}

Result<std::vector<std::vector<int32_t>>> TokensOfLines(const std::vector<std::string>& paths,
                                                        const TextCodec& codec) {
  std::vector<std::vector<int32_t>> texts;
  for (const std::string& path : paths) {
    MW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
    std::string_view rest = bytes;
    for (int64_t number = 1; !rest.empty(); ++number) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      auto tokens = TokensOfLine(line, codec);
      if (!tokens) {
        return Fail(tokens.error().WithContext(fmt::format("{}: JSON at line {}", path, number)));
      }
      texts.push_back(*std::move(tokens));
    }
  }
  if (texts.empty()) return Fail(InvalidArgument(fmt::format("{} has no text", paths.front())));
  return texts;
}

bool IsPlainText(const std::vector<std::string>& paths, const std::string& format,
                 const std::string& format_of_job) {
  if (!format.empty()) return format == "text";
  return format_of_job != "bytes" &&
         std::all_of(paths.begin(), paths.end(),
                     [](const std::string& path) { return path.ends_with(".txt"); });
}

Result<std::vector<std::vector<int32_t>>> WindowsOfTexts(const std::vector<std::string>& paths,
                                                         const TextCodec& codec,
                                                         int64_t positions) {
  MW_CHECK(positions > 0) << "windows of " << positions << " positions";
  std::vector<int32_t> tokens;
  for (const std::string& path : paths) {
    MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    Result<std::vector<int32_t>> of_file = codec.Encode(text);
    if (!of_file) return Fail(of_file.error().WithContext(path));
    tokens.insert(tokens.end(), of_file->begin(), of_file->end());
  }
  if (tokens.empty()) return Fail(InvalidArgument(paths.front() + " has no text"));
  std::vector<std::vector<int32_t>> windows;
  for (int64_t first = 0; first < std::ssize(tokens); first += positions) {
    const int64_t last = std::min<int64_t>(first + positions, std::ssize(tokens));
    windows.emplace_back(tokens.begin() + first, tokens.begin() + last);
  }
  return windows;
}

}  // namespace meshwright::cli
