// What comments say about the tree, and how they end.
#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "base/text.h"
#include "tests/tidy/rules.h"

namespace meshwright::tidy {
namespace {

// What stands behind the "//" of a line; "" without one.
std::string_view CommentOf(const SourceFile& file, size_t line) {
  const std::string_view text = file.lines[line];
  const std::string_view code = file.code_lines[line];
  for (size_t at = text.find("//"); at != text.npos; at = text.find("//", at + 1)) {
    const bool blank = Trim(code.substr(std::min(at, code.size()))).empty();
    const bool begins = at == 0 || text[at - 1] == ' ';
    if (blank && begins) return text.substr(at + 2);
  }
  return "";
}

bool IsWholeLine(const SourceFile& file, size_t line) {
  return Trim(file.lines[line]).starts_with("//") && Trim(file.code_lines[line]).empty();
}

// Text without what stands "in quotes": examples of other trees and of messages.
std::string WithoutQuotes(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (const char c : text) {
    quoted = quoted != (c == '"');
    out += quoted ? ' ' : c;
  }
  return out;
}

bool IsSourceName(std::string_view word) {
  static const std::array<std::string_view, 7> endings = {".h",  ".cc",    ".cu",   ".cuh",
                                                          ".md", ".cmake", ".proto"};
  for (const std::string_view ending : endings) {
    if (word.size() > ending.size() && word.ends_with(ending)) return true;
  }
  return false;
}

// Names of files of the tree in a comment: "planner/lower.cc", "core.h". Patterns are left out.
std::vector<std::string> FilesNamed(std::string_view comment) {
  std::vector<std::string> names;
  const std::string text = WithoutQuotes(comment) + " ";
  std::string word;
  for (const char c : text) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter || std::string_view("_-./*{}").find(c) != std::string_view::npos) {
      word += c;
      continue;
    }
    while (!word.empty() && word.back() == '.') word.pop_back();
    if (IsSourceName(word) && word.find_first_of("*{") == std::string::npos) names.push_back(word);
    word.clear();
  }
  return names;
}

// A file by its path from the root, from the folder of who names it, or by its name alone.
bool IsThere(const std::string& name, const std::string& path, const std::set<std::string>& files) {
  if (files.count(name) != 0) return true;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  if (files.count(folder + name) != 0) return true;
  for (const std::string& file : files) {
    if (file.ends_with("/" + name)) return true;
  }
  return false;
}

// A line of dashes, or a title between some.
bool IsRuler(std::string_view comment) { return Trim(comment).starts_with("---"); }

bool EndsASentence(std::string_view comment) {
  if (comment.starts_with("   ")) return true;  // a command, a formula or a table
  comment = Trim(comment);
  if (comment.starts_with("clang-format o")) return true;  // "off" and "on", for the formatter
  // A word alone is a title: "core_mesh.cc", "ncclResult_t".
  if (comment.find(' ') == comment.npos) return true;
  return IsRuler(comment) ||
         std::string_view(".:;?!)]}>`'\"").find(comment.back()) != std::string_view::npos;
}

}  // namespace

Violations CheckCitations(const SourceTree& tree, const std::set<std::string>& files) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    if (path.starts_with("tests/tidy/")) continue;  // has examples of all that is wrong
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string_view comment = CommentOf(file, i);
      for (const std::string& name : FilesNamed(comment)) {
        if (IsThere(name, path, files)) continue;
        violations.push_back(
            fmt::format("{}:{}: cites {}, which is not in the tree", path, i + 1, name));
      }
      if (comment.find("design:") == comment.npos && comment.find("ource: design") == comment.npos)
        continue;
      violations.push_back(
          fmt::format("{}:{}: cites a design that is not in the tree; say it here, or cite an ADR",
                      path, i + 1));
    }
  }
  return violations;
}

Violations CheckCommentsEnd(const SourceTree& tree) {
  Violations violations;
  for (const auto& [path, file] : tree) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      if (!IsWholeLine(file, i)) continue;
      if (i + 1 < file.lines.size() && IsWholeLine(file, i + 1)) continue;
      const std::string_view comment = CommentOf(file, i);
      if (EndsASentence(comment)) continue;
      violations.push_back(fmt::format("{}:{}: a comment is sentences, this one has no end: {}",
                                       path, i + 1, Trim(comment)));
    }
  }
  return violations;
}

}  // namespace meshwright::tidy
