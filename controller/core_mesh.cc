#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "controller/core.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;

namespace {

constexpr size_t kMaxInvitationBytes = 64 << 10;

template <typename Members, typename Flag>
bool All(const Members& members, Flag flag) {
  return std::all_of(members.begin(), members.end(), flag);
}

StateNames StateOf(const PlannedJob& plan) {
  StateNames state;
  for (const PlannedDevice& device : plan.devices) {
    state.insert(device.state_slots.begin(), device.state_slots.end());
  }
  return state;
}

}  // namespace

void Core::StartMesh(JobEntry& job, PlannedJob plan, Context& context) {
  const JobId id(job.record.id);
  TakeRanks(job, plan);
  const MeshGeneration gen(next_mesh_gen_++);
  MW_CHECK(!meshes_.contains(gen.value())) << "mesh generation " << gen << " is used twice";
  Mesh& mesh = meshes_[gen.value()];
  mesh.gen = gen;
  mesh.job = id;
  mesh.phase_since_ms = context.now.ms;
  mesh.driver = MakeDriver(*job.request);
  job.mesh = gen;
  job.record.layout = plan.layout;
  job.device_memory_bytes = plan.device_memory_bytes;
  job.device_budget_bytes = plan.device_budget_bytes;
  job.peak_flops_per_s = plan.peak_flops_per_s;
  mesh.state = StateOf(plan);
  mesh.plan = std::move(plan);
  mesh.members = MakeMembers(job);
  MoveJob(job, JobEvent::kPlanned, context);
  const std::string text =
      fmt::format("planned {} on {} devices of {} workers (generation {})", mesh.plan.layout,
                  job.ranks.size(), mesh.members.size(), gen.value());
  Persist persist{id, true, CallId(0), {}};
  persist.batch.next_mesh_gen = next_mesh_gen_;
  persist.batch.jobs.push_back(job.record);
  persist.batch.events.push_back(EventRecord{context.now.unix_ms, id.value(), text});
  context.effects.push_back(std::move(persist));
  context.effects.push_back(LogLine{id, text});
  for (const std::string& note : mesh.plan.notes) {
    context.effects.push_back(LogLine{id, fmt::format("note: {}", note)});
  }
  for (const MeshMember& member : mesh.members) {
    SendTo(mesh, member, MakeLoad(job, mesh, member), context);
  }
}

// The planner may need fewer devices than were reserved; the rest are free again.
void Core::TakeRanks(JobEntry& job, const PlannedJob& plan) {
  const std::vector<RankPlace> reserved = std::move(job.ranks);
  std::vector<bool> used(reserved.size(), false);
  job.ranks.clear();
  for (size_t rank = 0; rank < plan.devices.size(); ++rank) {
    const size_t at = plan.placement.empty() ? rank : static_cast<size_t>(plan.placement[rank]);
    MW_CHECK(at < reserved.size() && !used[at])
        << "rank " << rank << " takes device " << at << " of " << reserved.size();
    job.ranks.push_back(reserved[at]);
    used[at] = true;
  }
  for (size_t i = 0; i < reserved.size(); ++i) {
    if (used[i]) continue;
    const RankPlace& rank = reserved[i];
    members_.SetOwner(rank.worker, rank.local_device, JobId(0));
  }
}

// One member per worker, in rank order.
std::vector<Core::MeshMember> Core::MakeMembers(const JobEntry& job) const {
  std::vector<MeshMember> members;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const std::string& worker = job.ranks[rank].worker;
    auto it = std::find_if(members.begin(), members.end(),
                           [&](const MeshMember& m) { return m.worker == worker; });
    if (it == members.end()) {
      MeshMember member;
      member.worker = worker;
      member.session = members_.At(worker).session;
      it = members.insert(members.end(), std::move(member));
    }
    it->ranks.push_back(static_cast<int>(rank));
    it->local_devices.push_back(job.ranks[rank].local_device);
  }
  return members;
}

proto::LoadMesh Core::MakeLoad(const JobEntry& job, const Mesh& mesh,
                               const MeshMember& member) const {
  proto::LoadMesh load;
  load.mesh_gen = mesh.gen;
  load.job = mesh.job;
  load.cluster_id = options_.cluster_id;
  const std::string key =
      fmt::format("{}/{}/{}", options_.secret_key, options_.term.value(), mesh.gen.value());
  load.secret = Sha256Hex(key).substr(0, 32);
  load.seed = job.request->train.seed;
  load.tf32 = job.request->train.tf32;
  for (const RankPlace& rank : job.ranks) {
    const proto::Register& info = members_.At(rank.worker).info;
    load.members.push_back(
        proto::Member{info.name, info.address, info.host_id, info.incarnation.value()});
  }
  for (int rank : member.ranks) {
    MW_CHECK(static_cast<size_t>(rank) < mesh.plan.devices.size()) << "rank " << rank;
    const PlannedDevice& device = mesh.plan.devices[static_cast<size_t>(rank)];
    load.ranks.push_back(proto::RankPrograms{
        rank, job.ranks[static_cast<size_t>(rank)].local_device, device.programs});
  }
  load.programs = mesh.plan.programs;
  load.inputs = ClientInputsOf(*job.request);
  load.data = job.request->data;
  load.sequence = job.request->train.sequence;
  load.vocabulary = mesh.plan.vocabulary;
  load.init_weights = job.request->init_weights;
  load.graph = mesh.plan.graph;
  return load;
}

// ---- Reports of the members ----

void Core::OnMesh(Worker& worker, const proto::UpBody& body, Context& context) {
  const auto gen = std::visit(
      [](const auto& message) -> std::optional<uint64_t> {
        if constexpr (requires { message.mesh_gen; }) {
          return message.mesh_gen.value();
        } else {
          return std::nullopt;
        }
      },
      body);
  if (!gen) return;  // a heartbeat
  const auto it = meshes_.find(*gen);
  if (it == meshes_.end()) {
    ++stale_messages_;
    return;
  }
  Mesh& mesh = it->second;
  const auto member =
      std::find_if(mesh.members.begin(), mesh.members.end(),
                   [&](const MeshMember& m) { return m.session == worker.session && !m.freed; });
  if (member == mesh.members.end()) {
    ++stale_messages_;
    return;
  }
  CountMessage(mesh.job, proto::KindName(body));
  if (const auto* loaded = std::get_if<proto::Loaded>(&body)) {
    OnLoaded(mesh, *member, *loaded, context);
  } else if (const auto* comm = std::get_if<proto::CommUp>(&body)) {
    OnCommUp(mesh, *member, *comm, context);
  } else if (const auto* done = std::get_if<proto::LaunchDone>(&body)) {
    OnLaunchDone(mesh, *member, *done, context);
  } else if (const auto* saved = std::get_if<proto::WeightsSaved>(&body)) {
    OnSaved(mesh, *member, *saved, context);
  } else if (const auto* error = std::get_if<proto::MeshError>(&body)) {
    OnMeshError(mesh, *member, *error, context);
  } else if (std::holds_alternative<proto::MeshReleased>(body)) {
    MemberFreed(mesh, *member, context);
  }
}

// An error that says nothing is one of the protocol: a mesh never aborts without a cause.
void Core::OnMeshError(Mesh& mesh, const MeshMember& member, const proto::MeshError& m,
                       Context& context) {
  if (!m.error.ok()) return FailMesh(mesh, m.error, context);
  const std::string text = fmt::format(
      "worker '{}' reported an error of mesh generation {} without "
      "saying which; install the same version on both",
      member.worker, mesh.gen.value());
  FailMesh(mesh, MakeError(ErrorKind::kProtocol, Internal(text), member.worker), context);
}

void Core::OnLoaded(Mesh& mesh, MeshMember& member, const proto::Loaded& m, Context& context) {
  if (!m.error.ok()) {
    if (m.error.code == StatusCode::kDataLoss) {
      const auto blobs = BlobsOf(jobs_.at(mesh.job.value()));
      context.effects.push_back(CheckBlobs{mesh.job, {blobs.begin(), blobs.end()}});
    }
    return FailMesh(mesh, m.error, context);
  }
  if (mesh.phase != MeshPhase::kLoading || member.loaded) return;
  if (m.invitation.size() > kMaxInvitationBytes) {
    const std::string text =
        fmt::format("worker '{}' sends an invitation of {} bytes; at most {} are allowed",
                    member.worker, m.invitation.size(), kMaxInvitationBytes);
    return FailMesh(mesh, MakeError(ErrorKind::kProtocol, Internal(text), member.worker), context);
  }
  member.loaded = true;
  member.invitation = m.invitation;
  if (!All(mesh.members, [](const MeshMember& x) { return x.loaded; })) return;
  MoveMesh(mesh, MeshEvent::kAllLoaded, context);
  proto::Connect connect{mesh.gen, {}};
  for (MeshMember& of : mesh.members) connect.invitations.push_back(std::move(of.invitation));
  SendToAll(mesh, connect, context);
}

void Core::OnCommUp(Mesh& mesh, MeshMember& member, const proto::CommUp& m, Context& context) {
  if (!m.error.ok()) return FailMesh(mesh, m.error, context);
  if (mesh.phase != MeshPhase::kConnecting || member.connected) return;
  member.connected = true;
  if (!All(mesh.members, [](const MeshMember& x) { return x.connected; })) return;
  MoveMesh(mesh, MeshEvent::kAllConnected, context);
  JobEntry& job = jobs_.at(mesh.job.value());
  job.record.started_unix_ms = context.now.unix_ms;
  MoveJob(job, JobEvent::kStarted, context);
  const std::string text = fmt::format("running: {}", mesh.plan.layout);
  PersistJob(job, false, text, context);
  context.effects.push_back(LogLine{mesh.job, text});
  OpenClients(job, context);
  if (job.client_finished) mesh.driver->Close();
  IssueLaunches(mesh, context);
}

// ---- Launches ----

// Driver and clients take turns, so that neither can keep the other waiting.
void Core::IssueLaunches(Mesh& mesh, Context& context) {
  while (mesh.launches.size() < static_cast<size_t>(options_.launch_window)) {
    const bool first = mesh.ask_is_next ? IssueAsk(mesh, context) : IssueOfDriver(mesh, context);
    const bool any =
        first || (mesh.ask_is_next ? IssueOfDriver(mesh, context) : IssueAsk(mesh, context));
    if (!any) break;
    mesh.ask_is_next = !mesh.ask_is_next;
  }
  if (mesh.launches.empty() && mesh.driver->done()) AllLaunched(mesh, context);
}

// True: one was issued.
bool Core::IssueOfDriver(Mesh& mesh, Context& context) {
  const std::optional<PlannedLaunch> next = mesh.driver->Next();
  if (!next) return false;
  MW_CHECK(next->count >= 1) << "a launch of " << next->count << " steps of '" << next->program
                             << "'";
  mesh.initialised = true;
  OutstandingLaunch launch;
  launch.seq = LaunchSeq(mesh.next_seq++);
  launch.launch = *next;
  launch.answers.resize(mesh.members.size());
  const proto::Launch message{mesh.gen, launch.seq, ProgramIndex(mesh.plan, next->program),
                              next->first_step, next->count};
  mesh.launches.push_back(std::move(launch));
  SendToAll(mesh, message, context);
  return true;
}

void Core::OnLaunchDone(Mesh& mesh, MeshMember& member, const proto::LaunchDone& m,
                        Context& context) {
  if (!m.error.ok()) return FailMesh(mesh, m.error, context);
  if (mesh.phase != MeshPhase::kActive) return;
  const auto it = std::find_if(mesh.launches.begin(), mesh.launches.end(),
                               [&](const OutstandingLaunch& l) { return l.seq == m.launch_seq; });
  const auto index = static_cast<size_t>(&member - mesh.members.data());
  if (it == mesh.launches.end() || it->answers[index]) {
    ++stale_messages_;  // reported before
    return;
  }
  if (static_cast<int64_t>(m.reports.size()) != it->launch.count) {
    return FailMesh(
        mesh,
        MakeError(ErrorKind::kProtocol,
                  Internal(fmt::format("worker '{}' reported {} steps of a launch of {}",
                                       member.worker, m.reports.size(), it->launch.count)),
                  member.worker),
        context);
  }
  it->answers[index] = m;
  // Members work in order, so only the oldest launch can be complete.
  bool finished = false;
  while (!mesh.launches.empty()) {
    OutstandingLaunch& front = mesh.launches.front();
    if (!All(front.answers, [](const auto& answer) { return answer.has_value(); })) break;
    const Status status = FinishLaunch(mesh, front, context);
    mesh.launches.pop_front();
    if (!status.ok()) return FailMesh(mesh, MakeError(ErrorKind::kDiverged, status), context);
    finished = true;
  }
  if (finished) IssueLaunches(mesh, context);
}

Status Core::FinishLaunch(Mesh& mesh, OutstandingLaunch& launch, Context& context) {
  MW_CHECK(launch.answers.size() == mesh.members.size())
      << launch.answers.size() << " answers of " << mesh.members.size() << " members";
  std::vector<proto::StepReport> merged(static_cast<size_t>(launch.launch.count));
  for (const auto& answer : launch.answers) {
    for (size_t i = 0; i < merged.size(); ++i) {
      const proto::StepReport& report = answer->reports[i];
      merged[i].seconds = std::max(merged[i].seconds, report.seconds);
      merged[i].values.insert(report.values.begin(), report.values.end());
    }
  }
  for (size_t i = 0; i < merged.size(); ++i) {
    merged[i].step = launch.launch.first_step + static_cast<int64_t>(i);
  }
  JobEntry& job = jobs_.at(mesh.job.value());
  // A driver hears of its own launches, and of the steps that its client made.
  if (!launch.ask) return TakeNews(job, mesh.driver->On(launch.launch, merged), context);
  if (launch.launch.program == ir::kStepProgram) {
    MW_TRY(TakeNews(job, mesh.driver->On(launch.launch, merged), context));
  }
  AnswerAsk(job, launch, std::move(merged), context);
  return OkStatus();
}

Status Core::TakeNews(JobEntry& job, DriverNews news, Context& context) {
  const JobId id(job.record.id);
  if (news.loss) job.record.loss = *news.loss;
  if (news.steps_done) job.record.steps_done = *news.steps_done;
  for (std::string& line : news.log_lines) context.effects.push_back(LogLine{id, std::move(line)});
  if (context.now.ms - job.progress_saved_ms >= 1000) {
    job.progress_saved_ms = context.now.ms;
    context.effects.push_back(SaveProgress{id, job.record.steps_done, job.record.loss});
  }
  if (!news.steps.empty()) context.effects.push_back(StepsDone{id, std::move(news.steps)});
  return news.status;
}

// ---- The good end ----

void Core::AllLaunched(Mesh& mesh, Context& context) {
  MW_CHECK(mesh.launches.empty()) << "mesh " << mesh.gen << " still runs " << mesh.launches.size();
  JobEntry& job = jobs_.at(mesh.job.value());
  if (!job.request->save_weights) return FinishMesh(mesh, context);
  MoveMesh(mesh, MeshEvent::kAllLaunched, context);
  context.effects.push_back(OpenWeights{mesh.job, mesh.gen, job.request});
}

void Core::On(const WeightsFile& event, Context& context) {
  const auto it = meshes_.find(event.mesh_gen.value());
  if (it == meshes_.end() || it->second.phase != MeshPhase::kSaving) return;
  Mesh& mesh = it->second;
  if (!event.status.ok()) {
    return FailMesh(mesh, MakeError(ErrorKind::kSaveFailed, event.status.WithBlame(Blame::kInfra)),
                    context);
  }
  if (event.complete) {
    context.effects.push_back(LogLine{mesh.job, "weights saved"});
    return FinishMesh(mesh, context);
  }
  for (MeshMember& member : mesh.members) {
    proto::SaveWeights save{mesh.gen, {}};
    for (int rank : member.ranks) {
      MW_CHECK(static_cast<size_t>(rank) < mesh.plan.devices.size()) << "rank " << rank;
      const auto& slots = mesh.plan.devices[static_cast<size_t>(rank)].saved_slots;
      if (!slots.empty()) save.ranks.push_back(proto::RankTiles{rank, slots});
    }
    member.saved = save.ranks.empty();
    if (!member.saved) SendTo(mesh, member, std::move(save), context);
  }
  if (All(mesh.members, [](const MeshMember& x) { return x.saved; })) {
    context.effects.push_back(FinishWeights{mesh.job, mesh.gen});
  }
}

void Core::OnSaved(Mesh& mesh, MeshMember& member, const proto::WeightsSaved& m, Context& context) {
  if (!m.error.ok()) return FailMesh(mesh, m.error, context);
  if (mesh.phase != MeshPhase::kSaving || member.saved) return;
  member.saved = true;
  if (!All(mesh.members, [](const MeshMember& x) { return x.saved; })) return;
  context.effects.push_back(FinishWeights{mesh.job, mesh.gen});
}

void Core::FinishMesh(Mesh& mesh, Context& context) {
  JobEntry& job = jobs_.at(mesh.job.value());
  MoveMesh(mesh, MeshEvent::kRelease, context);
  SendToAll(mesh, proto::ReleaseMesh{mesh.gen}, context);
  EndJob(job, JobEvent::kFinished, proto::RuntimeError{}, context);
}

// ---- Helpers ----

void Core::SendTo(const Mesh& mesh, const MeshMember& member, proto::DownBody body,
                  Context& context) {
  if (member.freed) return;
  CountMessage(mesh.job, proto::KindName(body));
  context.effects.push_back(
      Send{mesh.job, member.session, proto::DownMessage{options_.term, std::move(body)}});
}

void Core::SendToAll(const Mesh& mesh, const proto::DownBody& body, Context& context) {
  for (const MeshMember& member : mesh.members) SendTo(mesh, member, body, context);
}

void Core::MoveMesh(Mesh& mesh, MeshEvent event, Context& context) {
  const std::optional<MeshPhase> next = Next(mesh.phase, event);
  MW_CHECK(next.has_value()) << "mesh " << mesh.gen.value() << " in " << Name(mesh.phase)
                             << " cannot " << Name(event);
  mesh.phase = *next;
  mesh.phase_since_ms = context.now.ms;
}

}  // namespace meshwright::controller
