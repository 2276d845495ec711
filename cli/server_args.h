// What controllers, workers and a whole cluster of this machine are started with.
//
// CLI11 is named only. Thread rule: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace meshwright::cli {

// Of the controller's page and metrics.
struct PageArgs {
  bool off = false;
  std::string token_file;           // of who may look; empty: no token
  std::string operator_token_file;  // of who may also act
  std::string scrape_token_file;    // of who may read the metrics
  bool behind_tls = false;
  std::string http_cert;  // with http_key: of the HTTP port; empty: the controller's own
  std::string http_key;
};

struct ControllerArgs {
  std::string bind = "127.0.0.1";
  int port = 7700;
  int metrics_port = 7780;
  std::string state_dir = "runs/controller";
  std::string checkpoint_root;  // empty: in the state folder
  int64_t worker_lost_ms = 6000;
  int64_t max_connections = 4096;
  int64_t blob_keep_hours = 168;
  int64_t blob_quota_gib = 0;  // 0: as the disk has room
  int64_t quarantine_failures = 2;
  int64_t return_after_s = 30;
  bool learn_profiles = true;      // plans go by what steps have shown of devices
  std::string plan_cache = "off";  // as of a plan
  PageArgs page;
  std::string authority_dir;  // that signs for workers that join; empty: beside the identity
  bool cert_init = false;     // makes certificates on its first start
  int ready_fd = -1;          // gets "<port> <metrics port>\n" once the servers listen
  int start_fd = -1;          // see AwaitStart in cli/daemon.h
};

// Of a worker's devices.
struct MemoryArgs {
  int64_t device_mib = 0;
  int64_t host_link_mib_per_s = 0;
  std::string scratch_dir;  // empty: nothing is on a disk
  int64_t scratch_mib = 0;
  int64_t disk_mib_per_s = 0;
};

struct WorkerArgs {
  std::string name;
  std::string join;  // token, or @FILE with one; empty: it has a certificate or needs none
  std::string device = "auto";  // auto | cpu | cuda
  int devices = 0;              // 0: all GPUs, or one CPU device
  std::vector<int> gpus;        // instead of the first `devices`
  int threads_per_device = 1;
  bool pin = false;
  std::string bind = "127.0.0.1";
  std::string advertise;
  int data_port = 0;
  int metrics_port = 0;
  std::string scrape_token_file;
  std::string cache_dir;
  std::vector<std::string> data_roots;        // "PATH" or "NAME=PATH"
  std::vector<std::string> checkpoint_roots;  // the same
  std::string transport = "auto";
  MemoryArgs memory;
  int64_t collective_timeout_s = 0;
  int64_t executor_end_s = 10;
  int64_t orphan_grace_s = 600;
  int64_t drain_s = 90;
  int64_t actor_silent_s = 600;
  std::string profile = "cached";  // cached | measure | off | file
  std::string log_dir;             // empty: the log is kept in memory
  int64_t log_mib = 16;            // of it, at most
  int ready_fd = -1;
  int start_fd = -1;
};

// What `worker drain`, `cordon`, `uncordon` and `evict` say of a worker.
struct WorkerOrderArgs {
  enum class Action : uint8_t { kCordon, kUncordon, kDrain, kEvict };
  Action action = Action::kCordon;
  std::string name;
  int64_t deadline_s = 120;  // of a drain
  bool no_wait = false;
};

struct UpArgs {
  int workers = 2;
  std::string device = "cpu";  // cpu | cuda
  int devices_per_worker = 1;
  int threads_per_device = 1;
  std::string run_dir = "runs/local";
  int port = 7700;
  int metrics_port = 7780;
  std::string transport = "auto";
  bool pin = false;
  MemoryArgs memory;                          // of the workers
  std::vector<std::string> data_roots;        // of the workers; empty: the current folder
  std::vector<std::string> checkpoint_roots;  // of the workers; empty: in the run folder
  std::string worker_binary;                  // of one's own (worker/main.h); empty: this one
  std::string profile = "cached";             // as of a worker
  bool keep = true;                           // processes that die are started again
  int64_t timeout_ms = 60'000;
};

struct DownArgs {
  std::string run_dir = "runs/local";
  int64_t timeout_ms = 10'000;
};

struct StatusArgs {
  int64_t wait_workers = 0;  // until so many are ready; 0: it does not wait
  int64_t timeout_s = 0;     // 0: none
};

// Filled by the parser, which they outlive.
struct ServerCommands {
  ControllerArgs& controller;
  WorkerArgs& worker;
  WorkerOrderArgs& worker_order;
  bool& orders_worker;
  UpArgs& up;
  DownArgs& down;
  StatusArgs& status;
};
void AddController(CLI::App& app, const ServerCommands& commands);
void AddWorker(CLI::App& app, const ServerCommands& commands);
// up, down, status.
void AddCluster(CLI::App& app, const ServerCommands& commands);

}  // namespace meshwright::cli
