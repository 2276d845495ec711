#include "tests/tidy/source_tree.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"

namespace meshwright::tidy {
namespace {

// Walks over one text and blanks as it goes.
class Blanker {
 public:
  explicit Blanker(std::string_view text) : out_(text) {}

  std::string Run() {
    while (at_ < out_.size()) {
      if (StartsWith("//")) {
        BlankUntil("\n", false);
      } else if (StartsWith("/*")) {
        BlankUntil("*/", true);
      } else if (StartsWith("R\"") && !(at_ > 0 && IsWordChar(out_[at_ - 1]))) {
        BlankRawString();
      } else if (out_[at_] == '"' && !InIncludeLine()) {
        BlankQuoted('"');
      } else if (out_[at_] == '\'' && !(at_ > 0 && IsWordChar(out_[at_ - 1]))) {
        BlankQuoted('\'');
      } else {
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  bool StartsWith(std::string_view token) const {
    return out_.compare(at_, token.size(), token) == 0;
  }

  bool InIncludeLine() const {
    const size_t begin = out_.rfind('\n', at_) + 1;  // npos + 1 == 0
    const std::string_view line = Trim(std::string_view(out_).substr(begin, at_ - begin));
    return !line.empty() && line[0] == '#' && Trim(line.substr(1)).rfind("include", 0) == 0;
  }

  void BlankTo(size_t end) {
    for (; at_ < end; ++at_) {
      if (out_[at_] != '\n') out_[at_] = ' ';
    }
  }

  // Blanks to `token`; over it too when `with_token`.
  void BlankUntil(std::string_view token, bool with_token) {
    const size_t found = out_.find(token, at_ + 2);
    if (found == std::string::npos) return BlankTo(out_.size());
    BlankTo(found + (with_token ? token.size() : 0));
  }

  void BlankRawString() {
    const size_t open = out_.find('(', at_);
    if (open == std::string::npos) return BlankTo(out_.size());
    BlankUntil(")" + out_.substr(at_ + 2, open - at_ - 2) + "\"", true);
  }

  void BlankQuoted(char quote) {
    size_t end = at_ + 1;
    while (end < out_.size() && out_[end] != quote && out_[end] != '\n') {
      end += out_[end] == '\\' ? 2 : 1;
    }
    BlankTo(std::min(end + 1, out_.size()));
  }

  std::string out_;
  size_t at_ = 0;
};

bool IsSkippedFolder(const std::string& name) {
  return name[0] == '.' || name == "build" || name == "runs" || name == "third_party";
}

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines = Split(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string BlankCommentsAndLiterals(std::string_view text) { return Blanker(text).Run(); }

SourceFile ParseSource(std::string_view text) {
  return {Lines(text), Lines(BlankCommentsAndLiterals(text))};
}

Result<SourceTree> LoadSourceTree(const std::string& root) {
  namespace fs = std::filesystem;
  SourceTree tree;
  std::error_code error;
  fs::recursive_directory_iterator entries(root, error);
  if (error) return Fail(NotFound("source tree " + root + ": " + error.message()));
  for (; entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    const fs::path& path = entries->path();
    if (entries->is_directory() && IsSkippedFolder(path.filename().string())) {
      entries.disable_recursion_pending();
    }
    static const std::set<fs::path> known = {".h", ".cc", ".cu", ".cuh"};
    if (known.count(path.extension()) == 0) continue;
    MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string()));
    tree[fs::relative(path, root).string()] = ParseSource(text);
  }
  return tree;
}

SourceTree MakeTree(const std::map<std::string, std::string>& texts) {
  SourceTree tree;
  for (const auto& [path, text] : texts) tree[path] = ParseSource(text);
  return tree;
}

std::vector<Include> IncludesOf(const SourceFile& file) {
  std::vector<Include> includes;
  for (size_t i = 0; i < file.code_lines.size(); ++i) {
    const std::string_view line = Trim(file.code_lines[i]);
    if (line.empty() || line[0] != '#') continue;
    const std::string_view directive = Trim(line.substr(1));
    if (directive.rfind("include", 0) != 0) continue;
    const size_t open = directive.find_first_of("<\"");
    const size_t close = directive.find_last_of(">\"");
    if (open == std::string_view::npos || close <= open) continue;
    includes.push_back(
        {static_cast<int>(i) + 1, std::string(directive.substr(open + 1, close - open - 1))});
  }
  return includes;
}

std::string RoomOf(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string() : std::string(path.substr(0, slash));
}

bool IsHeader(std::string_view path) { return path.ends_with(".h") || path.ends_with(".cuh"); }

bool ContainsWord(std::string_view code, std::string_view word) {
  for (size_t at = code.find(word); at != std::string_view::npos; at = code.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool open_before = at > 0 && IsWordChar(code[at - 1]) && IsWordChar(word.front());
    const bool open_after = end < code.size() && IsWordChar(code[end]) && IsWordChar(word.back());
    if (!open_before && !open_after) return true;
  }
  return false;
}

}  // namespace meshwright::tidy
