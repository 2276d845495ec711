// A controller and workers as real processes of the built binary, for tests of what only processes
// show.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/subprocess.h"
#include "client/client.h"

namespace meshwright::testing {

struct ProcessClusterOptions {
  int workers = 4;
  std::vector<std::string> worker_args;      // added to every worker
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
  client::Client& client() { return *client_; }
  Subprocess& controller() { return *controller_; }
  Subprocess& worker(int index) { return *workers_[static_cast<size_t>(index)]; }
  static std::string WorkerName(int index) { return "w" + std::to_string(index); }

  // Uploads `text` as the data of the job and submits it.
  Result<int64_t> Submit(ir::JobRequest job, const std::string& text);
  // Starts the controller again on the same port and state.
  Status RestartController();
  Status WaitReady(int workers);
  // SIGTERM to everything; the exit statuses, controller last.
  std::vector<Result<ExitStatus>> Stop();

 private:
  Status StartController(int port);
  Status StartWorker(int index);

  ProcessClusterOptions options_;
  std::unique_ptr<TempDir> dir_;
  std::string address_;
  std::unique_ptr<Subprocess> controller_;
  std::vector<std::unique_ptr<Subprocess>> workers_;
  std::unique_ptr<client::Client> client_;
};

// English-like text of printable bytes, at least `bytes` long; the same every time.
std::string SampleText(size_t bytes);

// An ephemeral port that was free a moment ago.
Result<int> FreePort();

}  // namespace meshwright::testing
