#include "cli/follow.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/interrupt_note.h"
#include "cli/output.h"

namespace meshwright::cli {
namespace {

using client::JobInfo;

int ReportLost(const Status& status, int64_t job_id) {
  const int code = ReportError(status);
  if (status.code() == StatusCode::kUnavailable) {
    fmt::print(stderr,
               "hint: what became of job {} is unknown until the controller is back; then look "
               "with `meshwright jobs` and `meshwright logs {}`\n",
               job_id, job_id);
  } else if (status.code() == StatusCode::kDeadlineExceeded) {
    fmt::print(stderr, "{}\n", GoesOn(job_id));
  }
  return code;
}

}  // namespace

std::string GoesOn(int64_t job_id) {
  return fmt::format("job {} goes on; follow: meshwright logs -f {}, stop: meshwright cancel {}",
                     job_id, job_id, job_id);
}

int FollowJob(client::Client& client, const FollowOptions& options, JobView& view,
              const std::function<void(const client::JobUpdate&)>& on_update) {
  const int64_t id = options.job_id;
  const InterruptNote note(fmt::format("\ninterrupted: {}\n", GoesOn(id)));
  const Result<JobInfo> last = client.Watch(
      id,
      [&](const client::JobUpdate& update) {
        view.Show(update);
        if (on_update) on_update(update);
        std::fflush(nullptr);  // readers of a pipe or a record see each step when it happens
        return true;
      },
      options.timeout_s * 1000);
  view.Clear();
  if (!last) return ReportLost(last.error(), id);
  const bool ended = client::IsTerminal(last->state);
  if (options.json) {
    fmt::print("{}\n", JobJson(*last));
  } else if (ended) {
    fmt::print("{}{}", FormatJobEnd(*last, options.color), view.Summary());
  }
  if (ended) return ExitCodeOfJob(*last);
  fmt::print(stderr, "error: after {} s job {} is {} at step {} of {}\n{}\n", options.timeout_s, id,
             client::JobStateName(last->state), last->steps_done, last->steps, GoesOn(id));
  return kExitTimeout;
}

}  // namespace meshwright::cli
