// The worker daemon of one host: dials the controller, holds the session, fetches blobs, and has an
// executor for each mesh (worker/executors.h), which it supervises.
//
// Reconnects with backoff while the controller is away, and holds what runs meanwhile
// (worker/held_meshes.h). It serves controllers of one cluster, each of a higher term than the ones
// before. Thread rule: Start/Stop from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/live_token.h"
#include "base/result.h"
#include "device/scratch.h"
#include "ir/data_spec.h"
#include "worker/gpus.h"
#include "worker/host_actor_options.h"
#include "worker/link.h"
#include "worker/pulse.h"
#include "worker/worker_log.h"

namespace meshwright::worker {

struct AgentOptions {
  std::string controller = "127.0.0.1:7700";
  std::string name;  // empty: host name + pid
  int devices = 1;   // GPUs, or virtual CPU devices
  Gpus gpus = {};    // that are the devices; without: CPU devices
  int threads_per_device = 1;
  bool pin = false;  // pin devices to cores that no other worker of the host pins to
  std::string data_bind = "127.0.0.1";        // data-plane listener
  std::string advertise;                      // address that peers dial; empty: data_bind
  int data_port = 0;                          // 0: pick
  int metrics_port = 0;                       // 0: pick, -1: none
  std::string cache_dir;                      // blobs; empty: a temporary folder, removed at exit
  std::vector<ir::DataRoot> data_roots = {};  // below which files of jobs are read in place
  std::vector<ir::DataRoot> checkpoint_roots = {};  // below which checkpoints are kept
  std::string token;
  std::string tls_dir;             // of the worker's identity; empty: in the clear
  LiveToken scrape_token;          // that metrics want; empty: none, by TLS off loopback nobody
  std::string host_id;             // empty: LocalHostId()
  std::string transport = "auto";  // auto | shm | tcp
  int64_t memory_bytes = 0;        // per device; 0: share of the machine
  // Copies between the memories of host and CPU devices take as long as over such a link; 0: as
  // they take.
  int64_t host_link_bytes_per_s = 0;
  device::Scratch scratch;
  std::shared_ptr<WorkerLog> log =
      {};                      // of this process and its executors; null: nobody asks for it
  std::string device_profile;  // what a device can do, as text; empty: not known
  int64_t connect_timeout_ms = 30'000;  // first contact with the controller
  HostActorOptions host_actors;         // of the binary; none: jobs cannot have any here
  // Starts the process of an executor (worker/executor_main.h). Empty: meshes run in this process,
  // and what ends one of them ends the worker.
  std::vector<std::string> executor_command = {};
  // A mesh is held so long without a session at most, whatever its job says: the controller may
  // have died, and takes it up when it is back.
  int64_t orphan_grace_ms = 600'000;
  int64_t executor_end_ms = 10'000;  // for an executor to let go of its mesh; then it is killed
  // A call of a collective or a message that takes longer ends its job. 0: none does; a peer that
  // died is noticed at once, and one that hangs by the controller, which sees whether it computes.
  int64_t collective_timeout_ms = 0;
};

class Agent {
 public:
  virtual ~Agent() = default;
  // link: to the controller; null: the one of options.controller.
  static Result<std::unique_ptr<Agent>> Start(AgentOptions options,
                                              std::unique_ptr<ControllerLink> link = nullptr);
  virtual int metrics_port() const = 0;
  virtual const Pulse& pulse() const = 0;
  // Blocks until Stop(), or until the agent gives up: the reason.
  virtual Status Wait(int64_t timeout_ms) = 0;  // kDeadlineExceeded while it runs
  // Says that it leaves: its jobs are saved and moved, for so long at most. Then, or when the
  // session is over, it has ended (Wait).
  virtual void Drain(int64_t drain_ms) = 0;
  virtual void Stop() = 0;  // leaves the cluster, frees everything
};

}  // namespace meshwright::worker
