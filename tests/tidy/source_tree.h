// SourceTree: the project's C++ files as text, for rules that read them.
//
// Rules see two forms of a file: as written, and as code, where comments and the insides of string
// and character literals are blanked out with line ends kept, so that words in prose do not count.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meshwright::tidy {

struct SourceFile {
  std::vector<std::string> lines;       // as written, without line ends
  std::vector<std::string> code_lines;  // same count; comments and literals blanked
};

struct Include {
  int line = 0;        // 1-based
  std::string target;  // what stands between the quotes or brackets
};

// Path from the root of the tree ("worker/agent.cc") to the file.
using SourceTree = std::map<std::string, SourceFile>;

SourceFile ParseSource(std::string_view text);

// Comments and the insides of literals (raw strings too) replaced by blanks. Digit separators
// (1'000) are not taken for literals.
std::string BlankCommentsAndLiterals(std::string_view text);

// Every .h and .cc file below `root`, without hidden folders and those named build, runs or
// third_party. Errors: kNotFound.
Result<SourceTree> LoadSourceTree(const std::string& root);

// A tree from texts, for tests of the rules.
SourceTree MakeTree(const std::map<std::string, std::string>& texts);

std::vector<Include> IncludesOf(const SourceFile& file);

// "collective" of "collective/cpu/tcp.cc"; "" for a file at the root.
std::string RoomOf(std::string_view path);
bool IsHeader(std::string_view path);
// A letter, a digit or '_'.
bool IsWordChar(char c);
// Whether `word` stands in `code` with no letter, digit or '_' directly around it.
bool ContainsWord(std::string_view code, std::string_view word);

}  // namespace meshwright::tidy
