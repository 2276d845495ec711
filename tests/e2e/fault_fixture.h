// The frame of every fault test: a cluster of processes, and at its end the proof that nothing is
// left of them.
//
// What must hold after each test: processes that nobody killed end on SIGTERM with 0 within
// seconds, and no process, socket, shared memory or temporary file of theirs remains.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/leftovers.h"
#include "tests/e2e/process_cluster.h"

namespace meshwright::testing {

inline constexpr int64_t kForeverSteps = 1'000'000;

class FaultFixture : public ::testing::Test {
 protected:
  void TearDown() override;

  // Sets cluster_; a fatal failure when it does not start.
  void Start(ProcessClusterOptions options);
  void StartWorkers(int workers);
  ProcessCluster& cluster() { return *cluster_; }
  client::Client& client() { return cluster_->client(); }

  // Submits a job on the first `data * pipeline` devices and waits until it has done some steps;
  // notes what the processes hold by then. recovers: a fault of it is not its end. The id, 0 after
  // a failure.
  int64_t StartJob(int data, int pipeline, int64_t steps = kForeverSteps, bool recovers = false);
  // The job's end, which must come soon.
  client::JobInfo EndOf(int64_t id);
  // A small job succeeds: the cluster is of use after the fault.
  void ExpectAJobSucceeds(int data, int pipeline);

  // Sends the signal, and waits for the end.
  void End(Subprocess& process, int signal);
  void Kill(Subprocess& process) { End(process, SIGKILL); }
  // SIGSTOP, and waits until every thread stands still: what is asked of it then is not done.
  void Freeze(const Subprocess& process);
  // Kills the controller and starts it again.
  void RestartController();

  // A worker lets go of everything of its job: shared memory, connections to peers, device memory.
  void ExpectHoldsNothingOfAJob(int worker);

  // Runs a command that must fail by itself: its exit code and all that it printed.
  struct Failure {
    int code = -1;
    std::string text;
  };
  Failure Fails(const std::vector<std::string>& args,
                const std::vector<std::pair<std::string, std::string>>& env = {});

  // Writes a file of the test's own folder; returns its path.
  std::string Write(const std::string& name, const std::string& bytes);

  // Starts the binary with its output in a log file.
  std::unique_ptr<Subprocess> Launch(const std::vector<std::string>& args, const std::string& log);

  TempDir dir_ = TempDir::Make("mw-fault").value();
  Leftovers leftovers_;
  std::unique_ptr<ProcessCluster> cluster_;
  std::vector<std::string> metrics_addresses_;  // by worker

 private:
  int killed_ = 0;  // of those that cluster_->Stop() reports on
};

// A job file of a tiny GPT over bytes, four layers; `more` goes to the section [training].
std::string JobFile(const std::string& dataset, int data, int pipeline, int64_t steps,
                    const std::string& more = "");

}  // namespace meshwright::testing
