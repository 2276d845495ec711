#include "worker/executor_main.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/mutex.h"
#include "collective/relay.h"
#include "worker/executor_messages.h"
#include "worker/executors.h"
#include "worker/mesh_host.h"
#include "worker/message_socket.h"

namespace meshwright::worker {
namespace {

constexpr std::array<std::string_view, 4> kFlags = {
    "--socket=", "--connections=", "--record=", "--snapshots="};
// For what was said last to be taken by the supervisor.
constexpr int64_t kFlushMs = 5'000;
constexpr std::chrono::milliseconds kAskCancelled{50};
// Of a supervisor that a signal makes end: it tells this process when to.
constexpr std::array<int, 4> kSupervisorsSignals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

using Send = std::function<void(const FromExecutor&)>;

// The supervisor's cache.
class SupervisorsBlobs final : public Blobs {
 public:
  explicit SupervisorsBlobs(Send send) : send_(std::move(send)) {}

  Result<std::string> Path(const ir::BlobRef& blob,
                           const std::function<bool()>& cancelled) override {
    uint64_t id = 0;
    {
      const MutexLock lock(mutex_);
      id = ++last_id_;
      asked_[id];
    }
    send_(BlobAsk{id, blob});
    const MutexLock lock(mutex_);
    std::optional<BlobAnswer>& answer = asked_[id];
    while (!answer && !cancelled()) (void)changed_.WaitFor(mutex_, kAskCancelled);
    const std::optional<BlobAnswer> taken = std::move(answer);
    asked_.erase(id);
    if (!taken) return Fail(Cancelled("the job was aborted while it was loading"));
    MW_TRY(taken->status);
    return taken->path;
  }

  void Answer(BlobAnswer answer) {
    const MutexLock lock(mutex_);
    const auto asked = asked_.find(answer.id);
    if (asked == asked_.end()) return;  // who asked has given up
    asked->second = std::move(answer);
    changed_.NotifyAll();
  }

 private:
  const Send send_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t last_id_ MW_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::optional<BlobAnswer>> asked_ MW_GUARDED_BY(mutex_);
};

// The counts of the one mesh, as they were when somebody asked.
class CountsToSend final : public MeshCounters {
 public:
  explicit CountsToSend(Send send) : send_(std::move(send)) {}
  // The next counts are the answer to question `id`.
  void Asked(uint64_t id) {
    const MutexLock lock(mutex_);
    asked_ = id;
  }
  // There was nothing to count.
  void AnswerIfAsked() {
    uint64_t id = 0;
    {
      const MutexLock lock(mutex_);
      id = std::exchange(asked_, 0);
    }
    if (id != 0) send_(MeshCounts{id, {}, {}});
  }
  void Observe(uint64_t, const std::vector<DeviceStats>& stats,
               const std::vector<int>& devices) override {
    uint64_t id = 0;
    {
      const MutexLock lock(mutex_);
      id = std::exchange(asked_, 0);
    }
    send_(MeshCounts{id, stats, devices});
  }
  void ObserveLaunch(const proto::LaunchDone&) override {}  // the supervisor sees it
  void Forget(uint64_t) override {}                         // the supervisor sees the end

 private:
  const Send send_;
  Mutex mutex_;
  uint64_t asked_ MW_GUARDED_BY(mutex_) = 0;
};

// Connects when tiles or files are to be sent or read: most of the time an executor has nothing to
// say to the controller itself.
class LinkForTiles final : public ControllerLink {
 public:
  explicit LinkForTiles(LinkOptions options) : options_(std::move(options)) {}

  Result<std::unique_ptr<Session>> OpenSession(int64_t) override {
    return Fail(Unimplemented("an executor has no session: its supervisor has"));
  }
  Status FetchBlob(const std::string& sha256, int64_t offset, const CancelCheck& cancelled,
                   const ChunkSink& sink) override {
    return link().FetchBlob(sha256, offset, cancelled, sink);
  }
  Status PutTiles(const CancelCheck& cancelled, const TileSource& next) override {
    return link().PutTiles(cancelled, next);
  }
  Status PutShard(const CancelCheck& cancelled, const proto::ShardHead& head,
                  const std::vector<std::string_view>& parts) override {
    return link().PutShard(cancelled, head, parts);
  }
  Status ReadFile(const CancelCheck& cancelled, const proto::FileRange& range,
                  const ChunkSink& sink) override {
    return link().ReadFile(cancelled, range, sink);
  }
  void CancelBulk() override {
    const MutexLock lock(mutex_);
    if (link_) link_->CancelBulk();
  }

 private:
  ControllerLink& link() {
    const MutexLock lock(mutex_);
    if (!link_) link_ = MakeGrpcLink(options_);
    return *link_;
  }

  const LinkOptions options_;
  Mutex mutex_;
  std::unique_ptr<ControllerLink> link_ MW_GUARDED_BY(mutex_);
};

// Without destructors: the supervisor waits for the process to be gone, and the kernel is faster at
// it than they are.
[[noreturn]] void ExitAtOnce(int code) { ::_exit(code); }

// The supervisor has ended, or what it said is not understood.
void OnEnd(const Status& why) {
  if (why.code() != StatusCode::kUnavailable) LogError(std::string(why.message()));
  ExitAtOnce(why.code() == StatusCode::kUnavailable ? 0 : 3);
}

class ExecutorMain {
 public:
  ExecutorMain(const ExecutorDescriptors& fds, MeshRecord record) : record_(std::move(record)) {
    connections_ = UniqueFd(fds.connections);
    resources_.snapshot_memory = fds.snapshots;
    socket_ = std::make_unique<MessageSocket>(
        UniqueFd(fds.socket), kMaxExecutorMessageBytes,
        MessageHandlers{[this](std::string_view bytes) { return OnMessage(bytes); },
                        [](const Status& why) { OnEnd(why); }});
    const MutexLock lock(mutex_);
    made_ = true;
    changed_.NotifyAll();
  }

  // Until the mesh is let go of. A socket that ends ends the process meanwhile.
  void Run() {
    {
      const MutexLock lock(mutex_);
      while (!released_) changed_.Wait(mutex_);
    }
    (void)socket_->Flush(kFlushMs);
  }

 private:
  void Say(const FromExecutor& message) {
    {
      // The first may come before the constructor knows the socket.
      const MutexLock lock(mutex_);
      while (!made_) changed_.Wait(mutex_);
    }
    MW_FAILPOINT("executor.before-say");
    (void)socket_->Send(Encode(message));
  }

  // ---- On the socket's reader ----

  Status OnMessage(std::string_view bytes) {
    MW_ASSIGN_OR_RETURN(ToExecutor message, DecodeToExecutor(bytes));
    std::visit([this](auto& body) { On(body); }, message);
    return OkStatus();
  }

  void On(ExecutorSettings& settings) {
    prepared_ = Prepare(std::move(settings));
    if (!prepared_.ok()) LogError(fmt::format("cannot be an executor: {}", prepared_.message()));
  }

  Status Prepare(ExecutorSettings settings) {
    MW_TRY(InitLog({.level = settings.log_level, .json = settings.log_json}));
    const Send send = [this](const FromExecutor& message) { Say(message); };
    blobs_ = std::make_unique<SupervisorsBlobs>(send);
    counts_ = std::make_unique<CountsToSend>(send);
    link_ = std::make_unique<LinkForTiles>(
        LinkOptions{settings.controller, settings.token, settings.tls_dir});
    MW_ASSIGN_OR_RETURN(roots_, data::Roots::Open(settings.data_roots));
    MW_ASSIGN_OR_RETURN(checkpoint_roots_, checkpoint::Roots::Open(settings.checkpoint_roots));
    resources_.worker = std::move(settings.worker);
    resources_.devices = settings.devices;
    resources_.threads_per_device = settings.threads_per_device;
    resources_.cores = std::move(settings.cores);
    resources_.memory_bytes = settings.memory_bytes;
    resources_.host_link_bytes_per_s = settings.host_link_bytes_per_s;
    resources_.scratch = settings.scratch;
    resources_.gpu_drain_timeout_ms = settings.gpu_drain_timeout_ms;
    resources_.transport = settings.transport;
    resources_.collective_timeout_ms = settings.collective_timeout_ms;
    std::shared_ptr<collective::Tls> tls;
    if (!settings.tls_dir.empty()) {
      MW_ASSIGN_OR_RETURN(tls, collective::MakeTls(settings.tls_dir));
    }
    resources_.listener = collective::MakeRelayedListener(
        std::move(connections_), [this] { Say(AwaitsConnections{}); }, std::move(tls));
    resources_.blobs = blobs_.get();
    resources_.roots = &roots_;
    resources_.checkpoint_roots = &checkpoint_roots_;
    resources_.host_actors = std::move(settings.host_actors);
    resources_.link = link_.get();
    resources_.metrics = counts_.get();
    resources_.record = &record_;
    resources_.device_lost = [this](const Status& cause) { Say(DeviceLost{cause}); };
    if (!settings.gpus.empty()) {
      MW_ASSIGN_OR_RETURN(resources_.gpus, FindGpus(0, settings.gpus));
    }
    return OkStatus();
  }

  void On(proto::DownBody& message) {
    if (const auto* load = std::get_if<proto::LoadMesh>(&message); load && !mesh_) {
      const MeshGeneration gen = load->mesh_gen;
      if (!prepared_.ok()) {
        const auto error =
            proto::MakeError(proto::ErrorKind::kLoadFailed, prepared_, resources_.worker);
        return Say(proto::UpBody(proto::Loaded{gen, error, {}}));
      }
      MW_CHECK(counts_ && blobs_ && link_) << "mesh " << gen.value() << " before the settings";
      mesh_ = std::make_unique<MeshHost>(
          resources_, gen, [this](proto::UpBody body) { Say(std::move(body)); },
          [this] { OnReleased(); });
    }
    const auto* abort = std::get_if<proto::AbortMesh>(&message);
    if (mesh_ == nullptr) {
      // What could not be loaded holds nothing.
      if (abort != nullptr || std::holds_alternative<proto::ReleaseMesh>(message)) OnReleased();
      return;
    }
    mesh_->Take(std::move(message));
    if (abort != nullptr) link_->CancelBulk();
  }

  void On(BlobAnswer& answer) {
    if (blobs_) blobs_->Answer(std::move(answer));
  }

  void On(const CountsAsk& ask) {
    if (mesh_ == nullptr) return Say(MeshCounts{ask.id, {}, {}});
    counts_->Asked(ask.id);
    mesh_->RefreshMetrics();
    counts_->AnswerIfAsked();
  }

  void OnReleased() {
    const MutexLock lock(mutex_);
    released_ = true;
    changed_.NotifyAll();
  }

  MeshRecord record_;
  UniqueFd connections_;  // until it is prepared
  Status prepared_ = FailedPrecondition("it was told nothing");
  std::unique_ptr<SupervisorsBlobs> blobs_;
  std::unique_ptr<CountsToSend> counts_;
  std::unique_ptr<LinkForTiles> link_;
  data::Roots roots_;
  checkpoint::Roots checkpoint_roots_;
  HostResources resources_;
  std::unique_ptr<MeshHost> mesh_;
  Mutex mutex_;
  CondVar changed_;
  bool made_ MW_GUARDED_BY(mutex_) = false;
  bool released_ MW_GUARDED_BY(mutex_) = false;
  std::unique_ptr<MessageSocket> socket_;
};

// The number of "--fd=N"; none: it is another flag.
std::optional<int> NumberOf(std::string_view text, std::string_view flag) {
  if (!text.starts_with(flag)) return std::nullopt;
  text.remove_prefix(flag.size());
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 ? std::optional(number) : std::nullopt;
}

}  // namespace

std::vector<std::string> ExecutorCommand(std::vector<std::string> command,
                                         const ExecutorDescriptors& descriptors) {
  command.push_back(fmt::format("{}{}", kFlags[0], descriptors.socket));
  command.push_back(fmt::format("{}{}", kFlags[1], descriptors.connections));
  command.push_back(fmt::format("{}{}", kFlags[2], descriptors.record));
  command.push_back(fmt::format("{}{}", kFlags[3], descriptors.snapshots));
  return command;
}

std::optional<int> RunIfExecutor(int argc, char** argv) {
  if (argc != 6 || std::string_view(argv[1]) != kExecutorMode) return std::nullopt;
  std::array<int, 4> fds{};
  for (size_t i = 0; i < fds.size(); ++i) {
    const std::optional<int> fd = NumberOf(argv[2 + i], kFlags[i]);
    if (!fd) return std::nullopt;
    fds[i] = *fd;
  }
  // Its binary may be called "exe" otherwise.
  (void)::prctl(PR_SET_NAME, "mw-executor");
  for (const int signal : kSupervisorsSignals) ::signal(signal, SIG_IGN);
  Result<MeshRecord> record = MeshRecord::Open(UniqueFd(fds[2]));
  if (!record.has_value()) {
    LogError(fmt::format("is started by workers only: {}", record.error().message()));
    return 2;
  }
  ExecutorMain executor({fds[0], fds[1], -1, fds[3]}, std::move(*record));
  executor.Run();
  ExitAtOnce(0);
}

}  // namespace meshwright::worker
