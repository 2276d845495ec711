#include "controller/job_clients.h"

#include <fmt/format.h>

#include <utility>

#include "controller/client_asks.h"
#include "controller/no_such_job.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;

namespace {

Status GivenUp(int64_t job) {
  return Aborted(
      fmt::format("job {} gave this session up while its connection was broken (driver.grace_s): "
                  "what of its unanswered calls was carried out is not known",
                  job));
}

Status TakenOver() { return Aborted("the session goes on over another connection"); }

bool ClientDrives(const JobEntry& job) {
  return job.request != nullptr && job.request->driver.kind == ir::DriverKind::kClient;
}

// How long the seat of a client that is lost is kept.
int64_t AwayMs(const JobEntry& job, const CoreOptions& options) {
  return ClientDrives(job) ? job.request->driver.grace_s * 1000 : options.client_away_ms;
}

Status HasEnded(const JobRecord& job) {
  return FailedPrecondition(fmt::format("job {} has already ended: {}", job.id, EndText(job)));
}

// Tells the answer of an ask to who is there, once.
void TellAnswer(ClientDesk& desk, const AskId& ask, proto::ClientDown news, int64_t bytes,
                Context& context) {
  const auto client = desk.Answer(ask.seat, ask.id, news, bytes);
  if (client) context.Do(TellClient{*client, std::move(news)});
}

void TellAll(ClientId client, std::vector<proto::ClientDown> all, Context& context) {
  for (proto::ClientDown& news : all) context.Do(TellClient{client, std::move(news)});
}

}  // namespace

// ---- Coming and going ---------------------------------------------------------------------------

void JobClients::Attach(const AttachClient& event, const JobEntry* job, Context& context) {
  const auto refuse = [&](Status status) {
    context.Do(CloseClient{event.client, std::move(status)});
  };
  if (job == nullptr) return refuse(NoSuchJob(event.job));
  if (job->ended()) return AttachToEnded(event, *job, context);
  Desk& desk = desks_[event.job];
  if (event.again && !desk.clients.Knows(event.session)) return refuse(GivenUp(job->record.id));
  const auto before = desk.clients.Attach(event.client, event.session);
  if (!before.has_value()) return refuse(before.error());
  if (*before) {
    job_of_client_.erase(**before);
    context.Do(CloseClient{**before, TakenOver()});
  }
  job_of_client_[event.client] = event.job;
  desk.nobody_since_ms.reset();
  if (job->record.state == JobState::kRunning) TellOpened(*job, event.client, context);
}

// Who comes back is told what it missed, and then the end.
void JobClients::AttachToEnded(const AttachClient& event, const JobEntry& job, Context& context) {
  ClientDesk& desk = desks_[event.job].clients;
  if (desk.Knows(event.session) && desk.Attach(event.client, event.session).has_value()) {
    TellAll(event.client, desk.Missed(event.client), context);
    desk.Leave(event.client);
  }
  context.Do(CloseClient{event.client, HasEnded(job.record)});
}

std::optional<JobId> JobClients::JobOf(ClientId client) const {
  const auto it = job_of_client_.find(client);
  return it == job_of_client_.end() ? std::nullopt : std::optional(it->second);
}

bool JobClients::Leave(const ClientGone& event, const JobEntry* job, Context& context) {
  if (job_of_client_.erase(event.client) == 0 || job == nullptr) return false;
  desks_[job->id()].opened.erase(event.client);
  ClientDesk& desk = desks_[job->id()].clients;
  const bool lost = event.how == ClientEnd::kLost;
  const bool was_there =
      lost ? desk.Detach(event.client, context.now.ms + AwayMs(*job, context.options))
           : desk.Leave(event.client);
  if (!was_there || !ClientDrives(*job) || lost) return false;
  // Others that are there, or may come back, go on with it.
  if (event.how == ClientEnd::kClosed && !desk.empty()) return false;
  context.Do(LogLine{job->id(), "its client has finished"});
  return true;
}

// ---- Jobs that begin and end --------------------------------------------------------------------

void JobClients::OpenJob(const JobEntry& job, Context& context) {
  Desk& desk = desks_[job.id()];
  for (const ClientId client : desk.clients.clients()) TellOpened(job, client, context);
  // Where its client drives it, it waits for one only so long.
  if (ClientDrives(job) && desk.clients.empty()) desk.nobody_since_ms = context.now.ms;
}

void JobClients::TellOpened(const JobEntry& job, ClientId client, Context& context) {
  if (!desks_[job.id()].opened.insert(client).second) return;
  ClientDesk& desk = desks_[job.id()].clients;
  context.Do(
      TellClient{client, proto::SessionOpened{job.record.id, desk.limits().credits,
                                              SignaturesOf(*job.request), desk.Held(client)}});
  TellAll(client, desk.Missed(client), context);
}

void JobClients::FailAsks(JobId job, const proto::RuntimeError& why, Context& context) {
  const auto it = desks_.find(job);
  if (it == desks_.end()) return;
  ClientDesk& desk = it->second.clients;
  for (const auto& [seat, id] : desk.DropAll()) {
    TellAnswer(desk, {seat, id}, proto::AskFailed{id, why}, 0, context);
  }
}

void JobClients::CloseJob(JobId job, const proto::RuntimeError& cause, Context& context) {
  const auto it = desks_.find(job);
  if (it == desks_.end()) return;
  ClientDesk& desk = it->second.clients;
  it->second.nobody_since_ms.reset();
  const proto::RuntimeError ended =
      MakeError(ErrorKind::kRefused, FailedPrecondition("the job has ended"));
  FailAsks(job, cause.ok() ? ended : cause, context);
  for (const ClientId client : desk.clients()) {
    job_of_client_.erase(client);
    context.Do(CloseClient{client, cause.ok() ? OkStatus() : cause.ToStatus()});
    desk.Leave(client);
  }
}

void JobClients::Finish(JobId job) {
  Desk& desk = desks_[job];
  desk.nobody_since_ms.reset();
  desk.finished = true;
}

bool JobClients::HasFinished(JobId job) const {
  const auto it = desks_.find(job);
  return it != desks_.end() && it->second.finished;
}

bool JobClients::GiveUp(const JobEntry& job, int64_t now_ms) {
  const auto it = desks_.find(job.id());
  if (it == desks_.end()) return false;
  const bool gave_up_last = it->second.clients.Expire(now_ms);
  if (!ClientDrives(job) || job.record.state != JobState::kRunning) return false;
  const auto since_ms = it->second.nobody_since_ms;
  return gave_up_last || (since_ms && now_ms - *since_ms >= job.request->driver.grace_s * 1000);
}

// ---- Asks ---------------------------------------------------------------------------------------

bool JobClients::Ask(const AskOfClient& event, const JobEntry* job, const StateNames* state,
                     Context& context) {
  ClientDesk* const desk = job == nullptr ? nullptr : &desks_[job->id()].clients;
  const auto fail = [&](const Status& status) {
    const proto::AskFailed failed{event.id, MakeError(ErrorKind::kRefused, status)};
    if (desk == nullptr || desk->Refuse(event.client, event.id, failed)) {
      context.Do(TellClient{event.client, failed});
    }
    return false;
  };
  if (desk == nullptr || state == nullptr) {
    return fail(FailedPrecondition("the session is not open: its job does not run"));
  }
  desk->Acknowledge(event.client, event.acked);
  TellAll(event.client, desk->Missed(event.client, event.id), context);
  const Status offered = desk->Offer(event.client, event.id, event.ask, *job->request, *state);
  if (offered.code() == StatusCode::kAlreadyExists) {
    context.Do(CloseClient{event.client, offered});
    return Leave(ClientGone{event.client}, job, context);
  }
  return offered.ok() || fail(offered.WithBlame(Blame::kUser));
}

void JobClients::Acknowledge(const AckOfClient& event, JobId job) {
  desks_[job].clients.Acknowledge(event.client, event.ids);
}

std::optional<ClientAsk> JobClients::Take(const JobEntry& job, const CallSteps& steps,
                                          Context& context) {
  ClientDesk& desk = desks_[job.id()].clients;
  std::optional<ClientAsk> ask = desk.Take();
  while (ask) {
    const Status ready = CheckReady(ask->ask, *job.request, steps);
    if (ready.ok()) break;
    const auto why = MakeError(ErrorKind::kRefused, ready.WithBlame(Blame::kUser));
    TellAnswer(desk, {ask->seat, ask->id}, proto::AskFailed{ask->id, why}, 0, context);
    ask = desk.Take();
  }
  return ask;
}

void JobClients::Answer(JobId job, LaunchResult result, Context& context) {
  proto::AskDone done;
  done.id = result.ask->id;
  done.step = result.launch.first_step;
  for (proto::StepReport& report : result.reports) {
    done.seconds = report.seconds;
    done.values = std::move(report.values);
  }
  int64_t bytes = 0;
  for (const proto::TensorTile& tile : result.tensors) {
    bytes += static_cast<int64_t>(tile.bytes.size());
  }
  done.tensors = std::move(result.tensors);
  TellAnswer(desks_[job].clients, *result.ask, std::move(done), bytes, context);
}

}  // namespace meshwright::controller
