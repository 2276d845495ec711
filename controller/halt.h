// Why a run ends before its job does, although nothing has failed: between two steps, behind a save
// of the state, or a snapshot of it where nothing is saved, so that no step is lost.
//
// Whoever asks for a halt says until when; what becomes of it then, and when the state could not be
// saved, is controller/core_halts.h's to say. Thread rule: values, pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "controller/driver.h"
#include "ir/job.h"

namespace meshwright::controller {

// In the order of their weight: one that is asked for takes the place of a later one.
enum class HaltFor : uint8_t {
  kCancel,   // the job ends
  kFailure,  // it has failed for good
  kPause,    // it waits until somebody resumes it
  kPreempt,  // it goes back to its place in the queue: another job needs its devices
  kDrain,    // it goes on elsewhere: a worker of it leaves
  kReturn,   // it goes on with the devices of its plan, which it had too few of
};

struct Halt {
  HaltFor what = HaltFor::kCancel;
  int64_t since_ms = 0;
  int64_t until_ms = 0;      // then it is not waited for any longer
  std::string why;           // for people
  bool behind_save = false;  // its mesh is released for it, and for nothing else
};

// What is said of the checkpoint that is saved for it.
SaveCause SaveCauseOf(HaltFor what);

// Whether a run of the job can be saved: it may go on after any time, and by itself.
bool CanSave(const ir::JobRequest& job);
// Whether a run of the job can be halted at all: saved, or kept in the memory of workers until the
// next one begins.
bool CanHalt(const ir::JobRequest& job);

}  // namespace meshwright::controller
