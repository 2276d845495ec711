// What the processes of a test hold, and what they leave behind: found by looking at /proc, not by
// trusting exit codes.
//
// This process adopts the orphans of its children (PR_SET_CHILD_SUBREAPER), so daemons that `up`
// started are its descendants too. Only descendants and what they were seen to hold are looked at,
// so tests may run side by side.
//
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace meshwright::testing {

// Bound for what must happen "in seconds" on a loaded machine of two cores.
inline constexpr int64_t kSoonMs = 10'000;

// True once `condition` holds; false when `timeout_ms` came first.
bool WaitUntil(const std::function<bool()>& condition, int64_t timeout_ms);

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  bool zombie = false;
  std::string name;
};
// Children, their children, and so on, ended but unreaped ones included.
std::vector<ProcessEntry> Descendants();

struct Holdings {
  std::set<std::string> listening;      // "tcp 127.0.0.1:7700", "unix /path"
  std::set<std::string> connections;    // "127.0.0.1:50000 -> 127.0.0.1:7700", not listening
  std::set<std::string> shared_memory;  // "memfd:name inode", open or mapped
};
// Empty when there is no such process.
Holdings HoldingsOf(pid_t pid);

// Of a worker with its executors, together; without the record of each executor, which is there
// with or without a mesh.
Holdings HoldingsOfWorker(pid_t pid);

class Leftovers {
 public:
  Leftovers();
  // Ends the descendants that a failed test left.
  ~Leftovers();
  Leftovers(const Leftovers&) = delete;
  Leftovers& operator=(const Leftovers&) = delete;

  // Remembers the sockets and the shared memory that descendants hold now. Call it while they work.
  void Note();
  size_t noted() const { return noted_.size(); }

  // Waits until no descendant lives, nobody has a noted socket or memory and /dev/shm has no new
  // name with the pid of this process or of a noted descendant in it; others are strangers'. "", or
  // a line for each thing that is left after `timeout_ms`.
  // REQUIRES: no live Subprocess object; unreaped children are reaped here.
  std::string Find(int64_t timeout_ms = 5'000);

 private:
  std::string Look();

  std::set<std::string> shm_before_;
  std::set<std::string> noted_;
  std::set<std::string> pids_;  // our own and those of the noted descendants
};

}  // namespace meshwright::testing
