// Ctrl-C as a question that a command asks: has it been pressed?
//
// The first press sets the flag and ends a read that waits; a second one before the flag was asked
// ends the process with 130, for a command may be stuck elsewhere.
//
// Thread rule: one InterruptFlag per process at a time (checked); Take from one thread.
#pragma once

namespace meshwright::cli {

class InterruptFlag {
 public:
  // Catches SIGINT, unless the process was started with it ignored.
  InterruptFlag();
  // Restores what was there before.
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

  // Whether it was pressed since the last call.
  bool Take();
  bool pressed() const;
};

}  // namespace meshwright::cli
