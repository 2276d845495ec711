// What the kernel says of a process and of a thread: what it does, and the processor time that it
// has had.
//
// Thread rule: pure functions of the machine's state. Source: proc(5), /proc/PID/stat.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace meshwright::worker {

struct ProcessState {
  std::string state;  // "R" runs or would, "S" sleeps, "D" in a device, "T" stopped; empty: unknown
  int64_t cpu_ms = 0;  // of a process: of all its threads
  friend bool operator==(const ProcessState&, const ProcessState&) = default;
};

// Of a line of /proc/PID/stat; unknown where it is none.
ProcessState ParseProcessStat(std::string_view line, int64_t ticks_per_s);

// Unknown where there is none.
ProcessState ReadProcess(pid_t process);
ProcessState ReadThread(pid_t process, pid_t thread);

}  // namespace meshwright::worker
