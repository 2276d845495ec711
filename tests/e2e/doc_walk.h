// A walk of the documentation: the console blocks of a section, and what runs them on hosts.
//
//   head$ meshwright status          a command of the host "head", by bash, in its own home
//   ... READY ...                    a line of its output; "..." stands for anything
//   one$ meshwright worker ... &     one that stays
//   head$ cat > job.toml <<END       a command of several lines, the others behind "> "
//   > [model]
//   > END
//   one$ scp head:FILE FILE          a file of another host's home
//   two# poweroff -f                 what ran there is killed
//
// Thread rule: one thread, the one that made the hosts.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/subprocess.h"
#include "tests/e2e/net_hosts.h"

namespace meshwright::testing {

struct WalkStep {
  int line = 0;  // of the page
  std::string host;
  std::string command;
  bool stays = false;
  std::vector<std::string> output;
};

// The steps of the section with this heading ("## Name"), in their order. Errors: kNotFound: no
// such section, or none that has steps; kInvalidArgument: a line before the first command.
Result<std::vector<WalkStep>> WalkOf(const std::string& page, const std::string& heading);

// Whether the text is the pattern, in which "..." stands for anything.
bool FitsPattern(const std::string& pattern, const std::string& text);

struct WalkOptions {
  std::string dir;                                           // homes of hosts and logs are below
  std::map<std::string, int> hosts;                          // by the names of prompts
  std::vector<std::pair<std::string, std::string>> replace;  // in commands and output
  std::vector<std::pair<std::string, std::string>> env;
  int64_t patience_ms = 120'000;  // for one command
};

class DocWalk {
 public:
  DocWalk(const NetHosts& net, WalkOptions options);

  // Errors: kFailedPrecondition with page line, command and output: it failed, or a line of its
  // output is missing.
  Status Take(const WalkStep& step);

  // What stays is asked to end, the newest first. Errors: kFailedPrecondition: one that did not end
  // well, with its log.
  Status End();

 private:
  struct Staying {
    std::string host;
    std::string log;
    std::unique_ptr<Subprocess> process;
  };

  SubprocessOptions OptionsOf(const WalkStep& step, const std::string& command) const;
  std::string Replaced(std::string text) const;
  Status Start(const WalkStep& step, const std::string& command);
  Status PowerOff(const std::string& host);
  Status Copy(const WalkStep& step);
  Status CheckOutput(const WalkStep& step, const ProcessOutput& run) const;

  const NetHosts& net_;
  const WalkOptions options_;
  std::vector<Staying> staying_;
};

}  // namespace meshwright::testing
