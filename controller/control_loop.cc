#include "controller/control_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <utility>

#include "base/failpoint.h"
#include "base/file.h"
#include "base/guard.h"
#include "base/log.h"
#include "controller/fleet_metrics.h"
#include "ir/training_flops.h"
#include "proto/job_codec.h"

namespace meshwright::controller {
namespace {

constexpr int64_t kTickMs = 100;
// Each may hold 11 MB of steps and as much of lines.
constexpr size_t kEndedViews = 8;
constexpr int64_t kCollectMs = 60'000;
constexpr int64_t kStepsPerUpdate = 10'000;
constexpr int64_t kLinesPerUpdate = 500;

Status LoopStopped() { return Unavailable("the controller is stopping"); }

// What is posted to it so far is done, or a disk does not answer.
void AwaitQueue(Executor& executor) {
  constexpr std::chrono::seconds kLongest{2};
  auto done = std::make_shared<std::promise<void>>();
  if (!executor.Post([done] { done->set_value(); })) return;
  (void)done->get_future().wait_for(kLongest);
}

bool Ran(const JobRecord& record) {
  return record.state == JobState::kStarting || record.state == JobState::kRunning;
}

// What a killed controller left of a weights file (formats/safetensors.h: "<name>.XXXXXX").
void RemoveWeightParts(const std::string& job_dir) {
  const std::string prefix = "model.safetensors.";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(job_dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.size() != prefix.size() + 6 || name.rfind(prefix, 0) != 0) continue;
    const Status status = RemoveAll(entry.path().string());
    if (!status.ok()) LogWarn(fmt::format("partial file not removed: {}", status.message()));
  }
}

// With the profiles that steps have shown.
mesh::Topology AsMeasured(mesh::Topology topology, RunStory* story) {
  if (story == nullptr) return topology;
  for (mesh::Device& device : topology.devices) {
    if (device.profile != nullptr) device.profile = story->Measured(device.profile);
  }
  return topology;
}

// A launch and its answer compare the clocks of both ends (ir::ClockRound).
proto::DownMessage Sent(proto::DownMessage message) {
  auto* const launch = std::get_if<proto::Launch>(&message.body);
  if (launch != nullptr) launch->round.sent_ns = SystemClock().NowNs();
  return message;
}
proto::UpMessage Arrived(proto::UpMessage message) {
  auto* const done = std::get_if<proto::LaunchDone>(&message.body);
  if (done != nullptr) done->round.arrived_ns = SystemClock().NowNs();
  return message;
}

void TellState(ControllerMetrics& metrics, const proto::JobInfo& job) {
  if (!proto::IsTerminal(job.state)) metrics.OpenJob(job.id);
  if (job.state == JobState::kFailed) metrics.CountFault(job.reason);
}

Result<proto::JobDescription> ReadDescription(const std::string& job_dir, int64_t job,
                                              BlobStore& blobs) {
  auto bytes = ReadFile(job_dir + "/request");
  if (!bytes.has_value()) {
    return Fail(NotFound(fmt::format("job {} was never planned, or an older version did it", job)));
  }
  proto::JobDescription description;
  MW_ASSIGN_OR_RETURN(description.job, proto::DecodeJob(*bytes));
  const std::string weights = job_dir + "/model.safetensors";
  if (std::filesystem::exists(weights)) {
    MW_ASSIGN_OR_RETURN(description.weights,
                        blobs.AddFile(weights, fmt::format("job {}/model.safetensors", job)));
  }
  return description;
}

}  // namespace

Core ControlLoop::MakeCore(CoreOptions options, const StoredState& stored, const StateDir& dir) {
  options.cluster_id = stored.cluster_id;
  options.term = stored.term;
  // What is in the journal has been told, and nothing else is found there by watchers.
  const auto told = [&](const JobRecord& job) { return MendJournal(dir.job_dir(job.id)); };
  return Core(std::move(options), stored.next_mesh_gen, RestoreJobs(stored, told),
              stored.standings);
}

ControlLoop::ControlLoop(CoreOptions options, ControlParts parts)
    : parts_(std::move(parts)),
      core_(MakeCore(std::move(options), parts_.store->opened(), *parts_.dir)),
      ahead_(parts_.make_plan, *parts_.blobs, parts_.on_plan) {
  for (const JobRecord& record : parts_.store->opened().jobs) {
    newest_job_ = std::max(newest_job_, record.id);
  }
}

ControlLoop::~ControlLoop() { Stop(); }

Now ControlLoop::now() const { return Now{SystemClock().NowMs(), SystemClock().UnixMs()}; }

void ControlLoop::Start() {
  parts_.metrics->SetTerm(core_.options().term.value());
  loop_.Post([this] {
    RemovePartsOnLoop();
    ExecuteOnLoop(core_.Start(now()));
    FlushOnLoop();
    CollectBlobsOnLoop();
    TickOnLoop();
  });
}

void ControlLoop::CollectBlobsOnLoop() {
  history_.Post([this, in_use = core_.BlobsInUse()] { parts_.blobs->Collect(in_use); });
  loop_.PostAfter(kCollectMs, [this] { CollectBlobsOnLoop(); });
}

void ControlLoop::RemovePartsOnLoop() {
  for (const JobRecord& record : parts_.store->opened().jobs) {
    if (!Ran(record)) continue;
    files_.Post([dir = parts_.dir->job_dir(record.id)] { RemoveWeightParts(dir); });
  }
}

void ControlLoop::Stop() {
  // Plans that wait are not begun; one may take minutes.
  stopping_ = true;
  loop_.Post([this] {
    if (stopped_) return;
    StepOnLoop(Shutdown{});
    stopped_ = true;
    for (auto& [job, waiter] : std::exchange(waiters_, {})) waiter.done(Fail(LoopStopped()));
    for (auto& [call, done] : std::exchange(calls_, {})) done(LoopStopped(), JobId(0));
    EndActorCallsOnLoop();
    sessions_.clear();
    pending_.clear();
    // Whose jobs have not begun go on with the next controller.
    for (auto& [client, peer] : std::exchange(clients_, {})) peer->Break(LoopStopped());
  });
  loop_.Stop();
  planner_.Stop();
  ahead_.Stop();
  files_.Stop();
  checkpoints_.Stop();
  journal_.Stop();
  history_.Stop();
}

void ControlLoop::TickOnLoop() {
  if (stopped_) return;
  StepOnLoop(Tick{});
  CloseIdleOnLoop();
  parts_.metrics->SetWorkers(core_.WorkerCounts());
  parts_.metrics->SetJobs(core_.JobCounts());
  parts_.metrics->SetMessages(core_.message_totals());
  loop_.PostAfter(kTickMs, [this] { TickOnLoop(); });
}

void ControlLoop::StepOnLoop(const Event& event) {
  if (stopped_) return;
  ExecuteOnLoop(core_.Step(event, now()));
  FlushOnLoop();
}

// ---- What others ask ----

SessionId ControlLoop::OpenSession(std::shared_ptr<SessionPeer> peer) {
  const SessionId session(next_session_.fetch_add(1));
  const bool posted = loop_.Post([this, session, peer] { AddSessionOnLoop(session, peer); });
  if (!posted) peer->Close(LoopStopped());
  return session;
}

// A stranger may open sessions and say nothing: few are kept, and not for long.
void ControlLoop::AddSessionOnLoop(SessionId session, std::shared_ptr<SessionPeer> peer) {
  if (stopped_) return peer->Close(LoopStopped());
  if (pending_.size() >= options().max_pending_sessions) {
    return peer->Close(ResourceExhausted(fmt::format(
        "{} sessions have not registered yet, the most at once; try again", pending_.size())));
  }
  sessions_[session.value()] = std::move(peer);
  pending_[session.value()] = now().ms;
}

void ControlLoop::CloseIdleOnLoop() {
  const int64_t latest_ms = now().ms - options().register_deadline_ms;
  std::erase_if(pending_, [&](const auto& entry) {
    const auto& [session, since_ms] = entry;
    const auto it = sessions_.find(session);
    if (it == sessions_.end() || core_.Knows(SessionId(session))) return true;
    if (since_ms > latest_ms) return false;
    const auto peer = std::move(it->second);
    sessions_.erase(it);
    peer->Close(
        DeadlineExceeded(fmt::format("no worker has registered in this session within {} "
                                     "ms; send Register first",
                                     options().register_deadline_ms)));
    return true;
  });
}

void ControlLoop::FromWorker(SessionId session, proto::UpMessage message) {
  loop_.Post([this, session, message = Arrived(std::move(message))] {
    // What was under way when the session was closed: nobody could be answered any more.
    if (!sessions_.contains(session.value())) return;
    StepOnLoop(WorkerMessage{session, message});
    if (core_.Knows(session)) pending_.erase(session.value());
  });
}

void ControlLoop::SessionEnded(SessionId session, std::string why) {
  loop_.Post([this, session, why = std::move(why)] {
    sessions_.erase(session.value());
    pending_.erase(session.value());
    StepOnLoop(SessionClosed{session, why});
  });
}

namespace {

// Its call is not known yet.
SubmitJob EventOf(Submission what) {
  std::string spec = proto::EncodeJob(what.job);
  return {CallId(0), std::move(what.op_id),
          std::make_shared<const ir::JobRequest>(std::move(what.job)), std::move(spec),
          std::move(what.tool)};
}

}  // namespace

void ControlLoop::Submit(Submission what, Callback<int64_t> done) {
  const bool posted = loop_.Post([this, event = EventOf(std::move(what)), done] {
    if (stopped_) return done(Fail(LoopStopped()));
    const CallId call(next_call_++);
    calls_[call.value()] = [done](Status status, JobId id) {
      if (!status.ok()) return done(Fail(std::move(status)));
      done(id.value());
    };
    StepOnLoop(SubmitJob{call, event.op_id, event.request, event.spec, event.tool});
  });
  if (!posted) done(Fail(LoopStopped()));
}

void ControlLoop::Order(std::function<Event(CallId)> make, std::function<void(Status)> done) {
  const bool posted = loop_.Post([this, done, make = std::move(make)] {
    if (stopped_) return done(LoopStopped());
    const CallId call(next_call_++);
    calls_[call.value()] = [done](Status status, JobId) { done(std::move(status)); };
    StepOnLoop(make(call));
  });
  if (!posted) done(LoopStopped());
}

void ControlLoop::Get(int64_t job, Callback<proto::JobInfo> done) {
  if (!loop_.Post([this, job, done] { done(core_.Job(JobId(job))); })) done(Fail(LoopStopped()));
}

void ControlLoop::Describe(int64_t job, Callback<proto::JobDescription> done) {
  const bool posted = loop_.Post([this, job, done] {
    if (const auto info = core_.Job(JobId(job)); !info.has_value()) return done(Fail(info.error()));
    const bool reads = files_.Post(
        [this, job, done] { done(ReadDescription(parts_.dir->job_dir(job), job, *parts_.blobs)); });
    if (!reads) done(Fail(LoopStopped()));
  });
  if (!posted) done(Fail(LoopStopped()));
}

void ControlLoop::List(Callback<std::vector<proto::JobInfo>> done) {
  if (!loop_.Post([this, done] { done(core_.Jobs()); })) done(Fail(LoopStopped()));
}

void ControlLoop::Workers(Callback<std::vector<proto::WorkerInfo>> done) {
  if (!loop_.Post([this, done] { done(core_.Workers(now())); })) done(Fail(LoopStopped()));
}

void ControlLoop::Look(std::function<void(const Core*)> look) {
  if (!loop_.Post([this, look] { look(&core_); })) look(nullptr);
}

// ---- Watching -----------------------------------------------------------------------------------

void ControlLoop::Watch(WatchId id, WatchCursor cursor, Callback<News> done) {
  const bool posted = loop_.Post([this, id, cursor, done] {
    if (stopped_) return done(Fail(LoopStopped()));
    if (const auto info = core_.Job(JobId(cursor.job)); !info.has_value()) {
      return done(Fail(info.error()));
    }
    Waiter waiter{id, cursor, done};
    if (!AnswerOnLoop(waiter)) waiters_.emplace(cursor.job, std::move(waiter));
  });
  if (!posted) done(Fail(LoopStopped()));
}

void ControlLoop::Unwatch(WatchId id) {
  loop_.Post([this, id] {
    for (auto it = waiters_.begin(); it != waiters_.end(); ++it) {
      if (it->second.id != id) continue;
      const Callback<News> done = std::move(it->second.done);
      waiters_.erase(it);
      return done(Fail(Cancelled("the watcher went away")));
    }
  });
}

bool ControlLoop::AnswerOnLoop(Waiter& waiter) {
  WatchCursor& cursor = waiter.cursor;
  const auto info = core_.Job(JobId(cursor.job));
  if (!info.has_value()) {
    waiter.done(Fail(info.error()));
    return true;
  }
  const JobView& view = ViewOnLoop(cursor.job);
  if (view.loading) return false;
  // Lines that a killed controller told and did not write down are forgotten.
  cursor.lines = std::min(cursor.lines, view.journal.line_count());
  News news;
  news.update.info = *info;
  news.update.steps = view.journal.StepsFrom(cursor.steps, kStepsPerUpdate);
  news.update.log_lines = view.journal.LinesFrom(cursor.lines, kLinesPerUpdate);
  const bool moved = cursor.version != view.version;
  if (!moved && news.update.steps.empty() && news.update.log_lines.empty()) return false;
  news.caught_up =
      cursor.steps >= view.journal.step_count() && cursor.lines >= view.journal.line_count();
  cursor.version = view.version;
  news.last = proto::IsTerminal(info->state) && news.caught_up;
  news.cursor = cursor;
  waiter.done(std::move(news));
  return true;
}

void ControlLoop::NotifyOnLoop(int64_t job) {
  auto [it, end] = waiters_.equal_range(job);
  while (it != end) {
    it = AnswerOnLoop(it->second) ? waiters_.erase(it) : std::next(it);
  }
}

// The view of a job that is in the core. One of an earlier life has its history on disk: it is read
// behind what was appended so far, and what comes meanwhile goes behind it.
ControlLoop::JobView& ControlLoop::ViewOnLoop(int64_t job) {
  const auto [it, made] = views_.try_emplace(job);
  if (!made) return it->second;
  if (job > newest_job_) {
    newest_job_ = job;
    return it->second;
  }
  it->second.loading = true;
  // Behind what is being appended, on a thread of its own: it may be long, and weights wait for
  // that one.
  journal_.Post([this, job] {
    const std::string dir = parts_.dir->job_dir(job);
    history_.Post([this, job, dir, sizes = MeasureJournal(dir)] {
      loop_.Post([this, job, history = parts_.load_journal(dir, sizes)]() mutable {
        LoadedOnLoop(job, std::move(history));
      });
    });
  });
  return it->second;
}

void ControlLoop::LoadedOnLoop(int64_t job, Journal history) {
  const auto info = core_.Job(JobId(job));
  if (!info.has_value()) return ForgetJobOnLoop(job);
  JobView& view = views_[job];
  history.Append(view.journal);
  view.journal = std::move(history);
  view.loading = false;
  NotifyOnLoop(job);
  if (proto::IsTerminal(info->state)) RetireViewOnLoop(job);
}

// The histories of ended jobs stay for a while, the last ones used. What came while one is loading
// is nowhere else: it is retired once it has loaded.
void ControlLoop::RetireViewOnLoop(int64_t job) {
  if (const auto it = views_.find(job); it != views_.end() && it->second.loading) return;
  ended_views_.remove(job);
  ended_views_.push_back(job);
  while (ended_views_.size() > kEndedViews) {
    views_.erase(ended_views_.front());
    ended_views_.pop_front();
  }
}

// The job has left the table: who still watches it is told.
void ControlLoop::ForgetJobOnLoop(int64_t job) {
  NotifyOnLoop(job);
  views_.erase(job);
  ended_views_.remove(job);
}

// ---- Effects ----

void ControlLoop::ExecuteOnLoop(Effects effects) {
  std::set<int64_t> dropped;
  std::vector<WriteFailed> failures;
  bool place_next = false;
  for (Effect& effect : effects) {
    if (dropped.contains(JobOf(effect).value())) continue;
    auto* persist = std::get_if<Persist>(&effect);
    if (persist == nullptr) {
      place_next = place_next || std::holds_alternative<PlaceNext>(effect);
      ExecuteOne(effect);
      continue;
    }
    const Status status = Do(*persist);
    if (status.ok()) continue;
    LogError(fmt::format("state not written: {}", status.message()));
    if (!persist->required) continue;
    dropped.insert(persist->job.value());
    failures.push_back(WriteFailed{persist->job, persist->call, status});
  }
  for (const WriteFailed& failure : failures) ExecuteOnLoop(core_.Step(failure, now()));
  if (place_next) ExecuteOnLoop(core_.Step(PlaceQueue{}, now()));
}

void ControlLoop::ExecuteOne(Effect& effect) {
  if (auto* send = std::get_if<Send>(&effect)) {
    const auto it = sessions_.find(send->session.value());
    MW_FAILPOINT("controller.before-send");
    if (it != sessions_.end()) it->second->Send(Sent(std::move(send->message)));
    MW_FAILPOINT("controller.sent");
  } else if (auto* close = std::get_if<CloseSession>(&effect)) {
    const auto session = sessions_.extract(close->session.value());
    if (!session.empty()) session.mapped()->Close(close->reason);
  } else if (auto* reply = std::get_if<Reply>(&effect)) {
    const auto call = calls_.extract(reply->call.value());
    if (call.empty()) return;
    MW_FAILPOINT("controller.before-reply");
    call.mapped()(reply->status, reply->job);
  } else if (const auto* answer = std::get_if<ActorAnswer>(&effect)) {
    Do(*answer);
  } else if (auto* progress = std::get_if<SaveProgress>(&effect)) {
    files_.Post([this, p = *progress] {
      MW_FAILPOINT("controller.before-progress");
      const Status status = parts_.store->SaveProgress(p.job.value(), p.steps_done, p.loss);
      if (!status.ok()) LogWarn(fmt::format("progress not written: {}", status.message()));
    });
  } else if (auto* discard = std::get_if<DiscardWeights>(&effect)) {
    files_.Post([this, gen = discard->mesh_gen] { parts_.weights->Discard(gen); });
  } else if (auto* plan = std::get_if<StartPlan>(&effect)) {
    Do(*plan);
  } else if (auto* ahead = std::get_if<MakePlanAhead>(&effect)) {
    ahead_.Ask(std::move(*ahead), parts_.dir->job_dir(ahead->job.value()),
               [this](const PlannedAhead& planned) {
                 loop_.Post([this, planned] { StepOnLoop(planned); });
               });
  } else if (auto* open = std::get_if<OpenWeights>(&effect)) {
    Do(*open);
  } else if (auto* finish = std::get_if<FinishWeights>(&effect)) {
    Do(*finish);
  } else if (auto* commit = std::get_if<CommitHere>(&effect)) {
    Do(*commit);
  } else if (auto* check = std::get_if<CheckBlobs>(&effect)) {
    Do(*check);
  } else if (auto* steps = std::get_if<StepsDone>(&effect)) {
    Do(*steps);
  } else if (auto* line = std::get_if<LogLine>(&effect)) {
    Do(*line);
  } else if (auto* changed = std::get_if<JobChanged>(&effect)) {
    Do(*changed);
  } else if (auto* counted = std::get_if<JobCounted>(&effect)) {
    parts_.metrics->Count(counted->job.value(), counted->what, now().unix_ms);
  } else if (auto* health = std::get_if<HealthChanged>(&effect)) {
    parts_.metrics->SetHealth(health->job.value(), health->stalled, health->slow_ranks);
  } else if (auto* recorded = std::get_if<StepsRecorded>(&effect)) {
    if (parts_.story != nullptr) parts_.story->OnRecorded(std::move(*recorded));
  } else if (auto* begins = std::get_if<RunBegins>(&effect)) {
    parts_.metrics->SetPlan(begins->job.value(), begins->flops_per_step, begins->peak_flops_per_s);
    if (parts_.story != nullptr) parts_.story->OnRun(begins->job, begins->layout);
  } else if (auto* tell = std::get_if<TellClient>(&effect)) {
    Do(*tell);
  } else if (auto* gone = std::get_if<CloseClient>(&effect)) {
    Do(*gone);
  }
}

Status ControlLoop::Do(Persist& effect) {
  if (!effect.batch.jobs.empty() && !effect.batch.process_only) AwaitQueue(journal_);
  const int64_t begin_ns = SystemClock().NowNs();
  MW_FAILPOINT("controller.before-persist");
  const Status status = parts_.store->Apply(effect.batch);
  MW_FAILPOINT("controller.persisted");
  parts_.metrics->ObserveCommit(static_cast<double>(SystemClock().NowNs() - begin_ns) * 1e-9);
  for (const EventRecord& event : effect.batch.events) {
    LogInfo(event.job == 0 ? event.text : fmt::format("job {}: {}", event.job, event.text));
  }
  if (!status.ok()) return status;
  for (const int64_t job : effect.batch.deleted_jobs) {
    ForgetJobOnLoop(job);
    files_.Post([job, dir = parts_.dir->job_dir(job)] {
      const Status removed = RemoveAll(dir);
      if (!removed.ok()) LogWarn(fmt::format("job {}: {}", job, removed.message()));
    });
  }
  return OkStatus();
}

void ControlLoop::Do(StartPlan& effect) {
  planner_.Post([this, e = std::move(effect)] {
    if (stopping_) return;
    bool misfit = false;
    Result<PlannedJob> plan = Guarded("the planner", [&] {
      return PlanJob(parts_.make_plan, *e.request, AsMeasured(e.topology, parts_.story),
                     *parts_.blobs,
                     {parts_.dir->job_dir(e.job.value()), false, parts_.on_plan, e.job}, misfit);
    });
    if (plan.has_value()) parts_.metrics->ObservePlan(plan->seconds);
    loop_.Post([this, job = e.job, attempt = e.attempt, plan = std::move(plan), misfit] {
      StepOnLoop(PlanFinished{job, attempt, plan, misfit});
    });
  });
}

void ControlLoop::Do(OpenWeights& effect) {
  files_.Post([this, e = std::move(effect)] {
    const std::string path = parts_.dir->job_dir(e.job.value()) + "/model.safetensors";
    std::shared_ptr<const ir::Graph> loss(e.request, &e.request->main().graph);
    const Status status = parts_.weights->Open(e.mesh_gen, path, std::move(loss));
    loop_.Post([this, gen = e.mesh_gen, status] { StepOnLoop(WeightsFile{gen, false, status}); });
  });
}

void ControlLoop::Do(FinishWeights& effect) {
  files_.Post([this, gen = effect.mesh_gen] {
    const Status status = parts_.weights->Finish(gen);
    loop_.Post([this, gen, status] { StepOnLoop(WeightsFile{gen, true, status}); });
  });
}

void ControlLoop::Do(CommitHere& effect) {
  checkpoints_.Post([this, commit = std::move(effect.commit)] {
    const proto::CheckpointCommitted done = parts_.checkpoints->CommitGuarded(commit);
    MW_FAILPOINT("controller.commit.before-report");
    loop_.Post([this, done] { StepOnLoop(CommittedHere{done}); });
  });
}

void ControlLoop::Do(const CheckBlobs& effect) {
  history_.Post([this, e = effect] {
    for (const std::string& sha256 : e.sha256s) parts_.blobs->Verify(sha256, true);
  });
}

void ControlLoop::Do(StepsDone& effect) {
  JobView& view = ViewOnLoop(effect.job.value());
  std::string text;
  for (const proto::StepMetrics& step : effect.steps) {
    view.journal.AddStep(step);
    text += FormatStep(step);
  }
  MW_FAILPOINT("controller.before-steps");
  parts_.metrics->ObserveSteps(effect.job.value(), effect.steps, now().unix_ms);
  AppendToJob(effect.job, "metrics.jsonl", std::move(text));
  MW_FAILPOINT("controller.steps-told");
  touched_.insert(effect.job.value());
}

void ControlLoop::Do(LogLine& effect) {
  std::string line = FormatLine(effect.line, now().unix_ms);
  const int64_t job = effect.job.value();
  ViewOnLoop(job).journal.AddLine(line.substr(0, line.size() - 1));
  AppendToJob(effect.job, "job.log", std::move(line));
  touched_.insert(job);
}

void ControlLoop::Do(JobChanged& effect) {
  const int64_t job = effect.job.value();
  ++ViewOnLoop(job).version;
  touched_.insert(job);
  const auto info = core_.Job(effect.job);
  if (info.has_value()) TellState(*parts_.metrics, *info);
  if (!info.has_value() || !proto::IsTerminal(info->state)) return;
  RetireViewOnLoop(job);
  loop_.PostAfter(kJobSeriesMs, [this, job] { parts_.metrics->ForgetJob(job); });
}

}  // namespace meshwright::controller
