#include "worker/agent.h"

#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/executor.h"
#include "base/failpoint.h"
#include "base/listen_address.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread_team.h"
#include "proto/mesh_of.h"
#include "security/metrics_port.h"
#include "worker/actor_hosts.h"
#include "worker/agent_metrics.h"
#include "worker/blob_cache.h"
#include "worker/core_claims.h"
#include "worker/executors.h"
#include "worker/held_meshes.h"
#include "worker/machine_metrics.h"
#include "worker/registration.h"

namespace meshwright::worker {
namespace {

constexpr int64_t kBackoffMinMs = 50;
constexpr int64_t kBackoffMaxMs = 2000;
// Jobs wait for the controller.
constexpr int64_t kBackoffHoldingMs = 500;
constexpr int64_t kLeaveFlushMs = 1000;
// Meshes that this worker may hold, and the end of its session.
constexpr size_t kErrands = 1024;
constexpr int64_t kDiskProbeMs = 1000;

int64_t NowMs() { return SystemClock().NowMs(); }

std::string DefaultName() {
  char host[256] = "worker";
  (void)::gethostname(host, sizeof(host) - 1);
  return fmt::format("{}-{}", host, ::getpid());
}

// What a device may use when nothing was said: an equal part of four fifths of the machine.
int64_t DefaultMemoryBytes(int devices) {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return 0;
  const double total = static_cast<double>(info.totalram) * static_cast<double>(info.mem_unit);
  return static_cast<int64_t>(total * 0.8 / devices);
}

// Refusals that stay refusals.
bool IsFinal(const Status& status) {
  return status.code() == StatusCode::kUnauthenticated ||
         status.code() == StatusCode::kFailedPrecondition ||
         status.code() == StatusCode::kInvalidArgument ||
         status.code() == StatusCode::kPermissionDenied ||
         status.code() == StatusCode::kUnimplemented;
}

Status CheckOptions(const AgentOptions& options) {
  if (options.devices < 1 || options.threads_per_device < 1) {
    return InvalidArgument(fmt::format("{} devices of {} threads; both must be at least 1",
                                       options.devices, options.threads_per_device));
  }
  const bool any = options.data_bind == "0.0.0.0" || options.data_bind == "::";
  if (any && options.advertise.empty()) {
    return InvalidArgument(
        fmt::format("the data address is {}, which peers cannot dial; pass --advertise ADDRESS",
                    options.data_bind));
  }
  return OkStatus();
}

// False: the message is not of an actor.
bool HandOn(ActorHosts& actors, proto::DownBody& body) {
  if (auto* spawn = std::get_if<proto::SpawnActor>(&body)) {
    actors.Handle(std::move(*spawn));
  } else if (auto* message = std::get_if<proto::ActorMessage>(&body)) {
    actors.Handle(std::move(*message));
  } else if (const auto* stop = std::get_if<proto::StopActor>(&body)) {
    actors.Handle(*stop);
  } else {
    return false;
  }
  return true;
}

std::vector<proto::MeshMarks> MarksOf(const std::vector<std::shared_ptr<RunningMesh>>& meshes) {
  std::vector<proto::MeshMarks> all;
  for (const auto& mesh : meshes) {
    if (all.size() == proto::kMostMarkedMeshes) break;
    if (auto marks = mesh->Marks()) all.push_back(*std::move(marks));
  }
  return all;
}

class AgentImpl final : public Agent {
 public:
  AgentImpl(AgentOptions options, std::unique_ptr<ControllerLink> link)
      : options_(std::move(options)), link_(std::move(link)) {
    options_.data_bind = NumericHost(options_.data_bind);
  }
  ~AgentImpl() override {
    Stop();
    if (options_.log) options_.log->Settle();
    reaper_thread_.Stop();
  }

  Status Start() {
    MW_TRY(CheckOptions(options_));
    MW_ASSIGN_OR_RETURN(resources_.transport, collective::ParseTransport(options_.transport));
    if (options_.name.empty()) options_.name = DefaultName();
    if (options_.host_id.empty()) options_.host_id = collective::LocalHostId();
    if (options_.memory_bytes == 0) {
      options_.memory_bytes = options_.gpus.driver == nullptr ? DefaultMemoryBytes(options_.devices)
                                                              : options_.gpus.memory_bytes;
    }
    std::shared_ptr<collective::Tls> tls;
    if (!options_.tls_dir.empty()) {
      MW_ASSIGN_OR_RETURN(tls, collective::MakeTls(options_.tls_dir));
    }
    MW_ASSIGN_OR_RETURN(resources_.listener,
                        collective::MakeListener(options_.data_bind, options_.data_port, tls));
    if (link_ == nullptr) {
      link_ = MakeGrpcLink({options_.controller, options_.token, options_.tls_dir});
    }
    MW_ASSIGN_OR_RETURN(blobs_, BlobCache::Open(options_.cache_dir, link_.get()));
    MW_ASSIGN_OR_RETURN(roots_, data::Roots::Open(options_.data_roots));
    MW_ASSIGN_OR_RETURN(checkpoint_roots_, checkpoint::Roots::Open(options_.checkpoint_roots));
    AddProcessMetrics(registry_);
    metrics_ = std::make_unique<AgentMetrics>(registry_, options_.name);
    metrics_->SetDevices(options_.devices, options_.memory_bytes);
    registry_.AddRefresh([this] { RefreshMetrics(); });
    AddMachineMetrics(registry_, {options_.cache_dir, options_.scratch.folder}, options_.gpus);
    if (options_.metrics_port >= 0) {
      MW_ASSIGN_OR_RETURN(http_, security::MetricsPort::Start(MetricsPortOf(options_), registry_));
      http_->server().SetHealth([this] {
        return pulse_.joined() ? OkStatus() : Unavailable("it looks for the controller");
      });
    }
    FillResources();
    executors_ =
        MakeExecutors(resources_, {options_.executor_command, options_.controller, options_.token,
                                   options_.tls_dir, options_.executor_end_ms});
    register_ = RegisterOf(options_, roots_, checkpoint_roots_, resources_.listener->port());
    if (http_) register_.metrics_address = MetricsAddressOf(options_, http_->port());
    thread_ = std::thread([this] { Run(); });
    return OkStatus();
  }

  int metrics_port() const override { return http_ ? http_->port() : -1; }
  const Pulse& pulse() const override { return pulse_; }

  Status Wait(int64_t timeout_ms) override {
    const MutexLock lock(mutex_);
    const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (!ended_ && wake_.WaitUntil(mutex_, due)) {
    }
    return ended_ ? end_ : DeadlineExceeded("the worker is running");
  }

  void Drain(int64_t drain_ms) override {
    std::shared_ptr<Session> session;
    {
      const MutexLock lock(mutex_);
      draining_ = true;
      session = session_;
      wake_.NotifyAll();
    }
    if (session) return Send(*session, proto::Leave{"it was asked to stop", drain_ms, {}});
    End(OkStatus());  // nobody has work here
  }

  void Stop() override {
    std::shared_ptr<Session> session;
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      session = session_;
      wake_.NotifyAll();
    }
    if (session) {
      Send(*session, proto::Leave{"it was asked to stop", 0, {}});
      AbortAll(Aborted(fmt::format("worker '{}' was stopped", options_.name)));
      session->Close(kLeaveFlushMs);
    }
    if (link_) link_->CancelBulk();
    if (thread_.joinable()) thread_.join();
    http_.reset();
  }

 private:
  void FillResources() {
    resources_.worker = options_.name;
    resources_.devices = options_.devices;
    resources_.threads_per_device = options_.threads_per_device;
    if (options_.pin && options_.gpus.driver == nullptr) {
      const int threads = options_.devices * options_.threads_per_device;
      claims_ = CoreClaims::Take(threads);
      resources_.cores = claims_.cores();
      if (resources_.cores.empty()) {
        LogWarn(fmt::format("devices are not pinned: fewer than {} unclaimed cores", threads));
      }
    }
    resources_.memory_bytes = options_.memory_bytes;
    resources_.host_link_bytes_per_s = options_.host_link_bytes_per_s;
    resources_.scratch = options_.scratch;
    resources_.collective_timeout_ms = options_.collective_timeout_ms;
    resources_.gpus = options_.gpus;
    resources_.blobs = blobs_.get();
    resources_.roots = &roots_;
    resources_.checkpoint_roots = &checkpoint_roots_;
    snapshots_ = std::make_unique<SnapshotStore>(resources_.listener);
    resources_.snapshots = snapshots_.get();
    resources_.link = link_.get();
    resources_.host_actors = options_.host_actors;
    resources_.metrics = metrics_.get();
    resources_.device_lost = [this](const Status& cause) { OnDeviceLost(cause); };
  }

  // ---- Sessions, one after the other ----

  void Run() {
    const Status end = RunSessions();
    std::vector<MeshGeneration> rest;
    for (const proto::HeldMesh& mesh : held_.Listed()) rest.push_back(mesh.mesh_gen);
    DropMeshes(rest, "the worker ends");
    End(end);
  }

  Status RunSessions() {
    const Deadline first_contact = Deadline::After(options_.connect_timeout_ms);
    int64_t backoff_ms = kBackoffMinMs;
    Status last = Unavailable("not tried yet");
    while (!Leaving()) {
      AwaitDisk();
      last = RunSession(first_contact, backoff_ms);
      if (Leaving()) break;
      DropMeshes(held_.Expire(NowMs()), "no controller took the mesh up in its grace time");
      if (const Status lost = LostDevice(); !lost.ok()) {
        LogError(fmt::format("giving up: {}", lost.message()));
        return lost;
      }
      const bool given_up = !welcomed_ && first_contact.expired();
      // An old controller may answer, and the right one come back.
      if ((IsFinal(last) || given_up) && !held_.any()) {
        LogError(fmt::format("giving up: {}", last.message()));
        return last;
      }
      LogWarn(fmt::format("session ended: {}; trying again", last.message()));
      PauseFor(backoff_ms);
      backoff_ms = std::min(backoff_ms * 2, held_.any() ? kBackoffHoldingMs : kBackoffMaxMs);
    }
    return OkStatus();
  }

  // Returns why the session ended. The meshes that are not held are gone by then.
  Status RunSession(const Deadline& first_contact, int64_t& backoff_ms) {
    const int64_t patience_ms = welcomed_ ? kBackoffMaxMs : first_contact.remaining_ms();
    auto opened = link_->OpenSession(std::clamp<int64_t>(patience_ms, 1, kBackoffMaxMs));
    if (!opened.has_value()) {
      if (opened.error().code() != StatusCode::kUnavailable) return opened.error();
      return Unavailable(
          fmt::format("{}; start it with 'meshwright controller', or pass --address HOST:PORT",
                      opened.error().message()));
    }
    std::shared_ptr<Session> session = std::move(*opened);
    {
      const MutexLock lock(mutex_);
      if (stopping_ || draining_) return OkStatus();
      session_ = session;
    }
    register_.meshes = held_.Listed();
    session->Send(proto::MakeUp(Term(0), register_));
    // Its processes end with the session, behind the meshes, which are told at once.
    ActorHosts actors(options_.host_actors,
                      [this, session](proto::UpBody body) { Send(*session, std::move(body)); });
    Status end = Serve(session, actors, backoff_ms);
    {
      const MutexLock lock(mutex_);
      session_.reset();
    }
    pulse_.Leave();
    const std::vector<MeshGeneration> ending = held_.Part(NowMs());
    const std::string why = fmt::format("the session with the controller ended: {}", end.message());
    Abort(ending, why);
    link_->CancelBulk();
    DropMeshes(ending, why);
    return end;
  }

  Status Serve(const std::shared_ptr<Session>& session, ActorHosts& actors, int64_t& backoff_ms) {
    MW_ASSIGN_OR_RETURN(const proto::DownMessage first, session->Receive());
    const auto* welcome = std::get_if<proto::Welcome>(&first.body);
    if (welcome == nullptr) return Internal("the controller's first message is not a welcome");
    MW_TRY(TakeWelcome(options_.controller, first.term, *welcome, register_));
    term_ = first.term;
    backoff_ms = kBackoffMinMs;
    welcomed_ = true;
    takes_logs_ = welcome->takes_logs;
    pulse_.Join();
    MW_FAILPOINT("worker.joined");
    LogInfo(fmt::format("'{}' joined cluster {} (term {}) at {}", options_.name,
                        welcome->cluster_id, first.term.value(), options_.controller));
    // A thread of their own, so that neither loading nor training delays them. It ends before the
    // session does.
    Executor heartbeats("mw-heartbeat");
    Beat(heartbeats, *session, std::max<int64_t>(welcome->heartbeat_ms, 10));
    // What does not go on is gone before anything else is loaded.
    DropMeshes(
        held_.Resume(welcome->meshes,
                     [this, session](proto::UpBody body) { Send(*session, std::move(body)); }),
        "the controller does not go on with the mesh");
    while (true) {
      MW_ASSIGN_OR_RETURN(proto::DownMessage message, session->Receive());
      if (message.term != term_) {
        return FailedPrecondition(fmt::format("a message of term {} in a session of term {}",
                                              message.term.value(), term_.load().value()));
      }
      if (HandOn(actors, message.body)) continue;
      const auto tell = [this, session](proto::UpBody body) { Send(*session, std::move(body)); };
      if (snapshots_->Handle(message.body, tell)) continue;
      if (options_.log && options_.log->Handle(message.body, tell)) continue;
      if (std::holds_alternative<proto::Drained>(message.body)) {
        End(OkStatus());  // Stop() takes the leave
        continue;
      }
      Dispatch(session, std::move(message.body));
    }
  }

  void Send(Session& session, proto::UpBody body) {
    session.Send(proto::MakeUp(term_.load(), std::move(body)));
  }

  void Beat(Executor& thread, Session& session, int64_t period_ms) {
    pulse_.Beat();
    session.Send(proto::MakeHeartbeat(term_.load(), MarksOf(AllMeshes())));
    if (auto news = NewsOf(options_.log.get(), takes_logs_)) Send(session, *std::move(news));
    thread.PostAfter(period_ms,
                     [this, &thread, &session, period_ms] { Beat(thread, session, period_ms); });
  }

  // ---- Meshes ----

  void Dispatch(const std::shared_ptr<Session>& session, proto::DownBody body) {
    const std::optional<MeshGeneration> gen = proto::MeshOf(body);
    if (!gen) return;
    if (std::holds_alternative<proto::LoadMesh>(body)) {
      return OnLoad(session, *gen, std::move(body));
    }
    held_.NoteTold(*gen, body);
    const bool ends = std::holds_alternative<proto::AbortMesh>(body) ||
                      std::holds_alternative<proto::ReleaseMesh>(body);
    if (const auto mesh = Find(*gen)) {
      mesh->Handle(std::move(body));
    } else if (ends) {
      Send(*session, proto::MeshReleased{*gen});
    }
  }

  void OnLoad(const std::shared_ptr<Session>& session, MeshGeneration gen, proto::DownBody load) {
    if (Find(gen)) return;  // a repeated message
    // The mesh's end must find room, whatever else is going on.
    auto credit =
        std::make_shared<std::optional<actor::OwnerLoop<Errand>::Credit>>(reaper_.Reserve());
    if (!*credit) {
      const Status full = ResourceExhausted(
          fmt::format("worker '{}' has {} meshes, the most at once", options_.name, kErrands));
      return Send(*session, proto::Loaded{gen, MakeError(proto::ErrorKind::kLoadFailed, full,
                                                         options_.name)});
    }
    held_.Open(std::get<proto::LoadMesh>(load),
               [this, session](proto::UpBody body) { Send(*session, std::move(body)); });
    auto mesh = executors_->Start(
        gen,
        {[this, gen](proto::UpBody body) {
           if (const auto* loaded = std::get_if<proto::Loaded>(&body)) {
             LeaveWithABrokenDisk(gen, loaded->error);
           }
           held_.Say(gen, std::move(body));
         },
         [this, gen, credit] { (void)reaper_.Offer(std::move(**credit), Errand(Released{gen})); }});
    {
      const MutexLock lock(mutex_);
      meshes_[gen.value()] = mesh;
    }
    mesh->Handle(std::move(load));
  }

  std::shared_ptr<RunningMesh> Find(MeshGeneration gen) {
    const MutexLock lock(mutex_);
    const auto it = meshes_.find(gen.value());
    return it == meshes_.end() ? nullptr : it->second;
  }

  std::vector<std::shared_ptr<RunningMesh>> AllMeshes() {
    const MutexLock lock(mutex_);
    std::vector<std::shared_ptr<RunningMesh>> all;
    for (const auto& [gen, host] : meshes_) all.push_back(host);
    return all;
  }

  void Drop(MeshGeneration gen) {
    std::shared_ptr<RunningMesh> host;
    {
      const MutexLock lock(mutex_);
      const auto it = meshes_.find(gen.value());
      if (it == meshes_.end()) return;
      host = std::move(it->second);
      meshes_.erase(it);
    }
    host.reset();
    held_.Close(gen);
    LeaveWithABrokenDisk(gen, {});
  }

  // Whatever job comes would fail: who has no disk to keep programs on asks for none. It joins
  // again when the disk works; jobs that run meanwhile are let run. It is said with the failure of
  // the mesh that met it, and not after it: the job's next run would be sent here again.
  void LeaveWithABrokenDisk(MeshGeneration gen, const proto::RuntimeError& failure) {
    const Status disk = blobs_->DiskStatus();
    if (disk.ok()) return;
    std::shared_ptr<Session> session;
    {
      const MutexLock lock(mutex_);
      if (meshes_.size() > meshes_.count(gen.value()) || stopping_) return;
      session = session_;
    }
    if (!session) return;
    const std::string why = fmt::format("its disk does not work: {}", disk.message());
    LogError(fmt::format("leaving until it does: {}", why));
    Send(*session, proto::Leave{why, 0, failure});
    (void)reaper_.Offer(Errand(CloseSession{session}));
  }

  void AwaitDisk() {
    while (!Leaving()) {
      const Status disk = blobs_->ProbeDisk();
      if (disk.ok()) return;
      PauseFor(kDiskProbeMs);
    }
  }

  void AbortAll(const Status& cause) {
    for (const auto& host : AllMeshes()) host->Abort(cause);
  }

  void Abort(const std::vector<MeshGeneration>& gens, const std::string& why) {
    for (const MeshGeneration gen : gens) {
      if (const auto mesh = Find(gen)) mesh->Abort(Unavailable(why));
    }
  }

  // Waits for their threads: nothing is heard of these meshes any more.
  void DropMeshes(const std::vector<MeshGeneration>& gens, const std::string& why) {
    Abort(gens, why);
    std::vector<std::shared_ptr<RunningMesh>> dropped;
    {
      const MutexLock lock(mutex_);
      for (const MeshGeneration gen : gens) {
        const auto it = meshes_.find(gen.value());
        if (it == meshes_.end()) continue;
        dropped.push_back(std::move(it->second));
        meshes_.erase(it);
      }
    }
    if (!dropped.empty()) LogInfo(fmt::format("{} meshes dropped: {}", dropped.size(), why));
  }

  void RefreshMetrics() {
    for (const auto& host : AllMeshes()) host->RefreshMetrics();
  }

  // Called by a mesh's thread, which has reported the error. Where meshes run in this process only
  // another one can use the device again; otherwise new processes have tried. This one leaves, and
  // whoever supervises it starts it anew.
  void OnDeviceLost(const Status& cause) {
    std::shared_ptr<Session> session;
    {
      const MutexLock lock(mutex_);
      if (!lost_device_.ok()) return;
      lost_device_ = cause;
      session = session_;
    }
    if (!session) return;
    Send(*session, proto::Leave{fmt::format("it has lost a device: {}", cause.message()), 0, {}});
    (void)reaper_.Offer(Errand(CloseSession{session}));
  }

  Status LostDevice() {
    const MutexLock lock(mutex_);
    return lost_device_;
  }

  // ---- Errands: what a thread cannot do that itself is ended by it ----

  struct Released {
    MeshGeneration gen;
  };
  struct CloseSession {
    std::shared_ptr<Session> session;
  };
  using Errand = std::variant<Released, CloseSession>;

  void On(const Released& released) { Drop(released.gen); }
  static void On(const CloseSession& close) { close.session->Close(kLeaveFlushMs); }

  // ---- Ends ----

  bool Leaving() {
    const MutexLock lock(mutex_);
    return stopping_ || draining_;
  }

  void PauseFor(int64_t ms) {
    const MutexLock lock(mutex_);
    const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    while (!stopping_ && !draining_ && wake_.WaitUntil(mutex_, due)) {
    }
  }

  void End(Status status) {
    const MutexLock lock(mutex_);
    ended_ = true;
    end_ = std::move(status);
    wake_.NotifyAll();
  }

  AgentOptions options_;
  Pulse pulse_{SystemClock()};
  // In the order of their dependence: what is below uses what is above.
  MetricsRegistry registry_;
  std::unique_ptr<ControllerLink> link_;
  std::unique_ptr<BlobCache> blobs_;
  data::Roots roots_;
  checkpoint::Roots checkpoint_roots_;
  std::unique_ptr<AgentMetrics> metrics_;
  CoreClaims claims_;
  HostResources resources_;
  std::unique_ptr<SnapshotStore> snapshots_;
  std::unique_ptr<Executors> executors_;
  HeldMeshes held_{options_.orphan_grace_ms};
  proto::Register register_;             // of the session thread once it runs
  bool welcomed_ = false;                // of the session thread
  std::atomic<bool> takes_logs_{false};  // the controller
  std::atomic<Term> term_{Term(0)};      // of the session
  // Before the meshes, which hold credits of it; its thread ends before both.
  Executor reaper_thread_{"mw-reaper"};
  actor::ExecutorScheduler reaper_scheduler_{reaper_thread_};
  actor::OwnerLoop<Errand> reaper_{reaper_scheduler_, kErrands, [this](const Errand& errand) {
                                     std::visit([this](const auto& body) { this->On(body); },
                                                errand);
                                   }};
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ MW_GUARDED_BY(mutex_) = false;
  bool draining_ MW_GUARDED_BY(mutex_) = false;
  bool ended_ MW_GUARDED_BY(mutex_) = false;
  Status end_ MW_GUARDED_BY(mutex_);
  Status lost_device_ MW_GUARDED_BY(mutex_);
  std::shared_ptr<Session> session_ MW_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<RunningMesh>> meshes_ MW_GUARDED_BY(mutex_);
  std::unique_ptr<security::MetricsPort> http_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Agent>> Agent::Start(AgentOptions options,
                                            std::unique_ptr<ControllerLink> link) {
  auto agent = std::make_unique<AgentImpl>(std::move(options), std::move(link));
  MW_TRY(agent->Start());
  return std::unique_ptr<Agent>(std::move(agent));
}

}  // namespace meshwright::worker
