// A real controller and real workers in this process, on loopback, with ports picked by the system:
// what the process tests do with binaries, with the server's counters and options at hand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "client/client.h"
#include "controller/server_impl.h"
#include "worker/agent.h"

namespace meshwright::testing {

struct LocalClusterOptions {
  int workers = 2;
  int devices_per_worker = 1;
  std::string token;
  controller::ServerHooks hooks;
  controller::Limits limits;
  worker::HostActorOptions host_actors;  // of every worker
};

class LocalCluster {
 public:
  // Returns when all workers are READY.
  static Result<std::unique_ptr<LocalCluster>> Start(LocalClusterOptions options);
  ~LocalCluster();

  client::Client& client() { return *client_; }
  controller::ServerWithCounters& server() { return *server_; }
  worker::Agent& agent(size_t index) { return *agents_[index]; }
  std::string state_dir() const { return dir_->File("state"); }
  std::string File(const std::string& name) const { return dir_->File(name); }
  int port() const { return port_; }

  Status AddWorker(const std::string& name);
  Status WaitForState(const std::string& state, int workers);
  // Stops the server and starts it again on the same port and state.
  Status RestartServer();
  // Uploads `text` as the job's data, then submits.
  Result<int64_t> Submit(ir::JobRequest job, const std::string& text);
  worker::AgentOptions AgentOptionsFor(const std::string& name) const;

 private:
  Status StartServer(int port);

  LocalClusterOptions options_;
  std::unique_ptr<TempDir> dir_;
  int port_ = 0;
  std::unique_ptr<controller::ServerWithCounters> server_;
  std::vector<std::unique_ptr<worker::Agent>> agents_;
  std::unique_ptr<client::Client> client_;
};

// A GPT-2 of two layers over bytes, f64.
ir::JobRequest ByteJob(int64_t data, int64_t pipeline, int64_t steps);
// Printable text, the same every time.
std::string SampleBytes(size_t bytes);

}  // namespace meshwright::testing
