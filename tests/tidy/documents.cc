// What documents say about the tree.
#include <filesystem>

#include "base/text.h"
#include "tests/tidy/rules.h"

namespace meshwright::tidy {
namespace {

constexpr std::string_view kPathLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./*{},";

bool LooksLikePath(std::string_view text) {
  if (text.empty() || text.front() == '/' || text.front() == '-' || text.front() == '.')
    return false;
  if (text.find_first_not_of(kPathLetters) != std::string_view::npos) return false;
  if (text.find('/') != std::string_view::npos) return true;
  const std::string extension = std::filesystem::path(text).extension().string();
  static const std::set<std::string> known = {".cc", ".cu",    ".cuh", ".h",
                                              ".md", ".cmake", ".sh",  ".proto"};
  return known.count(extension) != 0;
}

// "a.{h,cc}" -> {"a.h", "a.cc"}; one pair of braces.
std::vector<std::string> ExpandBraces(const std::string& text) {
  const size_t open = text.find('{');
  const size_t close = text.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {text};
  std::vector<std::string> paths;
  for (const std::string& choice : Split(text.substr(open + 1, close - open - 1), ',')) {
    paths.push_back(text.substr(0, open) + choice + text.substr(close + 1));
  }
  return paths;
}

// Whether something exists at `path`, which may end in a pattern with '*'.
bool Exists(const std::string& root, const std::string& path) {
  namespace fs = std::filesystem;
  const size_t star = path.find('*');
  if (star == std::string::npos) return fs::exists(fs::path(root) / path);
  const size_t slash = path.rfind('/', star);
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash);
  const std::string start =
      path.substr(folder.empty() ? 0 : slash + 1, star - (folder.empty() ? 0 : slash + 1));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(root) / folder, error)) {
    if (entry.path().filename().string().rfind(start, 0) == 0) return true;
  }
  return false;
}

// Texts between `open` and `close` on one line, with what stands before them ignored.
void Collect(std::string_view line, std::string_view open, std::string_view close,
             std::vector<std::string>& out) {
  for (size_t at = line.find(open); at != std::string_view::npos;) {
    const size_t begin = at + open.size();
    const size_t end = line.find(close, begin);
    if (end == std::string_view::npos) return;
    out.emplace_back(line.substr(begin, end - begin));
    at = line.find(open, end + close.size());
  }
}

}  // namespace

Violations CheckMentionedPaths(const std::string& document, const std::string& root) {
  Violations violations;
  bool in_block = false;
  const std::vector<std::string> lines = Split(document, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].rfind("```", 0) == 0) in_block = !in_block;
    if (in_block) continue;  // commands and output, not mentions
    std::vector<std::string> mentions;
    Collect(lines[i], "`", "`", mentions);
    for (const std::string& mention : mentions) {
      if (!LooksLikePath(mention)) continue;
      for (const std::string& path : ExpandBraces(mention)) {
        if (Exists(root, path)) continue;
        violations.push_back("line " + std::to_string(i + 1) + ": " + path + " does not exist");
      }
    }
  }
  return violations;
}

}  // namespace meshwright::tidy
