// Starting a background process of this binary and learning when it is ready.
//
// The daemon gets its own session, so that Ctrl-C in the terminal and the end of the starter leave
// it alone; stdout and stderr go to a log file. Readiness is a line on a pipe: the daemon's
// --ready-fd. A daemon that dies closes the pipe, so a failed start is noticed at once and
// explained with the end of its log.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::cli {

struct Daemon {
  std::string name;
  std::string log_path;
  pid_t pid = 0;
  UniqueFd ready;  // read end
};

struct DaemonSpec {
  std::string name;
  std::string log_path;
  std::vector<std::string> args;  // after the binary's name; "--ready-fd N" is added
};

// Errors: kNotFound, kPermissionDenied, kResourceExhausted.
Result<Daemon> StartDaemon(const DaemonSpec& spec);

// The line that the daemon announces. Errors: kFailedPrecondition when it ended instead (with the
// end of its log), kDeadlineExceeded.
Result<std::string> WaitReady(Daemon& daemon, int64_t timeout_ms);

// Writes `line` and a line end to a descriptor given by --ready-fd and closes it; does nothing for
// -1.
void AnnounceReady(int ready_fd, const std::string& line);

// The last lines of a file, at most `count`; "" when it cannot be read.
std::string LastLines(const std::string& path, int count);

}  // namespace meshwright::cli
