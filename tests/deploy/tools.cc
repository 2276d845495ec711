#include "tests/deploy/tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>

#include "base/file.h"
#include "base/text.h"

namespace meshwright::testing {
namespace {

std::vector<std::string> Folders() {
  const char* path = std::getenv("PATH");
  std::vector<std::string> folders = Split(path == nullptr ? "/usr/bin:/bin" : path, ':');
  folders.emplace_back("/usr/sbin");
  folders.emplace_back(MESHWRIGHT_SOURCE_DIR "/build/python/bin");
  return folders;
}

}  // namespace

bool InCi() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && std::string(ci) == "true";
}

std::string PathOf(const std::string& program) {
  for (const std::string& folder : Folders()) {
    const std::string path = folder + "/" + program;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return program;
}

std::string Missing(const std::vector<std::string>& programs) {
  std::vector<std::string> missing;
  for (const std::string& program : programs) {
    if (PathOf(program) == program) missing.push_back(program);
  }
  if (missing.empty()) return "";
  return fmt::format("not installed: {} (CI=true tools/install-deps.sh, tools/install-python.sh)",
                     fmt::join(missing, ", "));
}

Answer Ask(std::vector<std::string> args, std::vector<std::pair<std::string, std::string>> env,
           int64_t timeout_ms) {
  SubprocessOptions options;
  args[0] = PathOf(args[0]);
  options.args = std::move(args);
  options.env = std::move(env);
  options.death_signal = SIGKILL;
  const Result<ProcessOutput> output = RunProcess(options, timeout_ms);
  if (!output.has_value()) return {false, output.error().ToString()};
  return {output->exit.ok(), output->stdout_text + output->stderr_text};
}

std::string DeployPath(const std::string& path) {
  return std::string(MESHWRIGHT_SOURCE_DIR) + "/deploy/" + path;
}

std::string DeployFile(const std::string& path) {
  Result<std::string> text = ReadFile(DeployPath(path));
  EXPECT_TRUE(text.has_value()) << text.error();
  return text.value_or("");
}

std::vector<std::string> OptionsIn(const std::string& text) {
  static const std::regex option("(^|[\\s\"'=(])(--[a-z][a-z-]+)");
  std::set<std::string> options;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), option);
       it != std::sregex_iterator(); ++it) {
    options.insert((*it)[2]);
  }
  return {options.begin(), options.end()};
}

std::vector<std::string> UnknownOptions(const std::string& command, const std::string& text) {
  static const std::set<std::string> of_all = {"--address", "--token-file", "--log-level",
                                               "--color", "--help"};
  const Answer help = Ask({MESHWRIGHT_BINARY, command, "--help"});
  EXPECT_TRUE(help.ok) << help.text;
  const std::vector<std::string> known = OptionsIn(help.text);
  std::vector<std::string> unknown;
  for (const std::string& option : OptionsIn(text)) {
    if (of_all.count(option) == 0 && !std::binary_search(known.begin(), known.end(), option)) {
      unknown.push_back(option);
    }
  }
  return unknown;
}

}  // namespace meshwright::testing
