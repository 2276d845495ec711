// Programs of others that judge the files of deploy/: which are there, and what they say.
//
// With CI=true they have to be there: tools/apt-packages.txt and tools/install-python.sh bring
// them. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/subprocess.h"

namespace meshwright::testing {

bool InCi();

// "" when all of them are in PATH, /usr/sbin or the folder of tools/install-python.sh; else a
// sentence that names those that are not.
std::string Missing(const std::vector<std::string>& programs);
// Where a program is; its name where it is nowhere.
std::string PathOf(const std::string& program);

// Its exit status and both outputs, in one text.
struct Answer {
  bool ok = false;
  std::string text;
};
Answer Ask(std::vector<std::string> args, std::vector<std::pair<std::string, std::string>> env = {},
           int64_t timeout_ms = 60'000);

// The file below deploy/. A test fails where it is not there.
std::string DeployFile(const std::string& path);
std::string DeployPath(const std::string& path);

// The long options in a text ("--bind"), each once, in alphabetical order.
std::vector<std::string> OptionsIn(const std::string& text);
// Those of `text` that `meshwright COMMAND --help` does not have.
std::vector<std::string> UnknownOptions(const std::string& command, const std::string& text);

}  // namespace meshwright::testing

// Leaves a test that needs programs which are not there; in CI it fails.
#define MW_NEEDS(...)                                                               \
  if (const std::string mw_missing = ::meshwright::testing::Missing({__VA_ARGS__}); \
      !mw_missing.empty()) {                                                        \
    if (::meshwright::testing::InCi()) FAIL() << mw_missing;                        \
    GTEST_SKIP() << mw_missing;                                                     \
  }
