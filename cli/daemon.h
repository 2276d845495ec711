// Starting a background process of this binary and learning when it is ready.
//
// The daemon gets its own session, so that Ctrl-C in the terminal and the end of the starter leave
// it alone; stdout and stderr go to a log file. Readiness is a line on a pipe: the daemon's
// --ready-fd. A daemon that dies closes the pipe, so a failed start is noticed at once and
// explained with the end of its log. A daemon does nothing before its starter, having noted its pid
// on disk, lets it go through a second pipe, the daemon's --start-fd; it ends when the starter dies
// first. So there is no moment in which a process runs that nobody could find again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::cli {

struct Daemon {
  std::string name;
  std::string log_path;
  pid_t pid = 0;
  UniqueFd ready;               // read end
  UniqueFd start;               // write end; see LetGo
  int64_t log_begin_bytes = 0;  // where this start begins in the log
};

struct DaemonSpec {
  std::string name;
  std::string log_path;
  std::vector<std::string> args;  // after the binary's name; both descriptors are added
  std::string binary = {};        // empty: this one
  bool kept = false;              // under a keeper (cli/keeper.h), whose pid it is
};

// The path of this binary. Errors: those of the system.
Result<std::string> OwnBinary();

// Starts a process that waits for LetGo. Errors: kNotFound, kPermissionDenied, kResourceExhausted
// naming the log file or the binary.
Result<Daemon> StartDaemon(const DaemonSpec& spec);
void LetGo(Daemon& daemon);

struct ReadyWait {
  Deadline deadline;
  int64_t timeout_ms = 0;             // the whole patience, for the message
  std::function<bool()> interrupted;  // asked every 50 ms
};
// The line that the daemon announces. Errors: kFailedPrecondition when it ended instead (with the
// end of its log), kDeadlineExceeded, kCancelled.
Result<std::string> WaitReady(Daemon& daemon, const ReadyWait& wait);

// In the daemon: waits until the starter lets go; at once for -1. Errors: kFailedPrecondition when
// the starter ended before that.
Status AwaitStart(int start_fd);

// Writes `line` and a line end to a descriptor given by --ready-fd and closes it; does nothing for
// -1.
void AnnounceReady(int ready_fd, const std::string& line);

// The last lines of a file, at most `count` and none before `begin_bytes`; "" when it cannot be
// read.
std::string LastLines(const std::string& path, int count, int64_t begin_bytes = 0);
// "<name> ended <when>; the end of <log>:" and the last lines of this start.
Status EndedEarly(const Daemon& daemon, const std::string& when);

}  // namespace meshwright::cli
