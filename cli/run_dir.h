// The folder of a cluster started by `up`: which processes belong to it, where it listens. `down`
// and a second `up` read it.
//
//   cluster.txt   lines "process <name> <pid> <start ticks>", "address host:port", "metrics
//   host:port" <name>.log    stderr of a process
//
// A pid is trusted only together with its start time, so a stale file never ends a stranger.
// Thread rule: one process at a time changes the folder, the one that holds LockRunDir's lock.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace meshwright::cli {

struct ClusterProcess {
  std::string name;
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat
  friend bool operator==(const ClusterProcess&, const ClusterProcess&) = default;
};

struct ClusterState {
  std::vector<ClusterProcess> processes;
  std::string address;
  std::string metrics_address;
  friend bool operator==(const ClusterState&, const ClusterState&) = default;
};

std::string FormatCluster(const ClusterState& state);
// Errors: kDataLoss naming the line.
Result<ClusterState> ParseCluster(std::string_view text);

std::string LockPath(const std::string& run_dir);
// The right to change the folder, until the descriptor is closed or the process ends. The lock
// file, up.lock, stays. Errors: when another `up` or `down` has it kAlreadyExists at once without
// a timeout, kDeadlineExceeded after it; those of opening it.
Result<UniqueFd> LockRunDir(const std::string& run_dir, int64_t timeout_ms);
// `up` says in its lock that it starts the cluster; `down` tells that process to end. REQUIRES:
// `lock` is LockRunDir's. Errors: those of writing.
Status NoteStarter(const UniqueFd& lock);
// The process that has the lock and starts a cluster, told to end; none: nobody does.
std::optional<pid_t> EndStarter(const std::string& run_dir);

std::string ClusterFile(const std::string& run_dir);
// Errors: kNotFound when nothing was started there; kDataLoss naming the file and the line.
Result<ClusterState> LoadCluster(const std::string& run_dir);
Status SaveCluster(const std::string& run_dir, const ClusterState& state);

// 0 when the process is gone (or only waits to be reaped).
uint64_t StartTicks(pid_t pid);
bool IsAlive(const ClusterProcess& process);

// SIGTERM to all, then SIGKILL to those that are still there after timeout_ms; returns when all are
// gone. `report` gets one line per process. Errors: kDeadlineExceeded naming a process that even
// SIGKILL does not end.
Status StopProcesses(const std::vector<ClusterProcess>& processes, int64_t timeout_ms,
                     const std::function<void(const std::string&)>& report);

}  // namespace meshwright::cli
