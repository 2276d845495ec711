#include "controller/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/disk_metrics.h"
#include "base/file.h"
#include "base/line_log.h"
#include "base/listen_address.h"
#include "base/log.h"
#include "base/tls_identity.h"
#include "controller/audit_log.h"
#include "controller/auth.h"
#include "controller/await.h"
#include "controller/checkpoint_store.h"
#include "controller/control_loop.h"
#include "controller/fleet_metrics.h"
#include "controller/grpc/rpc_server.h"
#include "controller/scrape_targets.h"
#include "controller/server_impl.h"
#include "controller/trust.h"
#include "controller/worker_logs.h"
#include "search/find_layout.h"
#include "security/certificate.h"
#include "security/metrics_port.h"

namespace meshwright::controller {
namespace {

constexpr size_t kOwnLogSegmentBytes = size_t{1} << 20;  // four of them

std::string RandomKey() {
  std::random_device device;
  std::string key;
  for (int i = 0; i < 8; ++i) key += fmt::format("{:08x}", device());
  return key;
}

// What keys of files are made from, the same in every life of this state folder.
Result<std::string> FilesKey(const StateDir& dir) {
  auto key = ReadFile(dir.files_key_path());
  if (key.has_value() && !key->empty()) return key;
  if (!key.has_value() && key.error().code() != StatusCode::kNotFound) return key;
  std::string made = RandomKey();
  MW_TRY(WriteFileAtomic(dir.files_key_path(), made, 0600));
  return made;
}

// An identity that cannot serve is said at the start, not to each caller.
Status CheckOwnIdentity(const std::string& folder) {
  if (folder.empty()) return OkStatus();
  MW_ASSIGN_OR_RETURN(const TlsIdentity identity, LoadTlsIdentity(folder));
  const auto subject = security::CheckIdentity(identity, {security::Role::kController},
                                               SystemClock().UnixMs() / 1000);
  return subject.has_value() ? OkStatus() : subject.error().WithContext(folder);
}

Result<std::unique_ptr<Trust>> TrustOf(const std::string& authority_dir, const std::string& book) {
  if (authority_dir.empty()) return nullptr;
  MW_ASSIGN_OR_RETURN(auto authority, security::Authority::Load(authority_dir));
  MW_ASSIGN_OR_RETURN(auto issued, security::IssueBook::Open(book, SystemClock().UnixMs() / 1000));
  return std::make_unique<Trust>(std::move(authority), std::move(issued));
}

Result<FleetView> FleetOf(const Core& core) {
  const Now now{SystemClock().NowMs(), SystemClock().UnixMs()};
  return FleetView{now.unix_ms, core.Jobs(), core.Workers(now), core.DeviceJobs()};
}

// What this process logs while it lives. A disk that takes nothing is no reason to stop.
class OwnLog {
 public:
  // Null: it is not wanted.
  static Result<std::unique_ptr<OwnLog>> Of(const ServerOptions& options, const StateDir& dir) {
    if (!options.keeps_log) return nullptr;
    MW_ASSIGN_OR_RETURN(auto lines, LineLog::Open({.folder = dir.own_log_dir(),
                                                   .name = "controller",
                                                   .segment_bytes = kOwnLogSegmentBytes}));
    return std::unique_ptr<OwnLog>(new OwnLog(std::move(lines)));
  }
  ~OwnLog() { SetLogSink(nullptr); }
  OwnLog(const OwnLog&) = delete;
  OwnLog& operator=(const OwnLog&) = delete;

  const LineLog* lines() const { return lines_.get(); }

 private:
  explicit OwnLog(std::unique_ptr<LineLog> lines) : lines_(std::move(lines)) {
    SetLogSink([log = lines_.get()](LogLevel, std::string_view line) { (void)log->Add(line); });
  }

  const std::unique_ptr<LineLog> lines_;
};

// The server behind a front that speaks TLS sees the front alone.
HttpReply Ask(Site& site, const security::MetricsPort& port, HttpRequest request) {
  request.from = port.CallerOf(request);
  return site.Answer(request);
}

class ServerImpl final : public ServerWithCounters {
 public:
  ~ServerImpl() override { Stop(); }

  Status Start(const ServerOptions& options, ServerHooks hooks) {
    MW_TRY(CheckBind(options.bind,
                     {!options.tls_dir.empty(), options.insecure, !options.token.empty()}));
    MW_TRY(CheckOwnIdentity(options.tls_dir));
    MW_ASSIGN_OR_RETURN(StateDir dir, StateDir::Open(options.state_dir));
    dir_ = std::make_unique<StateDir>(std::move(dir));
    MW_ASSIGN_OR_RETURN(own_log_, OwnLog::Of(options, *dir_));
    MW_ASSIGN_OR_RETURN(store_, OpenSqliteStore(dir_->store_path(), dir_->LastJob()));
    MW_ASSIGN_OR_RETURN(blobs_, BlobStore::Open(dir_->blobs_dir(), options.limits.blobs));
    const std::string& root = options.checkpoint_root;
    MW_ASSIGN_OR_RETURN(checkpoints_,
                        CheckpointStore::Open(root.empty() ? dir_->checkpoints_dir() : root,
                                              options.limits.keep_free_bytes));
    MW_ASSIGN_OR_RETURN(logs_, WorkerLogs::Open(dir_->logs_dir(), SystemClock()));
    AddProcessMetrics(registry_);
    metrics_ = std::make_unique<ControllerMetrics>(registry_);
    CoreOptions core;
    core.secret_key = RandomKey();
    MW_ASSIGN_OR_RETURN(core.files_key, FilesKey(*dir_));
    core.jobs_dir = dir_->jobs_dir();
    core.first_job = FirstJob();
    core.max_request_bytes = options.limits.job_request_bytes;
    core.heartbeat_ms = options.heartbeat_ms;
    core.worker_lost_ms = options.worker_lost_ms;
    // As long as a silent worker has, and as a worker's pauses between two attempts may take.
    core.resume_deadline_ms = std::max<int64_t>(options.worker_lost_ms, 3000);
    core.quarantine_failures = options.quarantine_failures;
    core.return_after_ms = options.return_after_s * 1000;
    core.suspect_ms = std::max(options.worker_lost_ms * 5 / 12, 2 * options.heartbeat_ms);
    core.infeasible_grace_ms = options.infeasible_grace_ms;
    if (hooks.adjust) hooks.adjust(core);
    ControlParts parts{store_.get(),
                       blobs_.get(),
                       &weights_,
                       metrics_.get(),
                       dir_.get(),
                       checkpoints_.get(),
                       std::move(hooks.make_plan)};
    story_ = options.story;
    parts.story = story_.get();
    if (story_ != nullptr) {
      story_->Listen([this](const StepFigures& figures) { metrics_->SetStepFigures(figures); },
                     options.on_plan);
    }
    parts.on_plan = [story = story_, draw = options.on_plan](const MadePlan& made) {
      if (story != nullptr) story->OnPlan(made);
      if (draw && !made.ahead) draw(made);
    };
    loop_ = std::make_unique<ControlLoop>(core, std::move(parts));
    // Before anyone can ask: a call of a client must find the jobs of the controller's last life.
    loop_->Start();
    StartFleetMetrics(root.empty() ? dir_->checkpoints_dir() : root);
    MW_TRY(StartRpc(options));
    MW_TRY(StartMetrics(options));
    LogInfo(fmt::format("listening on {}, state in {}, term {}",
                        FormatHostPort(options.bind, port()), dir_->root(),
                        loop_->options().term.value()));
    return OkStatus();
  }

  int port() const override { return rpc_ ? rpc_->port() : 0; }
  int metrics_port() const override { return http_ ? http_->port() : -1; }

  Status Answers() override {
    return internal::ToStatus(
        Await<Summary>([this](auto done) { LookAt<Summary>(*loop_, Summarise, std::move(done)); }));
  }

  void Stop() override {
    if (loop_) loop_->Stop();
    // Who asks it is answered before calls are waited for.
    if (story_) story_->Stop();
    if (logs_) logs_->Stop();
    if (rpc_) rpc_->Shutdown();
    if (site_) site_->Stop();
    http_.reset();
    site_.reset();
  }

  ControlLoop& loop() override { return *loop_; }

  std::map<std::string, int64_t> MessageCounts(int64_t job) override {
    auto counts = Await<std::map<std::string, int64_t>>([&](auto done) {
      const auto see = [job](const Core& core) -> Result<std::map<std::string, int64_t>> {
        return core.MessageCounts(JobId(job));
      };
      LookAt<std::map<std::string, int64_t>>(*loop_, see, std::move(done));
    });
    return counts.has_value() ? *counts : std::map<std::string, int64_t>{};
  }

 private:
  // Folders of jobs that the database does not know are left alone: no id is given twice.
  int64_t FirstJob() const {
    const auto& jobs = store_->opened().jobs;
    const int64_t known = jobs.empty() ? 0 : jobs.back().id;
    const int64_t last = dir_->LastJob();
    if (last > known) {
      LogError(
          fmt::format("{} knows jobs up to {}, but there is a folder of job {}: later history "
                      "was lost; new jobs are numbered from {} on",
                      dir_->store_path(), known, last, last + 1));
    }
    return std::max(known, last) + 1;
  }

  // At each scrape.
  void StartFleetMetrics(const std::string& checkpoint_root) {
    fleet_ = std::make_unique<FleetMetrics>(registry_, *metrics_);
    registry_.AddRefresh([this, checkpoint_root] {
      const auto view =
          Await<FleetView>([&](auto done) { LookAt<FleetView>(*loop_, FleetOf, std::move(done)); });
      if (view.has_value()) fleet_->Observe(*view);
      SetDiskMetrics(registry_, "state", dir_->root());
      SetDiskMetrics(registry_, "checkpoints", checkpoint_root);
    });
  }

  Status StartRpc(const ServerOptions& options) {
    MW_ASSIGN_OR_RETURN(audit_, AuditLog::Open(dir_->audit_path()));
    MW_ASSIGN_OR_RETURN(trust_, TrustOf(options.authority_dir, dir_->issued_path()));
    RpcParts parts;
    parts.loop = loop_.get();
    parts.blobs = blobs_.get();
    parts.weights = &weights_;
    parts.metrics = metrics_.get();
    parts.access = {options.token, options.viewer_token, options.operator_token};
    parts.audit = audit_.get();
    parts.trust = trust_.get();
    parts.tls_dir = options.tls_dir;
    parts.limits = options.limits;
    parts.local_path = LocalSocketIn(options.state_dir);
    parts.checkpoints = checkpoints_.get();
    parts.resolve = options.resolve;
    parts.story = story_.get();
    parts.logs = logs_.get();
    parts.own_log = own_log_ ? own_log_->lines() : nullptr;
    parts.registry = &registry_;
    MW_ASSIGN_OR_RETURN(rpc_, RpcServer::Start(options.bind, options.port, std::move(parts)));
    return OkStatus();
  }

  Status StartMetrics(const ServerOptions& options) {
    if (options.metrics_port < 0) return OkStatus();
    MW_ASSIGN_OR_RETURN(
        http_,
        security::MetricsPort::Start(
            {{.host = options.bind, .port = options.metrics_port, .threads = options.http_threads},
             options.http_certificate,
             options.scrape_token},
            registry_));
    MetricsServer& server = http_->server();
    server.AddRoute(
        "/api/v1/prometheus/targets", "application/json", [this]() -> Result<std::string> {
          MW_ASSIGN_OR_RETURN(auto workers,
                              Await<std::vector<proto::WorkerInfo>>(
                                  [this](auto done) { loop_->Workers(std::move(done)); }));
          return ScrapeTargets(workers);
        });
    const auto answers = [this]() -> Result<std::string> {
      MW_TRY(Answers());
      return "ok\n";
    };
    constexpr const char* kText = "text/plain; charset=utf-8";
    // Whether a supervisor should start it anew: not for being busy, as /healthz says it is.
    server.AddRoute("/livez", kText, answers, RouteAccess::kOpen);
    // Whether callers should be sent here: the state is loaded, and the ports are open.
    server.AddRoute("/readyz", kText, answers, RouteAccess::kOpen);
    server.SetHealth(
        [this]() -> Status { return rpc_->Health().ok() ? Answers() : rpc_->Health(); });
    if (!options.make_site) return OkStatus();
    site_ = options.make_site({loop_.get(), store_.get(), dir_.get(), logs_.get(), audit_.get()});
    server.SetSite([this](const HttpRequest& asked) { return Ask(*site_, *http_, asked); });
    return OkStatus();
  }

  // In the order of their dependence: what is below uses what is above.
  MetricsRegistry registry_;
  std::unique_ptr<StateDir> dir_;
  std::unique_ptr<OwnLog> own_log_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<CheckpointStore> checkpoints_;
  std::unique_ptr<WorkerLogs> logs_;
  WeightsSink weights_;
  std::shared_ptr<RunStory> story_;
  std::unique_ptr<ControllerMetrics> metrics_;
  std::unique_ptr<FleetMetrics> fleet_;
  std::unique_ptr<ControlLoop> loop_;
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<Trust> trust_;
  std::unique_ptr<Site> site_;
  std::unique_ptr<security::MetricsPort> http_;
  std::unique_ptr<RpcServer> rpc_;
};

}  // namespace

Result<std::unique_ptr<ServerWithCounters>> StartServer(const ServerOptions& options,
                                                        ServerHooks hooks) {
  if (!hooks.make_plan) {
    hooks.make_plan = [cache = options.plan_cache](
                          const ir::JobRequest& job,
                          const mesh::Topology& topology) -> Result<planner::Plan> {
      search::FindOptions find;
      find.cache = cache.get();
      MW_ASSIGN_OR_RETURN(search::FoundPlan found,
                          search::FindPlan(job, topology, find, SystemClock()));
      if (found.from_cache)
        found.plan.notes.push_back("the layout was found in the cache of plans");
      return std::move(found.plan);
    };
  }
  ServerOptions numeric = options;
  numeric.bind = NumericHost(options.bind);
  auto server = std::make_unique<ServerImpl>();
  MW_TRY(server->Start(numeric, std::move(hooks)));
  return std::unique_ptr<ServerWithCounters>(std::move(server));
}

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  MW_ASSIGN_OR_RETURN(auto server, StartServer(options, ServerHooks{}));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace meshwright::controller
