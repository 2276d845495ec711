// What the control core is told once: names, deadlines and bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "actor/supervision.h"
#include "base/ids.h"

namespace meshwright::controller {

// Of one mesh generation.
struct MeshLimits {
  int64_t election_ms = 500;         // how long a possible victim waits for a better cause
  int64_t abort_deadline_ms = 3000;  // then the job ends even if a member has not let go
  int64_t load_deadline_ms = 600'000;
  int64_t connect_deadline_ms = 330'000;  // a little more than workers give themselves for GPUs
  int64_t save_deadline_ms = 600'000;
  // For the workers of a run to come back to a controller that was restarted; then it recovers.
  int64_t resume_deadline_ms = 6000;
  int64_t release_deadline_ms = 120'000;  // then a member that has not let go counts as lost
  int launch_window = 2;
};

struct CoreOptions : MeshLimits {
  std::string cluster_id;
  Term term{1};
  std::string secret_key;  // random per process; per-generation secrets are derived from it
  std::string files_key;   // of this state folder, for ever: keys of checkpoints' files, as above
  std::string jobs_dir;    // shown to people
  // How long a job that ends or halts may take to its next step boundary and a save there; then
  // one that is cancelled ends, and one that was to be paused goes on.
  int64_t cancel_save_ms = 30'000;
  int64_t last_save_ms = 60'000;  // of a job that has failed for good
  int64_t pause_save_ms = 600'000;
  int64_t preempt_again_ms = 60'000;  // for one that could not be saved when it was to give way
  int64_t default_drain_ms = 120'000;
  // A run that has worked so long is planned for ahead, and one with fewer devices than its job's
  // plan returns to it; twice as long each time that it is soon left again.
  int64_t plan_ahead_ms = 1000;
  int64_t return_after_ms = 30'000;
  // So many failures of a worker's machine within the time close it; 0: none do.
  int64_t quarantine_failures = 2;
  int64_t quarantine_window_ms = 600'000;
  int64_t heartbeat_ms = 1000;
  int64_t suspect_ms = 2500;
  int64_t worker_lost_ms = 6000;
  // For a worker whose session broke to come back; then it is lost. 0: it is lost at once. After a
  // stall of the controller it is worker_lost_ms.
  int64_t resume_ms = 1000;
  int64_t infeasible_grace_ms = 5000;   // a job too large for a growing cluster waits this long
  int64_t register_deadline_ms = 5000;  // then a session that has not registered is closed
  size_t max_pending_sessions = 64;     // that have not registered
  int64_t client_away_ms = 60'000;  // how long a job that trains keeps the seat of a lost client
  int64_t first_job = 1;            // at least; ids of the past are not given again
  size_t max_queued = 1000;
  size_t max_jobs = 10'000;
  int64_t max_request_bytes = int64_t{256} << 20;  // of jobs that have not ended, all together
  size_t max_gone_workers = 256;
  actor::SupervisionTable actor_supervision = actor::DefaultSupervision();
  int64_t actor_start_deadline_ms = 60'000;
  int64_t actor_place_deadline_ms = 60'000;  // how long an actor waits for a worker
  // A job that was being placed or planned when the controller died is queued again so many times.
  int64_t max_requeues = 2;
};

}  // namespace meshwright::controller
