// Doctor: what is wrong with a machine for a worker or a controller, and what to do about it.
//
// Everything that it knows of the machine and the cluster comes in through Machine, so that a test
// makes machines of any kind. A check is ok, warns (it works, worse than it could) or fails (it
// does not work, or not for long), and says in a line what to mend.
//
// Thread rule: pure but for what the probes do.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/args.h"

namespace meshwright::cli {

enum class CheckLevel : uint8_t { kOk, kWarn, kFail };

struct Check {
  std::string name;  // "memory", "disk /var/lib/meshwright"
  CheckLevel level = CheckLevel::kOk;
  std::string text;  // what was found
  std::string mend;  // what to do; empty where it is ok
};

// A limit of this process; below 0: there is none.
struct ProcessLimit {
  int64_t soft = -1;
  int64_t hard = -1;
};

struct DiskSpace {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

// A library as dlopen finds it.
struct LibraryFacts {
  bool found = false;
  std::string version;  // as it says itself; empty: it does not
  std::string error;    // why it is not found
};

struct FileFacts {
  unsigned mode = 0;  // permission bits
  bool own = false;   // it is this user's, or root's
};

struct WorkerFacts {
  std::string name;
  std::string state;
  std::string address;  // of its data
  std::string version;
};

struct ClusterFacts {
  std::string version;  // of the controller
  int64_t skew_ms = 0;  // its clock against this one
  int64_t round_trip_ms = 0;
  bool has_clock = false;  // it said its time
  std::vector<WorkerFacts> workers;
};

struct Machine {
  std::function<std::optional<std::string>(const std::string& path)> read;
  std::function<int()> cores_online;
  std::function<int()> cores_allowed;
  std::function<ProcessLimit()> open_files;
  std::function<ProcessLimit()> locked_memory;
  std::function<Result<DiskSpace>(const std::string& path)> space;
  // MiB/s of a file that is written there and durable.
  std::function<Result<double>(const std::string& path)> write_speed;
  std::function<Result<std::string>(const std::string& host)> resolve;  // an address of it
  std::function<Status(const std::string& host_port)> dial;
  std::function<LibraryFacts(const std::string& name, const std::string& version_function)> library;
  std::function<std::optional<FileFacts>(const std::string& path)> file;
  std::function<std::string()> host_name;
  std::function<Result<ClusterFacts>()> cluster;
};

struct DoctorQuestion {
  std::string version;               // of this program
  std::string address;               // of the controller
  bool offline = false;              // nobody is asked
  std::vector<std::string> folders;  // that something is to be written to
  std::vector<std::string> secrets;  // files that others must not read
};

std::vector<Check> Examine(const Machine& machine, const DoctorQuestion& question);

// The worst of them.
CheckLevel WorstOf(const std::vector<Check>& checks);
// A line for each, and below what is not ok what to do.
std::string FormatChecks(const std::vector<Check>& checks);
std::string ChecksJson(const std::vector<Check>& checks);

// What `doctor` says here. Errors: the address is none.
Result<std::vector<Check>> ExamineHere(const DoctorArgs& args, const GlobalArgs& global);

// This machine, and the cluster at hand. timeout_ms: for a connection.
Machine ThisMachine(int64_t timeout_ms);

}  // namespace meshwright::cli
