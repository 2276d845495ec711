#include "controller/core_clients.h"

#include <fmt/format.h>

#include "controller/core_runs.h"

namespace meshwright::controller {
namespace {

// Null: the client has come to none, or it is gone.
JobEntry* JobOfClient(ClientId client, CoreState& core) {
  const auto job = core.clients.JobOf(client);
  return job ? core.book.Find(*job) : nullptr;
}

bool Runs(const JobEntry* job) { return job != nullptr && job->record.state == JobState::kRunning; }

}  // namespace

void On(const AttachClient& event, CoreState& core, Context& context) {
  core.clients.Attach(event, core.book.Find(event.job), context);
}

void On(const AskOfClient& event, CoreState& core, Context& context) {
  JobEntry* const job = JobOfClient(event.client, core);
  const StateNames* const state =
      Runs(job) ? &core.meshes.At(*job->run->mesh()).state().order.state : nullptr;
  if (core.clients.Ask(event, job, state, context)) GiveWork(*job, core, context);
}

void On(const AckOfClient& event, CoreState& core, Context& context) {
  JobEntry* const job = JobOfClient(event.client, core);
  if (job == nullptr) return;
  core.clients.Acknowledge(event, job->id());
  if (Runs(job)) GiveWork(*job, core, context);
}

void On(const ClientGone& event, CoreState& core, Context& context) {
  JobEntry* const job = JobOfClient(event.client, core);
  if (core.clients.Leave(event, job, context)) CloseRun(*job, core, context);
}

void CheckClients(CoreState& core, Context& context) {
  for (auto& [id, job] : core.book.all()) {
    if (!core.clients.GiveUp(job, context.now.ms)) continue;
    context.Do(LogLine{id, fmt::format("no client for {} s (driver.grace_s): the job ends",
                                       job.request->driver.grace_s)});
    CloseRun(job, core, context);
  }
}

}  // namespace meshwright::controller
