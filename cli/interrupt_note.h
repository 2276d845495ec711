// What a person reads who presses Ctrl-C while a command only looks on: the work itself goes on
// elsewhere.
//
// The handler writes a text made beforehand and ends the process at once with 128 + the signal's
// number: a command that follows a job has nothing to tidy up, and waits in a call that no signal
// ends. Output must be flushed before the next wait, for buffers are lost.
//
// Thread rule: one InterruptNote per process at a time (checked).
#pragma once

#include <string>

namespace meshwright::cli {

class InterruptNote {
 public:
  // Catches SIGINT and SIGTERM, unless the process was started with them ignored.
  explicit InterruptNote(const std::string& text);
  // Restores what was there before.
  ~InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;
};

}  // namespace meshwright::cli
