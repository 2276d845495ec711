// What may stand at the end of a command line, out of the parser's own table, and the scripts by
// which shells ask for it: `meshwright __complete WORD..` has a line for each, its meaning behind a
// tab, and ":files" where files may stand there, too.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/args.h"

namespace CLI {
class App;
}

namespace meshwright::cli {

// `words`: behind the name of the program; the last one is the one to complete, and may be empty.
Candidates CompleteIn(const CLI::App& app, const std::vector<std::string>& words);

// Keys of job files that `text` is the begin of, as "section.key="; behind "section.key=" the
// values of a key that has only some.
std::vector<Candidate> CompleteKey(const std::string& text);

// "bash", "zsh" or "fish".
std::string CompletionScript(const std::string& shell);

}  // namespace meshwright::cli
