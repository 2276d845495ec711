// Promises checked here, beside the core's own invariants:
//   - a generation is on disk before any worker hears of it, and never used twice, across restarts
//   too;
//   - launches reach a worker with sequence numbers 1, 2, 3, ... within a generation;
//   - a terminal job never changes;
//   - a device never holds two meshes at once;
//   - a submit that was answered is on disk;
//   - people are told every step of a training once, in order;
//   - a checkpoint on record is there (and what tests/unit/controller/sim_states.h says).
#include "tests/unit/controller/sim_cluster.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "proto/job_codec.h"
#include "proto/mesh_of.h"

namespace meshwright::controller {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

bool IsStored(MemoryDisk& disk, JobId id) {
  const auto jobs = ReadMemoryDisk(disk).jobs;
  return std::any_of(jobs.begin(), jobs.end(),
                     [&](const JobRecord& job) { return job.id == id.value(); });
}

}  // namespace

CoreOptions SimCluster::DefaultOptions() {
  CoreOptions options;
  options.secret_key = "test";
  options.jobs_dir = "/state/jobs";
  options.resume_ms = 0;  // who is killed is lost at once
  return options;
}

ir::JobRequest SimCluster::MakeJob(int64_t data, int64_t tensor, int64_t pipeline, int64_t steps) {
  ir::JobRequest job;
  job.name = "tiny";
  ir::Graph loss;
  loss.name = "loss";
  job.SetLoss(std::move(loss));
  job.parallel.data = data;
  job.parallel.tensor = tensor;
  job.parallel.pipeline = pipeline;
  job.data.blob.size_bytes = 1 << 20;
  job.train.steps = steps;
  job.train.validation_batches = 0;
  job.save_weights = false;
  return job;
}

ir::JobRequest WithoutRecovery(ir::JobRequest job) {
  job.fault_tolerance.enable = false;
  return job;
}

SimCluster::SimCluster(CoreOptions options, uint64_t seed)
    : options_(std::move(options)), seed_(seed), disk_(MakeMemoryDisk()) {
  RestartController();
}

int64_t SimCluster::Draw(int64_t below) {
  return static_cast<int64_t>(PhiloxBits(seed_, 7, 0, draws_++) % static_cast<uint64_t>(below));
}

void SimCluster::RestartController() {
  up_.clear();
  down_.clear();
  closing_.clear();
  pending_.clear();
  held_plans_.clear();
  for (auto& [name, worker] : workers_) {
    Part(worker);
  }
  store_ = OpenMemoryStore(disk_);
  const StoredState& stored = store_->opened();
  CoreOptions options = options_;
  options.cluster_id = stored.cluster_id;
  options.term = stored.term;
  const int64_t begin_ns = SystemClock().NowNs();
  core_ = std::make_unique<Core>(
      options, stored.next_mesh_gen,
      RestoreJobs(stored, [this](const JobRecord& job) { return ReadJournal(job.id); }),
      stored.standings);
  Effects effects = core_->Start(now());
  core_ns_ += SystemClock().NowNs() - begin_ns;
  Execute(std::move(effects));
  CheckPromises();
}

void SimCluster::AddWorker(const std::string& name, int devices, const std::string& host) {
  SimWorker& worker = workers_[name];
  worker = SimWorker{};
  states_.ForgetMemory(name);
  worker.name = name;
  worker.incarnation = next_incarnation_++;
  worker.devices = devices;
  worker.host = host;
  Reconnect(name);
}

void SimCluster::AddWorkers(int count, int devices) {
  for (int i = 0; i < count; ++i) AddWorker("w" + std::to_string(i), devices);
  Settle();
}

Status SimCluster::Refusal(const proto::Register& info) {
  const Effects effects =
      core_->Step(WorkerMessage{SessionId(777), proto::UpMessage{Term(0), info}}, now());
  for (const Effect& effect : effects) {
    if (const auto* close = std::get_if<CloseSession>(&effect)) return close->reason;
  }
  return OkStatus();
}

void SimCluster::KillActors(const std::string& name) {
  SimWorker& worker = workers_.at(name);
  for (const auto& [actor, life] : std::exchange(worker.actors, {})) {
    Say(worker, proto::ActorEvent{life.second, actor, life.first, proto::ActorEventKind::kFailed,
                                  StatusCode::kAborted, "its process was killed"});
  }
}

void SimCluster::OnActor(SimWorker& worker, const proto::SpawnActor& spawn) {
  worker.actors[spawn.actor] = {spawn.generation, spawn.job};
  Say(worker,
      proto::ActorEvent{spawn.job, spawn.actor, spawn.generation, proto::ActorEventKind::kStarted});
}

// Which life answers goes with the answer.
void SimCluster::OnActor(SimWorker& worker, const proto::ActorMessage& message) {
  if (hold_actors) return;
  const auto life = worker.actors.find(message.actor);
  const bool alive = life != worker.actors.end() && life->second.first == message.generation;
  Say(worker, proto::ActorReply{message.ask, alive ? StatusCode::kOk : StatusCode::kNotFound,
                                "gone", fmt::format("{}#{}", message.payload, message.generation)});
}

void SimCluster::OnActor(SimWorker& worker, const proto::StopActor& stop) {
  stopped_actors.push_back(stop);
  std::erase_if(worker.actors, [&](const auto& each) {
    const auto& [generation, job] = each.second;
    return stop.actor == 0 ? job == stop.job
                           : stop.actor == each.first && stop.generation == generation;
  });
}

void SimCluster::Silence(const std::string& name) { workers_.at(name).silent = true; }

int64_t SimCluster::Submit(const ir::JobRequest& job, const std::string& op_id) {
  const CallId call(next_call_++);
  const std::string op = op_id.empty() ? "op-" + std::to_string(call.value()) : op_id;
  auto request = std::make_shared<const ir::JobRequest>(job);
  Run(SubmitJob{call, op, request, proto::EncodeJob(job)});
  const Reply& reply = replies_.at(call.value());
  if (!reply.status.ok()) return 0;
  requests_[reply.job.value()] = request;
  return reply.job.value();
}

void SimCluster::Advance(int64_t ms) {
  for (int64_t passed = 0; passed < ms; passed += 100) {
    now_ms_ += 100;
    if (now_ms_ % 1000 == 0) {
      for (auto& [name, worker] : workers_)
        Say(worker, heartbeat ? heartbeat(worker) : proto::Heartbeat{});
    }
    Run(Tick{});
  }
}

void SimCluster::Stall(int64_t ms) {
  now_ms_ += ms;
  Run(Tick{});
}

bool SimCluster::DeliverOne() {
  if (!hold_plans && !held_plans_.empty()) {
    pending_.insert(pending_.end(), held_plans_.begin(), held_plans_.end());
    held_plans_.clear();
  }
  std::vector<std::pair<int, uint64_t>> choices;
  for (const auto& [session, queue] : up_) {
    if (!queue.empty() || closing_.contains(session)) choices.emplace_back(0, session);
  }
  for (const auto& [session, queue] : down_) {
    if (!queue.empty()) choices.emplace_back(1, session);
  }
  if (!pending_.empty()) choices.emplace_back(2, 0);
  for (const auto& [name, worker] : workers_) {
    const bool writes = !worker.writes.empty() && worker.session.value() != 0;
    if (writes && !hold_writes) choices.emplace_back(3, worker.session.value());
  }
  if (choices.empty()) return false;
  const auto [kind, session] =
      choices[static_cast<size_t>(Draw(static_cast<int64_t>(choices.size())))];
  if (kind == 3) {
    EndWrite(*BySession(SessionId(session)));
  } else if (kind == 2) {
    const Event event = std::move(pending_.front());
    pending_.pop_front();
    Run(event);
  } else if (kind == 1) {
    const proto::DownMessage message = std::move(down_[session].front());
    down_[session].pop_front();
    if (SimWorker* worker = BySession(SessionId(session))) Handle(*worker, message);
  } else if (!up_[session].empty()) {
    const proto::UpMessage message = std::move(up_[session].front());
    up_[session].pop_front();
    Run(WorkerMessage{SessionId(session), message});
  } else {
    closing_.erase(session);
    up_.erase(session);
    Run(SessionClosed{SessionId(session), "closed by the peer"});
  }
  return true;
}

void SimCluster::Settle() {
  for (int i = 0; i < 200'000; ++i) {
    if (!DeliverOne()) return;
  }
  FAIL() << "messages never end";
}

void SimCluster::SettleFor(int64_t ms) {
  for (int64_t passed = 0; passed < ms; passed += 100) {
    Settle();
    Advance(100);
  }
  Settle();
}

void SimCluster::Feed(const Event& event) { Run(event); }

void SimCluster::FeedFrom(const std::string& worker, proto::UpBody body) {
  const SimWorker& from = workers_.at(worker);
  Run(WorkerMessage{from.session, proto::UpMessage{from.term, std::move(body)}});
}

proto::JobInfo SimCluster::Info(int64_t job) const {
  const auto info = core_->Job(JobId(job));
  EXPECT_TRUE(info.has_value()) << "job " << job;
  return info.has_value() ? *info : proto::JobInfo{};
}

SimWorker* SimCluster::BySession(SessionId session) {
  for (auto& [name, worker] : workers_) {
    if (worker.session == session) return &worker;
  }
  return nullptr;
}

void SimCluster::Say(SimWorker& worker, proto::UpBody body) {
  if (const auto gen = proto::MeshOf(body)) {
    if (const auto log = worker.logs.find(gen->value()); log != worker.logs.end()) {
      log->second.Note(body);
      if (log->second.released() && worker.session.value() != 0) worker.logs.erase(log);
    }
  }
  if (worker.session.value() == 0 || worker.silent) return;
  if (!worker.welcomed) return;
  up_[worker.session.value()].push_back(proto::UpMessage{worker.term, std::move(body)});
}

void SimCluster::Run(const Event& event) {
  const int64_t begin_ns = SystemClock().NowNs();
  Effects effects = core_->Step(event, now());
  core_ns_ += SystemClock().NowNs() - begin_ns;
  Execute(std::move(effects));
  CheckPromises();
}

Result<PlannedJob> SimCluster::MakePlan(const ir::JobRequest& request, size_t devices) const {
  PlannedJob plan;
  plan.degrees = request.parallel;
  const int64_t replica = plan.degrees.tensor * plan.degrees.pipeline;
  if (plan.degrees.data == 0 && replica > 0) {
    plan.degrees.data = static_cast<int64_t>(devices) / replica;
  } else if (replica > 0) {
    devices = std::min(devices, static_cast<size_t>(plan.degrees.data * replica));
  }
  plan.graph.sha256 = planned_graph;
  plan.layout = "data=" + std::to_string(devices);
  if (plan.degrees.microbatches > 0) {
    plan.layout += " microbatches=" + std::to_string(plan.degrees.microbatches);
  }
  std::set<std::string> programs = {"init"};
  for (const ir::JobProgram& program : request.programs) {
    if (!program.trained) programs.insert(program.name);
    if (program.trained) programs.insert({"eval", "step"});
  }
  plan.programs.assign(programs.begin(), programs.end());
  plan.devices.resize(planned_devices > 0 ? static_cast<size_t>(planned_devices) : devices);
  // All do the same.
  const std::vector<ir::Program> same(plan.devices.size());
  plan.lists = std::make_shared<const StepLists>(
      std::map<std::string, std::vector<ir::Program>, std::less<>>{{ir::kStepProgram, same}});
  plan.notes = plan_notes;
  plan.placement = planned_placement;
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < plan.devices.size(); ++rank) {
    ranks.push_back(rank);
    plan.boxes.push_back({"s", "s" + std::to_string(rank), 4, {rank}});
  }
  plan.boxes.push_back({"r", "r", 4, ranks});
  plan.devices[0].saved_slots = {"w"};
  plan.devices[0].state_slots = planned_state;
  for (size_t i = 0; i < plan.devices.size() && i < planned_rows.size(); ++i) {
    plan.devices[i].input_rows = planned_rows[i];
  }
  if (devices < plans_from) return tl::unexpected(ResourceExhausted("no plan for so few"));
  if (plan_error) return tl::unexpected(*plan_error);
  return plan;
}

void SimCluster::Plan(const StartPlan& start) {
  planned_ = start.topology;
  ++plans;
  auto& queue = hold_plans ? held_plans_ : pending_;
  queue.push_back(PlanFinished{start.job, start.attempt,
                               MakePlan(*start.request, start.topology.devices.size()),
                               plan_misfit});
}

void SimCluster::Plan(const MakePlanAhead& ahead) {
  planned_ahead.push_back(ahead);
  const size_t devices = ahead.topology.devices.size();
  auto& queue = hold_plans ? held_plans_ : pending_;
  queue.push_back(
      PlannedAhead{ahead.job, ahead.epoch, ahead.loss, devices, MakePlan(*ahead.request, devices)});
}

void SimCluster::Carry(Send& send) {
  if (const auto* load = std::get_if<proto::LoadMesh>(&send.message.body)) {
    const uint64_t gen = load->mesh_gen.value();
    EXPECT_GT(ReadMemoryDisk(*disk_).next_mesh_gen, gen) << "told before it was written";
    const bool newest = gen_job_.empty() || gen > gen_job_.rbegin()->first;
    const auto [it, fresh] = gen_job_.emplace(gen, load->job.value());
    EXPECT_TRUE(fresh ? newest : it->second == load->job.value()) << "generation used twice";
    if (fresh) {
      const ir::JobRequest& request = *requests_.at(load->job.value());
      const int64_t recorded = Record(load->job.value()).checkpoint_step;
      states_.Begin(*load, std::max(recorded, request.start.step),
                    request.driver.kind == ir::DriverKind::kTrain);
    }
  }
  if (BySession(send.session) != nullptr) {
    down_[send.session.value()].push_back(std::move(send.message));
  }
}

void SimCluster::Execute(Effects effects) {
  std::set<int64_t> dropped;
  std::vector<WriteFailed> failures;
  bool place_next = false;
  for (Effect& effect : effects) {
    if (dropped.contains(JobOf(effect).value())) continue;
    std::visit(
        Overloaded{
            [&](Persist& persist) {
              for (const JobRecord& job : persist.batch.jobs) FlushJournal(job.id);
              const Status status = store_->Apply(persist.batch);
              if (status.ok() || !persist.required) return;
              dropped.insert(persist.job.value());
              failures.push_back(WriteFailed{persist.job, persist.call, status});
            },
            [&](Send& send) { Carry(send); },
            [&](CloseSession& close) {
              if (SimWorker* worker = BySession(close.session)) {
                refused_[worker->name] = close.reason;
                Part(*worker);
              }
              up_.erase(close.session.value());
              down_.erase(close.session.value());
              closing_.erase(close.session.value());
            },
            [&](PlaceNext&) { place_next = true; },
            [&](CheckBlobs& check) { checked_blobs = check.sha256s; },
            [&](StartPlan& start) { Plan(start); },
            [&](MakePlanAhead& ahead) { Plan(ahead); },
            [&](OpenWeights& open) {
              pending_.push_back(
                  WeightsFile{open.mesh_gen, false, weights_error.value_or(OkStatus())});
            },
            [&](FinishWeights& finish) {
              pending_.push_back(WeightsFile{finish.mesh_gen, true, OkStatus()});
            },
            [&](CommitHere& here) {
              states_.Commit(here.commit);
              ++commits_here;
              pending_.push_back(CommittedHere{
                  {here.commit.mesh_gen, here.commit.save, std::exchange(commit_error, {})}});
            },
            [&](Reply& reply) {
              if (reply.status.ok() && reply.job.value() != 0) {
                EXPECT_TRUE(IsStored(*disk_, reply.job)) << "answered before it was written";
              }
              replies_.emplace(reply.call.value(), reply);
            },
            [&](StepsDone& done) { HearSteps(done); },
            [&](LogLine& line) { lines_[line.job.value()].push_back(line.line); },
            [&](SaveProgress& progress) {
              (void)store_->SaveProgress(progress.job.value(), progress.steps_done, progress.loss);
            },
            [&](TellClient& tell) { on_tell ? on_tell(tell) : Hear(tell); },
            [&](CloseClient& close) {
              closed_clients_[close.client.value()] = close.reason;
              if (on_close) on_close(close);
            },
            [](DiscardWeights&) {},
            [](JobChanged&) {},
            [](HealthChanged&) {},
            [](JobCounted&) {},
            [](StepsRecorded&) {},
            [&](RunBegins& e) { begun.push_back(e); },
            [&](ActorAnswer& answer) { actor_answers.push_back(answer); },
        },
        effect);
  }
  for (const WriteFailed& failure : failures) Run(failure);
  if (place_next && !dies_placing) Run(PlaceQueue{});
}

std::string SimCluster::InvitationOf(const SimWorker& worker) const {
  if (invitation_bytes > 0) return std::string(static_cast<size_t>(invitation_bytes), 'x');
  return "from " + worker.name;
}

namespace {

// As a worker does that holds what it runs.
void NoteInLog(SimWorker& worker, const proto::DownBody& body) {
  const auto gen = proto::MeshOf(body);
  const auto log = gen ? worker.logs.find(gen->value()) : worker.logs.end();
  if (log != worker.logs.end()) log->second.Note(body);
}

// What the worker's next act is to fail with, once.
proto::RuntimeError TakeFailure(std::map<std::string, proto::RuntimeError>& failures,
                                const std::string& worker) {
  const auto taken = failures.extract(worker);
  return taken.empty() ? proto::RuntimeError() : taken.mapped();
}

}  // namespace

void SimCluster::Handle(SimWorker& worker, const proto::DownMessage& message) {
  NoteInLog(worker, message.body);
  CheckLaunch(message.body);
  const auto error = [&] { return TakeFailure(fail_next, worker.name); };
  std::visit(
      Overloaded{
          [&](const proto::Welcome&) { OnWelcome(worker, message); },
          [&](const proto::LoadMesh& load) {
            last_load = load;
            states_.Load(worker.name, load);
            worker.meshes.insert(load.mesh_gen.value());
            worker.logs.emplace(load.mesh_gen.value(), load);
            worker.last_seq[load.mesh_gen.value()] = 0;
            worker.programs[load.mesh_gen.value()] = load.programs;
            EXPECT_LE(load.ranks.size(), static_cast<size_t>(worker.devices));
            std::set<std::string>& expected = worker.invitations[load.mesh_gen.value()];
            for (const proto::Member& member : load.members) {
              expected.insert(InvitationOf(workers_.at(member.worker)));
            }
            Say(worker, proto::Loaded{load.mesh_gen, error(), InvitationOf(worker)});
          },
          [&](const proto::Connect& m) {
            EXPECT_THAT(m.invitations, ::testing::UnorderedElementsAreArray(
                                           worker.invitations[m.mesh_gen.value()]));
            if (worker.meshes.contains(m.mesh_gen.value())) {
              Say(worker, proto::CommUp{m.mesh_gen, error()});
            }
          },
          [&](const proto::Launch& m) {
            if (!Expects(worker, m.mesh_gen, m.launch_seq)) return;
            if (fail_next.contains(worker.name)) {
              worker.failed.insert(m.mesh_gen.value());
              Say(worker, proto::LaunchDone{m.mesh_gen, m.launch_seq, error(), {}, {}});
            } else {
              HandleLaunch(worker, m);
            }
          },
          [&](const proto::SpawnActor& m) { OnActor(worker, m); },
          [&](const proto::ActorMessage& m) { OnActor(worker, m); },
          [&](const proto::StopActor& m) { OnActor(worker, m); },
          [&](const proto::ReadTensors& m) { AnswerState(worker, m.mesh_gen, m.launch_seq); },
          [&](const proto::WriteTensors& m) { AnswerState(worker, m.mesh_gen, m.launch_seq); },
          [&](const proto::SaveWeights& m) {
            Say(worker, proto::WeightsSaved{m.mesh_gen, error()});
          },
          [&](const proto::AbortMesh& m) {
            if (deaf_aborts) return;
            worker.meshes.erase(m.mesh_gen.value());
            Say(worker, proto::MeshReleased{m.mesh_gen});
          },
          [&](const proto::ReleaseMesh& m) {
            worker.meshes.erase(m.mesh_gen.value());
            Say(worker, proto::MeshReleased{m.mesh_gen});
          },
          [](const proto::FetchLog&) {},  // the core asks for no logs
          [&](const proto::Drained&) {
            EXPECT_TRUE(worker.meshes.empty()) << worker.name << " still works";
            worker.drained = true;
            states_.ForgetMemory(worker.name);  // its process is on its way out
          },
          [&](const proto::SaveState& m) { OnState(worker, m); },
          [&](const proto::RestoreState& m) { OnState(worker, m); },
          [&](const proto::CommitCheckpoint& m) { OnState(worker, m); },
          [&](const proto::QuerySnapshots& m) { OnState(worker, m); },
          [&](const proto::DropSnapshots& m) { OnState(worker, m); },
          [&](const proto::CopySnapshot& m) { OnState(worker, m); },
      },
      message.body);
}

void SimCluster::AnswerState(SimWorker& worker, MeshGeneration gen, LaunchSeq seq) {
  if (!Expects(worker, gen, seq)) return;
  if (!hold_reports) Say(worker, proto::LaunchDone{gen, seq, {}, {}, {}});
}

// ---- Clients ----

uint64_t SimCluster::OpenClient(int64_t job, const std::string& session, bool again) {
  const uint64_t client = next_client_++;
  Run(AttachClient{ClientId(client), JobId(job), session, again});
  return client;
}

void SimCluster::Ask(uint64_t client, proto::ClientAsk ask) {
  const uint64_t id = next_ask_++;
  asked_[client].insert(id);
  Run(AskOfClient{ClientId(client), id, std::move(ask), {}});
}

void SimCluster::EndClient(uint64_t client, ClientEnd how) {
  gone_clients_.insert(client);
  Run(ClientGone{ClientId(client), how});
}

// Every ask is answered once, and in the order of a client's asks; nobody who is gone is told
// anything.
void SimCluster::Hear(const TellClient& tell) {
  const uint64_t client = tell.client.value();
  EXPECT_FALSE(closed_clients_.contains(client)) << "told after the end";
  EXPECT_FALSE(gone_clients_.contains(client)) << "a client that is gone is told";
  if (std::holds_alternative<proto::SessionOpened>(tell.news)) {
    EXPECT_TRUE(opened_clients_.insert(client).second) << "opened twice";
    return;
  }
  const auto* done = std::get_if<proto::AskDone>(&tell.news);
  const uint64_t id = done != nullptr ? done->id : std::get<proto::AskFailed>(tell.news).id;
  EXPECT_EQ(asked_[client].erase(id), 1u) << "answered twice, or never asked";
  if (done != nullptr) {
    EXPECT_GT(id, last_done_[client]) << "out of order";
    last_done_[client] = id;
    answers_[client].push_back(*done);
  } else {
    failures_[client].push_back(std::get<proto::AskFailed>(tell.news).error);
  }
}

void SimCluster::CheckPromises() {
  const Status status = core_->CheckInvariants();
  EXPECT_TRUE(status.ok()) << status << " (seed " << seed_ << ")";
  std::set<int64_t> durable;
  for (const JobRecord& record : ReadMemoryDisk(*disk_).jobs) {
    if (proto::IsTerminal(record.state)) durable.insert(record.id);
  }
  for (const proto::JobInfo& info : core_->Jobs()) {
    EXPECT_TRUE(info.checkpoint_step < 0 ||
                states_.Has(info.checkpoint_folder, info.checkpoint_step))
        << "step " << info.checkpoint_step << " is on record for job " << info.id;
    if (!proto::IsTerminal(info.state) || !durable.contains(info.id)) continue;
    const auto [it, fresh] = ended_.emplace(info.id, info);
    EXPECT_EQ(it->second, info) << "a terminal job changed (seed " << seed_ << ")";
  }
}

}  // namespace meshwright::controller
