// Following a job to its end: what submit, logs -f and wait share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/args.h"
#include "cli/job_view.h"
#include "client/client.h"

namespace meshwright::cli {

struct FollowOptions {
  int64_t job_id = 0;
  int64_t timeout_s = 0;  // 0: none
  bool json = false;      // of the last line
  bool color = false;     // of the end
};

// Shows every update in `view`, hands it to `on_update` and prints the end. Returns the exit code:
// that of the job; kExitTimeout after timeout_s; kExitUnreachable when the controller went away.
// Whatever ends the following but not the job, Ctrl-C too, says that the job goes on and what to do
// next.
int FollowJob(client::Client& client, const FollowOptions& options, JobView& view,
              const std::function<void(const client::JobUpdate&)>& on_update = {});

// "job 3 goes on; follow: meshwright logs -f 3, stop: meshwright cancel 3".
std::string GoesOn(int64_t job_id);

}  // namespace meshwright::cli
