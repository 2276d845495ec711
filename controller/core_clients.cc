// Clients of a job: who is there, what they asked, when their job ends for want of them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/client_asks.h"
#include "controller/core.h"
#include "controller/input_rows.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;

namespace {

// The rows of an input that a worker's devices read; nothing: they read none of it.
std::optional<proto::LaunchInput> PartOf(const proto::NamedTensor& input, uint32_t index,
                                         const std::optional<RowRange>& rows) {
  if (!rows) return proto::LaunchInput{index, input.bytes};
  if (rows->count == 0) return std::nullopt;
  const int64_t all = input.type.dims[0];
  const size_t row_bytes = all == 0 ? 0 : input.bytes.size() / static_cast<size_t>(all);
  return proto::LaunchInput{index,
                            input.bytes.substr(static_cast<size_t>(rows->first) * row_bytes,
                                               static_cast<size_t>(rows->count) * row_bytes),
                            rows->first, all};
}

Status GivenUp(int64_t job) {
  return Aborted(
      fmt::format("job {} gave this session up while its connection was broken (driver.grace_s): "
                  "what of its unanswered calls was carried out is not known",
                  job));
}

Status TakenOver() { return Aborted("the session goes on over another connection"); }

bool ClientDrives(const std::shared_ptr<const ir::JobRequest>& job) {
  return job != nullptr && job->driver.kind == ir::DriverKind::kClient;
}

// How long the seat of a client that is lost is kept.
int64_t AwayMs(const ir::JobRequest* driven, const CoreOptions& options) {
  return driven != nullptr ? driven->driver.grace_s * 1000 : options.client_away_ms;
}

Status HasEnded(const JobRecord& job) {
  return FailedPrecondition(fmt::format("job {} has already ended: {}", job.id, EndText(job)));
}

// Tells the answer of an ask to who is there, once.
void Answer(ClientDesk& desk, SeatId seat, uint64_t id, proto::ClientDown news, int64_t bytes,
            Effects& effects) {
  const auto client = desk.Answer(seat, id, news, bytes);
  if (client) effects.push_back(TellClient{*client, std::move(news)});
}

void TellAll(ClientId client, std::vector<proto::ClientDown> all, Effects& effects) {
  for (proto::ClientDown& news : all) effects.push_back(TellClient{client, std::move(news)});
}

// One answer of the reports and blocks of all members, and the bytes of the blocks.
std::pair<proto::AskDone, int64_t> DoneOf(std::vector<std::optional<proto::LaunchDone>>& answers,
                                          std::vector<proto::StepReport> merged) {
  proto::AskDone done;
  int64_t bytes = 0;
  for (proto::StepReport& report : merged) {
    done.seconds = report.seconds;
    done.values = std::move(report.values);
  }
  for (std::optional<proto::LaunchDone>& answer : answers) {
    for (proto::TensorTile& tile : answer->tensors) {
      bytes += static_cast<int64_t>(tile.bytes.size());
      done.tensors.push_back(std::move(tile));
    }
  }
  return {std::move(done), bytes};
}

std::vector<const PlannedDevice*> DevicesOf(const PlannedJob& plan, const std::vector<int>& ranks) {
  std::vector<const PlannedDevice*> devices;
  for (const int rank : ranks) devices.push_back(&plan.devices[static_cast<size_t>(rank)]);
  return devices;
}

// Of a call, what goes to the worker that has these devices.
std::vector<proto::LaunchInput> InputsFor(const std::vector<const PlannedDevice*>& devices,
                                          const proto::CallProgram& call, uint32_t program,
                                          const std::vector<std::string>& names) {
  std::vector<proto::LaunchInput> inputs;
  for (const proto::NamedTensor& input : call.inputs) {
    const auto at =
        static_cast<uint32_t>(std::find(names.begin(), names.end(), input.name) - names.begin());
    auto part = PartOf(input, at, RowsRead(devices, program, at));
    if (part) inputs.push_back(*std::move(part));
  }
  return inputs;
}

}  // namespace

void Core::On(const AttachClient& event, Context& context) {
  const auto refuse = [&](Status status) {
    context.effects.push_back(CloseClient{event.client, std::move(status)});
  };
  JobEntry* const job = FindJob(event.job);
  if (job == nullptr) return refuse(NotFound(fmt::format("there is no job {}", event.job.value())));
  if (proto::IsTerminal(job->record.state)) return AttachToEnded(*job, event, context);
  if (event.again && !job->desk.Knows(event.session)) {
    return refuse(GivenUp(job->record.id));
  }
  const auto before = job->desk.Attach(event.client, event.session);
  if (!before.has_value()) return refuse(before.error());
  if (*before) {
    job_of_client_.erase((*before)->value());
    context.effects.push_back(CloseClient{**before, TakenOver()});
  }
  job_of_client_[event.client.value()] = job->record.id;
  job->no_client_since_ms.reset();
  if (job->record.state == JobState::kRunning) TellOpened(*job, event.client, context);
}

// Who comes back is told what it missed, and then the end.
void Core::AttachToEnded(JobEntry& job, const AttachClient& event, Context& context) {
  if (job.desk.Knows(event.session) && job.desk.Attach(event.client, event.session).has_value()) {
    TellAll(event.client, job.desk.Missed(event.client), context.effects);
    job.desk.Leave(event.client);
  }
  context.effects.push_back(CloseClient{event.client, HasEnded(job.record)});
}

void Core::TellOpened(JobEntry& job, ClientId client, Context& context) const {
  context.effects.push_back(
      TellClient{client, proto::SessionOpened{job.record.id, job.desk.limits().credits,
                                              SignaturesOf(*job.request), job.desk.Held(client)}});
  TellAll(client, job.desk.Missed(client), context.effects);
}

// A job runs from now on: its clients may ask.
void Core::OpenClients(JobEntry& job, Context& context) {
  for (const ClientId client : job.desk.clients()) TellOpened(job, client, context);
  // Where its client drives it, it waits for one only so long.
  if (ClientDrives(job.request) && job.desk.empty()) job.no_client_since_ms = context.now.ms;
}

void Core::On(const AskOfClient& event, Context& context) {
  const auto known = job_of_client_.find(event.client.value());
  JobEntry* const job = known == job_of_client_.end() ? nullptr : FindJob(JobId(known->second));
  const auto fail = [&](const Status& status) {
    const proto::AskFailed failed{event.id, MakeError(ErrorKind::kRefused, status)};
    if (job == nullptr || job->desk.Refuse(event.client, event.id, failed)) {
      context.effects.push_back(TellClient{event.client, failed});
    }
  };
  if (job == nullptr || job->record.state != JobState::kRunning) {
    return fail(FailedPrecondition("the session is not open: its job does not run"));
  }
  job->desk.Acknowledge(event.client, event.acked);
  TellAll(event.client, job->desk.Missed(event.client, event.id), context.effects);
  Mesh& mesh = meshes_.at(job->mesh->value());
  const Status offered =
      job->desk.Offer(event.client, event.id, event.ask, *job->request, mesh.state);
  if (offered.code() == StatusCode::kAlreadyExists) {
    context.effects.push_back(CloseClient{event.client, offered});
    return On(ClientGone{event.client}, context);
  }
  if (!offered.ok()) return fail(offered.WithBlame(Blame::kUser));
  if (mesh.phase == MeshPhase::kActive) IssueLaunches(mesh, context);
}

// There may be room for an answer that there was none for.
void Core::On(const AckOfClient& event, Context& context) {
  const auto known = job_of_client_.find(event.client.value());
  JobEntry* const job = known == job_of_client_.end() ? nullptr : FindJob(JobId(known->second));
  if (job == nullptr) return;
  job->desk.Acknowledge(event.client, event.ids);
  if (!job->mesh || job->record.state != JobState::kRunning) return;
  Mesh& mesh = meshes_.at(job->mesh->value());
  if (mesh.phase == MeshPhase::kActive) IssueLaunches(mesh, context);
}

void Core::On(const ClientGone& event, Context& context) {
  const auto known = job_of_client_.find(event.client.value());
  if (known == job_of_client_.end()) return;
  JobEntry* const job = FindJob(JobId(known->second));
  job_of_client_.erase(known);
  if (job == nullptr) return;
  const bool drives = ClientDrives(job->request);
  const int64_t away_ms = AwayMs(drives ? job->request.get() : nullptr, options_);
  const bool lost = event.how == ClientEnd::kLost;
  const bool was_there = lost ? job->desk.Detach(event.client, context.now.ms + away_ms)
                              : job->desk.Leave(event.client);
  if (!was_there || !drives || lost) return;
  // Others that are there, or may come back, go on with it.
  if (event.how == ClientEnd::kClosed && !job->desk.empty()) return;
  context.effects.push_back(LogLine{JobId(job->record.id), "its client has finished"});
  CloseDriver(*job, context);
}

// The good end of a job that clients drive: what others asked is carried out first.
void Core::CloseDriver(JobEntry& job, Context& context) {
  job.no_client_since_ms.reset();
  if (!job.mesh) {
    job.client_finished = true;  // before it began
    return;
  }
  Mesh& mesh = meshes_.at(job.mesh->value());
  mesh.driver->Close();
  if (mesh.phase == MeshPhase::kActive) IssueLaunches(mesh, context);
}

void Core::CheckClients(Context& context) {
  for (auto& [id, job] : jobs_) {
    const bool gave_up_last = job.desk.Expire(context.now.ms);
    if (!ClientDrives(job.request) || job.record.state != JobState::kRunning) continue;
    const int64_t grace_ms = job.request->driver.grace_s * 1000;
    const auto since_ms = job.no_client_since_ms;
    if (!gave_up_last && !(since_ms && context.now.ms - *since_ms >= grace_ms)) continue;
    context.effects.push_back(
        LogLine{JobId(id), fmt::format("no client for {} s (driver.grace_s): the job ends",
                                       job.request->driver.grace_s)});
    CloseDriver(job, context);
  }
}

// ---- Asks as launches ----

// True: one was issued.
bool Core::IssueAsk(Mesh& mesh, Context& context) {
  JobEntry& job = jobs_.at(mesh.job.value());
  if (!mesh.initialised) return false;
  std::optional<ClientAsk> ask = job.desk.Take();
  while (ask) {
    const Status made = CheckReady(ask->ask, *job.request, mesh.call_steps);
    if (made.ok()) break;
    const auto why = MakeError(ErrorKind::kRefused, made.WithBlame(Blame::kUser));
    Answer(job.desk, ask->seat, ask->id, proto::AskFailed{ask->id, why}, 0, context.effects);
    ask = job.desk.Take();
  }
  if (!ask) return false;
  OutstandingLaunch launch;
  launch.seq = LaunchSeq(mesh.next_seq++);
  launch.ask = {ask->seat, ask->id};
  launch.answers.resize(mesh.members.size());
  std::visit([&](auto& body) { SendAsk(mesh, job, body, launch, context); }, ask->ask);
  mesh.launches.push_back(std::move(launch));
  return true;
}

void Core::SendAsk(Mesh& mesh, const JobEntry& job, proto::CallProgram& call,
                   OutstandingLaunch& launch, Context& context) {
  int64_t& next_step = mesh.call_steps[call.program];
  const int64_t step = call.step.value_or(next_step);
  next_step = step + 1;
  launch.launch = PlannedLaunch{call.program, step, 1};
  proto::Launch message{mesh.gen, launch.seq, ProgramIndex(mesh.plan, call.program), step, 1};
  message.fetch = call.fetch;
  const std::vector<std::string> names = ir::ClientInputsOf(*job.request);
  for (const MeshMember& member : mesh.members) {
    const auto devices = DevicesOf(mesh.plan, member.ranks);
    proto::Launch of_member = message;
    of_member.inputs = InputsFor(devices, call, message.program, names);
    SendTo(mesh, member, std::move(of_member), context);
  }
}

void Core::SendAsk(Mesh& mesh, const JobEntry&, proto::ReadState& read, OutstandingLaunch& launch,
                   Context& context) {
  launch.launch.count = 0;
  for (const MeshMember& member : mesh.members) {
    proto::ReadTensors message{mesh.gen, launch.seq, {}};
    for (const int rank : member.ranks) {
      proto::RankTiles tiles{rank, {}};
      const PlannedDevice& device = mesh.plan.devices[static_cast<size_t>(rank)];
      const auto& all = read.names.empty() ? device.saved_slots : device.state_slots;
      for (const std::string& slot : all) {
        const bool wanted = read.names.empty() || std::find(read.names.begin(), read.names.end(),
                                                            slot) != read.names.end();
        if (wanted) tiles.slots.push_back(slot);
      }
      if (!tiles.slots.empty()) message.ranks.push_back(std::move(tiles));
    }
    SendTo(mesh, member, std::move(message), context);
  }
}

void Core::SendAsk(Mesh& mesh, const JobEntry&, proto::WriteState& write, OutstandingLaunch& launch,
                   Context& context) {
  launch.launch.count = 0;
  SendToAll(mesh, proto::WriteTensors{mesh.gen, launch.seq, std::move(write.tensors)}, context);
}

void Core::AnswerAsk(JobEntry& job, OutstandingLaunch& launch,
                     std::vector<proto::StepReport> merged, Context& context) {
  auto [done, bytes] = DoneOf(launch.answers, std::move(merged));
  done.id = launch.ask->second;
  done.step = launch.launch.first_step;
  const auto [seat, id] = *launch.ask;
  Answer(job.desk, seat, id, std::move(done), bytes, context.effects);
}

// The job has ended: everything that was asked fails, once. Who is away may come back to hear it.
void Core::CloseClients(JobEntry& job, const proto::RuntimeError& cause, Context& context) {
  const proto::RuntimeError why =
      cause.ok() ? MakeError(ErrorKind::kRefused, FailedPrecondition("the job has ended")) : cause;
  for (const auto& [seat, id] : job.desk.DropAll()) {
    Answer(job.desk, seat, id, proto::AskFailed{id, why}, 0, context.effects);
  }
  for (const ClientId client : job.desk.clients()) {
    job_of_client_.erase(client.value());
    context.effects.push_back(CloseClient{client, cause.ok() ? OkStatus() : cause.ToStatus()});
    job.desk.Leave(client);
  }
}

}  // namespace meshwright::controller
