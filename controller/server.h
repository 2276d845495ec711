// The controller process: gRPC services, the control core, the store, the planner thread and the
// metrics endpoint.
//
// Inside, controller/core.h is a pure state machine (Effects Step(Event, now)); this class is the
// shell that feeds it events from streams, timers and the planner thread, and carries out its
// effects. Restarting with the same state directory keeps jobs and their history. Thread rule:
// Start/Stop from one thread. Ownership: owns all its threads and files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/live_token.h"
#include "base/result.h"
#include "controller/limits.h"
#include "controller/planning.h"
#include "controller/run_story.h"
#include "controller/site.h"
#include "proto/job_file.h"
#include "security/tls_front.h"

namespace meshwright::search {
class PlanCache;
}

namespace meshwright::controller {

struct ServerOptions {
  std::string bind = "127.0.0.1";  // other addresses need certificates, or `insecure` and a token
  int port = 7700;                 // 0: pick
  int metrics_port = 7780;         // 0: pick, -1: none
  std::string state_dir;  // SQLite, blobs, jobs/<id>/ with metrics.jsonl, model.safetensors, ...
  std::string checkpoint_root;  // of jobs whose workers have none; empty: in the state folder
  std::string token;            // empty: none
  LiveToken viewer_token;       // of who may look, by gRPC; empty: none
  LiveToken operator_token;     // of who may also act
  std::string tls_dir;          // of the controller's identity; empty: in the clear
  std::string authority_dir;    // signs certificates of workers that join; empty: none does
  bool insecure = false;        // in the clear, where others reach it, too
  int64_t heartbeat_ms = 1000;
  int64_t worker_lost_ms =
      6000;  // silence after which a worker is lost; a closed session is noticed at once
  int64_t infeasible_grace_ms =
      5000;  // a job larger than the cluster waits this long for workers to join
  // A worker whose machine fails so often within ten minutes is closed; 0: none is.
  int64_t quarantine_failures = 2;
  // How long a run with fewer devices than its job's plan works before the job returns to it.
  int64_t return_after_s = 30;
  Limits limits;
  std::shared_ptr<const search::PlanCache> plan_cache;  // null: every job is searched anew
  LiveToken scrape_token;  // that /metrics and the list of workers want; empty: none
  // HTTP is TLS with this certificate; empty: in the clear. With it and off loopback, metrics are
  // for who has the scrape token, and for nobody where there is none.
  security::ServerCertificate http_certificate;
  SiteMaker make_site;    // null: metrics and health are all that is served
  int http_threads = 16;  // callers of the HTTP server at once, streams of the site among them
  PlanListener on_plan;   // of plans that jobs run by; null: nobody draws them
  std::shared_ptr<RunStory> story;  // null: nobody asks what happened in steps
  // Takes what this process logs, and keeps its end in the state folder, for `logs --controller`.
  bool keeps_log = false;
  proto::ResolveFile resolve;  // of job files that clients send as they are; null: none is taken
};

class Server {
 public:
  virtual ~Server() = default;
  // Errors: kUnavailable "port 7700 is in use ...", kInvalidArgument non-loopback bind without
  // certificates, kFailedPrecondition when another controller holds the state directory.
  static Result<std::unique_ptr<Server>> Start(ServerOptions options);
  virtual int port() const = 0;
  virtual int metrics_port() const = 0;
  // Whether the control loop answers. Waits for it for 2 s at most. Errors: kUnavailable.
  virtual Status Answers() = 0;
  // Running jobs that the next controller may take up are left to it; others end as failed with
  // reason "ControllerStopped"; queued ones stay queued for the
  // next start. Returns when all threads are joined. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace meshwright::controller
