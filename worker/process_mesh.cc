#include "worker/process_mesh.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "proto/mesh_of.h"

namespace meshwright::worker {
namespace {

// A page of metrics does not wait longer for an executor than this.
constexpr std::chrono::milliseconds kCountsMs{250};
// For a process that has closed its socket to be gone.
constexpr int64_t kGoneMs = 2'000;
constexpr std::chrono::seconds kWaitSlice{1};

BlobAnswer AnswerOf(uint64_t id, const Result<std::string>& path) {
  if (!path.has_value()) return {id, path.error(), {}};
  return {id, OkStatus(), *path};
}

}  // namespace

ProcessMesh::ProcessMesh(const HostResources& resources, MeshGeneration mesh_gen, MeshEvents events,
                         int64_t end_ms, LostDevices& watch)
    : resources_(resources),
      mesh_gen_(mesh_gen),
      events_(std::move(events)),
      end_ms_(end_ms),
      watch_(watch) {}

ProcessMesh::~ProcessMesh() {
  Abort(Cancelled("the worker drops the mesh"));
  {
    // KillUnlessOver() bounds it.
    const MutexLock lock(mutex_);
    while (!over_) (void)changed_.WaitFor(mutex_, kWaitSlice);
  }
  control_.Stop();
  files_.Stop();
}

void ProcessMesh::Attach(Result<std::unique_ptr<ExecutorProcess>> process) {
  if (!process.has_value()) return Refuse(process.error());
  MW_FAILPOINT("worker.executor-attached");
  executor_.Attach(std::move(*process),
                   {[this](std::string_view bytes) { return OnMessage(bytes); },
                    [this](const Status&) {
                      ended_ = true;
                      (void)control_.Post([this] { EndOnce(); });
                    }});
  snapshots_.Give(executor_.TakeSnapshots());
}

// The mesh stays until it is let go of, as one whose programs could not be loaded.
void ProcessMesh::Refuse(const Status& why) {
  const auto error = MakeError(
      proto::ErrorKind::kLoadFailed,
      why.WithContext(fmt::format("worker '{}' cannot start an executor", resources_.worker)),
      resources_.worker);
  LogError(error.message);
  executor_.Refuse();
  if (!aborted_) events_.report(proto::Loaded{mesh_gen_, error, {}});
  if (letting_go_) (void)control_.Post([this] { EndOnce(); });
}

// ---- Messages of the controller -----------------------------------------------------------------

void ProcessMesh::Handle(proto::DownBody message) {
  if (const auto* abort = std::get_if<proto::AbortMesh>(&message)) {
    return Abort(abort->cause.ToStatus());
  }
  if (const auto* load = std::get_if<proto::LoadMesh>(&message)) {
    job_ = load->job;
    connections_.Expect(*load);
    snapshots_.Expect(*load);
  }
  const bool release = std::holds_alternative<proto::ReleaseMesh>(message);
  MW_FAILPOINT("worker.before-hand-on");
  executor_.Send(std::move(message));
  if (release) LetGo();
}

void ProcessMesh::Abort(const Status& cause) {
  if (aborted_.exchange(true)) return;
  executor_.Send(
      proto::DownBody(proto::AbortMesh{mesh_gen_, MakeError(proto::ErrorKind::kCancelled, cause)}));
  LetGo();
}

void ProcessMesh::LetGo() {
  if (letting_go_.exchange(true)) return;
  // Without a process nobody answers.
  if (executor_.refused()) return (void)control_.Post([this] { EndOnce(); });
  (void)control_.PostAfter(end_ms_, [this] { KillUnlessOver(); });
}

void ProcessMesh::RefreshMetrics() {
  const uint64_t id = counts_.Ask();
  executor_.Send(CountsAsk{id});
  counts_.Await(id, kCountsMs);
}

// ---- Messages of the process --------------------------------------------------------------------

Status ProcessMesh::OnMessage(std::string_view bytes) {
  MW_ASSIGN_OR_RETURN(FromExecutor message, DecodeFromExecutor(bytes));
  std::visit([this](auto& body) { On(body); }, message);
  return OkStatus();
}

void ProcessMesh::On(proto::UpBody& body) {
  // An executor speaks for its mesh and for nothing else of the worker.
  if (proto::MeshOf(body) != mesh_gen_) return;
  if (std::holds_alternative<proto::MeshReleased>(body)) {
    released_by_process_ = true;  // said when the process is gone
    return;
  }
  const auto* done = std::get_if<proto::LaunchDone>(&body);
  if (done != nullptr && done->error.ok()) {
    watch_.Worked();
    resources_.metrics->ObserveLaunch(*done);
  }
  MW_FAILPOINT("worker.before-report");
  if (!aborted_) events_.report(std::move(body));
}

void ProcessMesh::On(BlobAsk& ask) {
  (void)files_.Post([this, ask = std::move(ask)] {
    const auto cancelled = [this] { return aborted_ || ended_; };
    executor_.Send(AnswerOf(ask.id, resources_.blobs->Path(ask.blob, cancelled)));
  });
}

void ProcessMesh::On(MeshCounts& counts) {
  if (!counts.stats.empty()) {
    resources_.metrics->Observe(mesh_gen_.value(), counts.stats, counts.devices);
  }
  counts_.Answer(counts.id);
}

void ProcessMesh::On(const AwaitsConnections&) {
  UniqueFd socket = executor_.TakeConnections();
  if (!socket.valid()) return;
  const Status opened = connections_.Open(resources_.listener, std::move(socket));
  if (opened.ok() || aborted_) return;
  events_.report(proto::MeshError{
      mesh_gen_, MakeError(proto::ErrorKind::kConnectFailed, opened, resources_.worker)});
}

void ProcessMesh::On(const DeviceLost& lost) { lost_ = lost.cause; }

// ---- The end ------------------------------------------------------------------------------------

void ProcessMesh::KillUnlessOver() {
  if (end_begun_) return;
  if (const pid_t pid = executor_.Kill(); pid != 0) {
    LogWarn(fmt::format("executor {} has not let go of mesh {} within {} ms: it is killed", pid,
                        mesh_gen_.value(), end_ms_));
  }
  EndOnce();
}

void ProcessMesh::EndOnce() {
  if (std::exchange(end_begun_, true)) return;
  ended_ = true;
  if (std::unique_ptr<ExecutorProcess> process = executor_.Take()) {
    const ExecutorEnd end = process->End(kGoneMs);
    connections_.Close();
    resources_.metrics->Forget(mesh_gen_.value());
    ReportEnd(end);
    // Its destructor would wait for a process that the kernel does not let go of.
    if (!end.exit) (void)process.release();
  }
  counts_.End();
  if (resources_.snapshots != nullptr) resources_.snapshots->Release(mesh_gen_);
  events_.report(proto::MeshReleased{mesh_gen_});
  // Behind `released` this object may be gone.
  const auto released = events_.released;
  {
    const MutexLock lock(mutex_);
    over_ = true;
    changed_.NotifyAll();
  }
  released();
}

void ProcessMesh::ReportEnd(const ExecutorEnd& end) {
  const std::string who =
      fmt::format("the executor of job {} (mesh {})", job_.load().value(), mesh_gen_.value());
  const bool in_order = released_by_process_ && end.exit && end.exit->ok();
  if (in_order) {
    LogInfo(fmt::format("worker '{}': {} has ended in order", resources_.worker, who));
  } else {
    const proto::RuntimeError error = end.ToError(who, resources_.worker);
    LogWarn(error.message);
    // Also behind an abort: it may be the consequence of this, told by another member before.
    if (!end.killed) events_.report(proto::MeshError{mesh_gen_, error});
  }
  if (!end.exit) {
    watch_.LostForGood(
        Unavailable(fmt::format("{} {}", who, end.ToString())).WithBlame(Blame::kHardware));
  } else if (!lost_.ok()) {
    watch_.Lost(lost_);
  }
}

}  // namespace meshwright::worker
