// worker drain | cordon | uncordon | evict.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/interrupt_note.h"

namespace meshwright::cli {
namespace {

using Action = WorkerOrderArgs::Action;
using client::WorkerInfo;
using client::WorkerOrder;

constexpr int64_t kAskAgainMs = 200;
// What is late is ended by then, and lets go of its devices.
constexpr int64_t kLetGoMs = 30'000;

WorkerOrder OrderOf(Action action) {
  switch (action) {
    case Action::kCordon:
      return WorkerOrder::kCordon;
    case Action::kUncordon:
      return WorkerOrder::kUncordon;
    case Action::kDrain:
      return WorkerOrder::kDrain;
    case Action::kEvict:
      break;
  }
  return WorkerOrder::kEvict;
}

// Until nothing of a job is on the worker, which is told to give it away.
Status AwaitDrained(client::Client& client, const std::string& name, int64_t deadline_ms) {
  const InterruptNote note(fmt::format("\ninterrupted: worker '{}' goes on draining\n", name));
  const Deadline deadline = Deadline::After(deadline_ms);
  while (true) {
    MW_ASSIGN_OR_RETURN(const std::vector<WorkerInfo> workers, client.Workers());
    const auto it = std::find_if(workers.begin(), workers.end(),
                                 [&](const WorkerInfo& worker) { return worker.name == name; });
    if (it == workers.end() || it->state != "DRAINING") return OkStatus();
    if (deadline.expired()) {
      return DeadlineExceeded(
          fmt::format("worker '{}' still has {} busy devices; look with "
                      "`meshwright status`",
                      name, it->busy_devices));
    }
    // Workers have no event for clients: ask again.
    ::poll(nullptr, 0, static_cast<int>(std::min(kAskAgainMs, deadline.remaining_ms())));
  }
}

Status Carry(const WorkerOrderArgs& args, const GlobalArgs& global) {
  auto connection = Connect(global);
  if (!connection) return connection.error();
  client::Client& client = **connection;
  const int64_t deadline_ms = args.action == Action::kEvict ? 0 : args.deadline_s * 1000;
  MW_TRY(client.OrderWorker(args.name, OrderOf(args.action), deadline_ms));
  switch (args.action) {
    case Action::kCordon:
      fmt::print("worker '{}' gets no new work; undo: meshwright worker uncordon {}\n", args.name,
                 args.name);
      return OkStatus();
    case Action::kUncordon:
      fmt::print("worker '{}' gets work\n", args.name);
      return OkStatus();
    case Action::kDrain:
    case Action::kEvict:
      break;
  }
  if (args.no_wait) {
    fmt::print("worker '{}' is draining\n", args.name);
    return OkStatus();
  }
  MW_TRY(AwaitDrained(client, args.name, deadline_ms + kLetGoMs));
  fmt::print("worker '{}' is {}; undo: meshwright worker uncordon {}\n", args.name,
             args.action == Action::kEvict ? "evicted" : "drained", args.name);
  return OkStatus();
}

}  // namespace

int RunWorkerOrder(const WorkerOrderArgs& args, const GlobalArgs& global) {
  const Status status = Carry(args, global);
  return status.ok() ? kExitOk : ReportError(status);
}

}  // namespace meshwright::cli
