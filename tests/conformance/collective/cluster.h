// Small clusters for tests: every process of the mesh is either a thread with its own fabric and
// listener, or a forked operating-system process that can be killed. One body runs in each. The
// ranks are CPUs, or emulated GPUs that meet in an emulated NCCL (threads only), or with
// $MESHWRIGHT_TEST_GPU=machine those of the machine that meet in its NCCL; bodies have their
// data on the host in either case (placed_fabric.h).
//
// Thread rule: a test uses one cluster at a time and forks only while it has no threads.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "collective/communicator.h"

namespace meshwright::collective {

struct ClusterSpec {
  std::vector<int> process_of_rank;  // process_of_rank[rank], processes are 0-based
  bool nccl = false;                 // emulated GPUs
  Transport transport = Transport::kAuto;
  bool tls = false;  // each process with a certificate of its own
  int64_t operation_timeout_ms = 30'000;
  int64_t connect_timeout_ms = 20'000;
  // Changes the options of one process before its fabric is made.
  std::function<void(int process, FabricOptions& options)> adjust = {};
  // Forked clusters: runs first in the child, e.g. to enter a network namespace; and where its
  // peers reach it.
  std::function<void(int process)> enter = {};
  std::vector<std::string> hosts = {};  // by process; default: loopback

  int process_count() const;
  std::vector<int> ranks_of(int process) const;
};

// ranks [0, size), `per_process` consecutive ones in each process.
ClusterSpec EvenCluster(int size, int per_process, Transport transport);
ClusterSpec NcclCluster(int size, int per_process);

// What a body gets.
struct Site {
  int process = 0;
  Fabric* fabric = nullptr;            // made, not connected
  std::function<void()> report_ready;  // a forked process tells its test that it is in its loop
};
// Returns "" or what went wrong; also free text that the test looks at.
using ProcessBody = std::function<std::string(Site&)>;

// Runs the body in one thread per process; results by process.
std::vector<std::string> RunAsThreads(const ClusterSpec& spec, const ProcessBody& body);

class ForkedCluster {
 public:
  ForkedCluster(const ClusterSpec& spec, const ProcessBody& body);
  ~ForkedCluster();  // kills what still runs
  void AwaitReady(int process);
  void Kill(int process);  // SIGKILL
  void Stop(int process);  // SIGSTOP
  // The body's result; "no result within N ms" or "died by signal N" otherwise.
  std::string Result(int process, int64_t timeout_ms = 60'000);
  std::vector<std::string> Results();

 private:
  struct Child {
    pid_t pid = -1;
    int control = -1;
    std::string text;
    bool ready = false;
    bool finished = false;
  };
  void Fork(const ClusterSpec& spec, const ProcessBody& body, int process);
  // Reads until `done`; false at the deadline or when the child is gone.
  bool Pump(Child& child, int64_t timeout_ms, const std::function<bool()>& done);

  std::vector<Child> children_;
};

// One call of a rank: makes the group "world" of all ranks, connects, and runs the body on one
// thread per local rank.
struct RankSite {
  int rank = 0;
  int size = 0;
  Group* world = nullptr;
  Fabric* fabric = nullptr;
  std::function<void()> report_ready;
};
using RankBody = std::function<std::string(RankSite&)>;
ProcessBody OnWorld(const ClusterSpec& spec, const RankBody& body);
// Runs body(rank) on one thread per local rank and joins their non-empty results.
std::string OnEachRank(const ClusterSpec& spec, int process,
                       const std::function<std::string(int rank)>& body);

}  // namespace meshwright::collective
