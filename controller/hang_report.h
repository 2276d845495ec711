// HangReport: where every device of a job is, who waits for whom, and who is suspected.
//
// It is made of the marks that came with the last heartbeats (controller/stall_watch.h) and of the
// static programs (controller/diagnosis.h): nobody is asked, so that it is there while the job
// hangs, while a process is stopped and while a host is silent.
//
// The suspect is the first that is so: a worker that is silent; of those that all others wait for,
// one whose process is stopped; a circle; a collective or a message that has come for all and ends
// for none, which is the network between them; then who waits for nobody: at work, or stuck.
//
// Thread rule: a pure function, between steps of the core.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/core_state.h"

namespace meshwright::controller {

// Of a collective that a member is in.
struct HangCollective {
  std::string group;         // equal on all members
  int64_t call = 0;          // its number in the group, from 1, since the mesh began
  std::vector<int> members;  // that there are marks of
  std::vector<int> inside;   // they have entered it, and not left
  std::vector<int> missing;  // they have not come
};

struct HangRank {
  int rank = -1;
  std::string worker;
  int device = -1;
  bool known = false;  // there are marks of it; the rest is of them
  bool in_step = false;
  std::string program;
  int64_t step = -1;
  int64_t instruction = -1;
  std::string what;      // "RUN stage1/f of microbatch 3", "RECV from rank 0"; or its process
  int64_t since_ms = 0;  // at this instruction
  int64_t heard_ms = 0;  // ago
  int32_t pid = 0;       // of its process, on the worker's host; 0: not known
  std::string thread;    // "runs", "sleeps", "stopped", "in the disk", ...
  bool at_work = false;
  bool awaits_rows = false;
  std::vector<int> waits_for;
};

enum class HangCause : uint8_t {
  kNone,     // it moves
  kSilent,   // a worker is not heard
  kStopped,  // a process is stopped
  kCircle,   // ranks wait for each other
  kNetwork,  // all have come, and it ends for none
  kRows,     // data is read
  kDisk,     // in the kernel, for a disk
  kAtWork,   // it computes, and is waited for
  kStuck,    // it uses no processor and waits for nobody
};
const char* HangCauseName(HangCause cause);

struct HangReport {
  int64_t job = 0;
  std::string name;
  std::string state;    // of the job
  std::string message;  // why it is in it, where it does not run
  bool running = false;
  bool stalled = false;  // nothing has moved for longer than the rule allows
  int64_t still_ms = 0;
  int64_t limit_ms = 0;
  double usual_step_s = 0;
  std::vector<HangRank> ranks;  // by rank
  std::vector<HangCollective> collectives;
  HangCause cause = HangCause::kNone;
  std::vector<int> suspects;  // ranks
  int64_t waiters = 0;        // that wait for them, also through others
  std::string evidence;       // in a sentence
  std::string advice;         // what to do
};

HangReport HangOf(const JobEntry& job, const CoreState& core, Now now);

}  // namespace meshwright::controller
