// A controller and workers as real processes of the built binary, for tests of what only processes
// show.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/subprocess.h"
#include "client/client.h"
#include "tests/virtual/tiny_models.h"

namespace meshwright::testing {

struct ProcessClusterOptions {
  int workers = 4;
  std::vector<std::string> worker_args;      // added to every worker
  std::string worker_binary;                 // of one's own (worker/main.h); empty: the built one
  std::string device = "cpu";                // that workers are told to use
  std::vector<std::string> controller_args;  // added to the controller
  std::vector<std::pair<std::string, std::string>> env;
};

class ProcessCluster {
 public:
  // Starts everything and waits until all workers are READY.
  static Result<std::unique_ptr<ProcessCluster>> Start(ProcessClusterOptions options);
  ~ProcessCluster();

  const std::string& address() const { return address_; }
  const std::string& log_dir() const { return dir_->path(); }
  std::string File(const std::string& name) const { return dir_->File(name); }
  std::string state_dir() const { return dir_->File("state"); }
  // $TMPDIR of all processes: what is in it when they have ended was left behind.
  std::string temp_dir() const { return dir_->File("tmp"); }
  client::Client& client() { return *client_; }
  Subprocess& controller() { return *controller_; }
  Subprocess& worker(int index) { return *workers_[static_cast<size_t>(index)]; }
  static std::string WorkerName(int index) { return "w" + std::to_string(index); }

  // Uploads `text` as the data of the job and submits it.
  Result<int64_t> Submit(ir::JobRequest job, const std::string& text);
  struct Followed {
    client::JobInfo info;
    std::vector<client::StepMetrics> steps;
  };
  // Watches the job to its end.
  Result<Followed> Follow(int64_t id);
  // Returns once the job has done `steps` steps. Errors: kFailedPrecondition when it ended before.
  Status RunUntil(int64_t id, int64_t steps);
  // Starts the controller again on the same port and state.
  Status RestartController();
  Status WaitReady(int workers);
  // One more, which nobody waits for.
  Status AddWorker() { return StartWorker(static_cast<int>(workers_.size())); }
  // SIGTERM to everything; the exit statuses, controller last. The client is gone then.
  std::vector<Result<ExitStatus>> Stop();

 private:
  Status StartController(int port);  // 0: the system picks one
  Status StartWorker(int index);

  ProcessClusterOptions options_;
  std::unique_ptr<TempDir> dir_;
  std::string address_;
  std::unique_ptr<Subprocess> controller_;
  std::vector<std::unique_ptr<Subprocess>> workers_;
  std::unique_ptr<client::Client> client_;
};

// A GPT-2 of four layers over bytes, f32, batch of 8 rows of 8 tokens.
TinyOptions ByteOptions();
ir::JobRequest ByteJob(int data, int tensor, int pipeline, int64_t steps,
                       const TinyOptions& options = ByteOptions());

// Runs the binary to its end.
Result<ProcessOutput> RunMeshwright(
    const std::vector<std::string>& args,
    const std::vector<std::pair<std::string, std::string>>& env = {}, int64_t timeout_ms = 30'000);

// English-like text of printable bytes, at least `bytes` long; the same every time.
std::string SampleText(size_t bytes);

}  // namespace meshwright::testing
