// docs/cli.md and the commands themselves: what one can say, people can read of.
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "cli/args.h"

namespace meshwright::cli {
namespace {

struct CommandOption {
  std::string command;  // "worker drain"; "": all
  std::string option;   // "--deadline-s"
};

// Of the man page, which is made of the same table as --help.
std::vector<CommandOption> AllOptions() {
  std::string page;
  for (const char c : ParseArgs({"__man"}).text) {
    if (c != '\\') page += c;  // "\fB\-\-option\fR"
  }
  static const std::regex kHead("^fB([^\n]*?)fR");
  static const std::regex kName("--[a-z][a-z0-9-]*");
  std::vector<CommandOption> all;
  std::string command;
  std::string before;
  for (const std::string& line : Split(page, '\n')) {
    if (line.starts_with(".SH")) command.clear();
    if (line.starts_with(".SS \"meshwright ")) {
      command = line.substr(16, line.rfind('"') - 16);
    }
    std::smatch head;
    if (before == ".TP" && std::regex_search(line, head, kHead)) {
      const std::string names = head[1];
      for (std::sregex_iterator it(names.begin(), names.end(), kName), end; it != end; ++it) {
        if (it->str() != "--help") all.push_back({command, it->str()});
      }
    }
    before = line;
  }
  return all;
}

// In a line of the manual that names the command.
bool IsIn(const std::vector<std::string>& manual, const CommandOption& each) {
  const std::string command = each.command.substr(0, each.command.find(' '));
  const std::regex option(each.option + "(?![a-z0-9-])");
  const std::regex name("`[^`]*\\b" + command + "\\b");
  for (const std::string& line : manual) {
    if (line.find(each.option) == std::string::npos) continue;
    if (std::regex_search(line, option) && (command.empty() || std::regex_search(line, name))) {
      return true;
    }
  }
  return false;
}

TEST(OptionsInDocs, EveryOptionIsInTheManualBesideItsCommand) {
  const auto manual = Split(ReadFile(MESHWRIGHT_SOURCE_DIR "/docs/cli.md").value(), '\n');
  const std::vector<CommandOption> all = AllOptions();
  EXPECT_GT(all.size(), 200U) << "the man page is not read any more";
  for (const CommandOption& each : all) {
    EXPECT_TRUE(IsIn(manual, each))
        << "docs/cli.md says nothing of " << each.option << " of `" << each.command << "`";
  }
  EXPECT_FALSE(IsIn(manual, {"submit", "--such-an-option"}));
}

}  // namespace
}  // namespace meshwright::cli
