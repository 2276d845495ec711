// The controller's gRPC endpoint. Handlers decode, hand over to the control loop and encode; they
// hold no state of their own.
//
// Limits: 4 MiB a message; who may call what is in controller/access.h. Keepalive finds dead peers
// below the heartbeats. Thread rule: Start and Shutdown from one thread. Ownership: what the parts
// point to outlives the server.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "controller/access.h"
#include "controller/audit_log.h"
#include "controller/blob_store.h"
#include "controller/checkpoint_store.h"
#include "controller/control_loop.h"
#include "controller/limits.h"
#include "controller/metrics.h"
#include "controller/trust.h"
#include "controller/weights_sink.h"
#include "controller/worker_logs.h"
#include "proto/job_file.h"

namespace meshwright::controller {

struct RpcParts {
  ControlLoop* loop = nullptr;
  BlobStore* blobs = nullptr;
  WeightsSink* weights = nullptr;
  ControllerMetrics* metrics = nullptr;
  AccessOptions access;
  AuditLog* audit = nullptr;  // null: nothing is written down
  Trust* trust = nullptr;     // null: no certificates are signed
  std::string tls_dir;        // of the controller's identity; empty: in the clear
  Limits limits;
  // Where processes of this host may connect as well, for less than over the loopback: a socket of
  // the file system, for its owner only. Empty: nowhere.
  std::string local_path;
  CheckpointStore* checkpoints = nullptr;
  proto::ResolveFile resolve;           // null: job files are refused
  RunStory* story = nullptr;            // null: nobody knows what happened in steps
  WorkerLogs* logs = nullptr;           // null: nobody asks for logs of workers
  const LineLog* own_log = nullptr;     // of this process; null: none is kept
  MetricsRegistry* registry = nullptr;  // null: nobody asks for metrics
};

class RpcServer {
 public:
  virtual ~RpcServer() = default;
  // Errors: kUnavailable "port ... is in use", kInvalidArgument when `bind` is no address of this
  // machine, kPermissionDenied, those of LoadTlsIdentity.
  static Result<std::unique_ptr<RpcServer>> Start(const std::string& bind, int port,
                                                  RpcParts parts);
  virtual int port() const = 0;
  // Errors: kUnavailable when connections had to be refused lately.
  virtual Status Health() const = 0;
  // Refuses new calls, ends those that are open, waits for them.
  virtual void Shutdown() = 0;
};

}  // namespace meshwright::controller
