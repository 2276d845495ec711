// Subprocess: one child process: start, wait with a deadline, end it, collect its output.
//
// The child gets default signal handling, no descriptors of ours beyond stdin (/dev/null), stdout,
// stderr and those it is told to keep, and may be tied to our life (death_signal).
//
// Thread rule: one thread at a time per object. Ownership: an object that dies kills and reaps its
// child.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright {

// Where a child's stdout or stderr goes.
struct OutputTo {
  enum class Kind : uint8_t { kInherit, kFile, kPipe, kDiscard };
  Kind kind = Kind::kInherit;
  std::string path;  // kFile: appended to, created when absent

  static OutputTo Inherit() { return {}; }
  static OutputTo File(std::string path) { return {Kind::kFile, std::move(path)}; }
  static OutputTo Pipe() { return {Kind::kPipe, {}}; }
  static OutputTo Discard() { return {Kind::kDiscard, {}}; }
};

struct SubprocessOptions {
  // args[0] is the program; without a slash it is looked up in PATH.
  std::vector<std::string> args;
  // Added to our environment, replacing equal names.
  std::vector<std::pair<std::string, std::string>> env;
  std::string directory;  // empty: ours
  OutputTo stdout_to;
  OutputTo stderr_to;
  // Sent to the child when the thread that started it ends (Linux ties it to the thread, so start
  // from one that lives as long as the process); 0: the child outlives us.
  int death_signal = 0;
  // Descriptors that the child has, too, under the same numbers.
  std::vector<int> keep_fds = {};
};

struct ExitStatus {
  int code = 0;    // exit code, 0 when ended by a signal
  int signal = 0;  // signal that ended it, 0 when it exited

  bool ok() const { return code == 0 && signal == 0; }
  // "exited with 3", "killed by signal 9 (Killed)".
  std::string ToString() const;
};

class Subprocess {
 public:
  // Errors: kNotFound, kPermissionDenied (program, directory or output file), kInvalidArgument (no
  // args), kResourceExhausted. The message names the program.
  static Result<std::unique_ptr<Subprocess>> Start(const SubprocessOptions& options);
  // Kills the child with SIGKILL when it still runs.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  // Read ends of kPipe outputs, handed over once; not valid otherwise.
  UniqueFd TakeStdout() { return std::move(stdout_); }
  UniqueFd TakeStderr() { return std::move(stderr_); }

  // The exit status. Errors: kDeadlineExceeded while it runs. May be called again.
  Result<ExitStatus> Wait(int64_t timeout_ms);
  bool Running();
  // Errors: kNotFound when it has ended.
  Status Signal(int number);
  // SIGTERM; SIGKILL after `grace_ms`. Returns how it ended.
  Result<ExitStatus> Terminate(int64_t grace_ms);

 private:
  Subprocess(pid_t pid, UniqueFd pid_fd) : pid_(pid), pid_fd_(std::move(pid_fd)) {}
  Status Reap();

  const pid_t pid_;
  UniqueFd pid_fd_;  // readable once the child has ended
  UniqueFd stdout_;
  UniqueFd stderr_;
  std::optional<ExitStatus> exit_;
};

struct ProcessOutput {
  ExitStatus exit;
  std::string stdout_text;
  std::string stderr_text;
};

// Runs a program to its end with both outputs collected (stdout_to and stderr_to are ignored).
// Errors: as Start; kDeadlineExceeded after killing it.
Result<ProcessOutput> RunProcess(SubprocessOptions options, int64_t timeout_ms);

}  // namespace meshwright
