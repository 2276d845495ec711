// The keeper of a daemon: a small parent that starts it again when it dies.
//
// `up` starts each of its processes under one, in a hidden mode of this binary ("keep PROGRAM
// ARGS..."), for no service manager looks after them. The daemon's readiness and its start are
// those of its first run, and so is its refusal: one that exits with an error within its first
// seconds was given something wrong, and its keeper ends with its exit code. SIGTERM and SIGINT are
// passed on; a daemon that exits with 0 is not started again. A daemon never outlives its keeper.
//
// Thread rule: main thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/subprocess.h"

namespace meshwright::cli {

inline constexpr const char* kKeepMode = "keep";

// When a daemon that ended is started again.
class RestartPolicy {
 public:
  // After so many milliseconds; nothing: it stays away. lived_ms: of this run.
  std::optional<int64_t> Ended(const ExitStatus& exit, int64_t lived_ms);

 private:
  bool first_ = true;
  int64_t delay_ms_ = 0;  // of the next start that is soon after the last one
};

struct KeptCommand {
  std::vector<std::string> args;        // the program first
  std::vector<std::string> first_args;  // behind them, for the first run
  std::vector<int> first_fds;           // that these name
};
// Of the arguments behind the program's name; nothing: this is no such command.
std::optional<KeptCommand> ParseKeep(const std::vector<std::string>& args);

// The exit code, when the arguments ask for that mode.
std::optional<int> RunIfKeeper(const std::vector<std::string>& args);

}  // namespace meshwright::cli
