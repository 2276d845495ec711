#include "bench/crowd_case.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/mutex.h"
#include "base/result.h"
#include "mesh/device_profile.h"
#include "proto/convert.h"
#include "proto/frames.h"
#include "proto/grpc_status.h"
#include "proto/mesh_of.h"
#include "proto/meshwright.grpc.pb.h"
#include "worker/registration.h"

namespace meshwright::bench {
namespace {

constexpr int kMostJoining = 32;  // at once: a controller keeps few that have not registered
constexpr int kTurnMs = 5;
constexpr int64_t kJoinMs = 120'000;

struct CrowdOptions {
  std::string address;
  int workers = 1000;
  int devices = 8;
  double rejoins_per_s = 0;
};

// One worker's. Its reactions run on gRPC's threads.
class CrowdSession final : public grpc::ClientBidiReactor<v1::Up, v1::Down> {
 public:
  CrowdSession(const std::string& address, proto::Register info) : info_(std::move(info)) {
    grpc::ChannelArguments args;
    // As a worker's own (worker/grpc/link.cc).
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
    args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
    args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    stub_ = v1::WorkerService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args));
    stub_->async()->Session(&context_, this);
    AddHold();
    Say(proto::MakeUp(Term(0), info_));
    StartRead(&incoming_);
    StartCall();
  }
  // Cuts the connection, as the end of a process does.
  ~CrowdSession() override {
    context_.TryCancel();
    LetGo();
    const MutexLock lock(mutex_);
    while (!done_) changed_.Wait(mutex_);
  }

  const std::string& name() const { return info_.name; }
  // Between heartbeats; none: it has not been welcomed yet.
  std::optional<int64_t> beat_ms() const {
    const MutexLock lock(mutex_);
    return beat_ms_;
  }
  // Why it is over; OK: it goes on.
  Status end() const {
    const MutexLock lock(mutex_);
    return end_;
  }
  void Beat() { Say(proto::MakeHeartbeat(term())); }

  void OnReadDone(bool ok) override {
    Status status = ok ? Hear() : Unavailable("nothing more comes");
    if (status.ok()) return StartRead(&incoming_);
    LetGo();  // OnDone says more
    const MutexLock lock(mutex_);
    if (end_.ok() && ok) end_ = std::move(status);
  }
  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    waiting_.pop_front();
    if (!ok) waiting_.clear();
    if (!waiting_.empty()) StartWrite(&waiting_.front());
  }
  void OnDone(const grpc::Status& status) override {
    const MutexLock lock(mutex_);
    if (end_.ok()) {
      end_ =
          status.ok() ? Unavailable("the controller ended the session") : proto::FromGrpc(status);
    }
    done_ = true;
    changed_.NotifyAll();
  }

 private:
  Term term() const {
    const MutexLock lock(mutex_);
    return term_;
  }

  // Nothing is begun any more but by reactions: OnDone may come.
  void LetGo() {
    if (!let_go_.exchange(true)) RemoveHold();
  }

  void Say(const proto::UpMessage& message) {
    const MutexLock lock(mutex_);
    if (!end_.ok()) return;
    for (v1::Up& piece : proto::CutToPieces(proto::Encode(message))) {
      waiting_.push_back(std::move(piece));
      if (waiting_.size() == 1) StartWrite(&waiting_.front());
    }
  }

  Status Hear() {
    MW_ASSIGN_OR_RETURN(const std::optional<v1::Down> whole, proto::JoinPieces(joiner_, incoming_));
    if (!whole) return OkStatus();
    MW_ASSIGN_OR_RETURN(const proto::DownMessage message, proto::Decode(*whole));
    if (const auto* welcome = std::get_if<proto::Welcome>(&message.body)) {
      MW_TRY(worker::TakeWelcome("the controller", message.term, *welcome, info_));
      const MutexLock lock(mutex_);
      term_ = message.term;
      beat_ms_ = std::max<int64_t>(welcome->heartbeat_ms, 10);
      return OkStatus();
    }
    Answer(message.body);
    return OkStatus();
  }

  // As a worker that has no such mesh, and cannot have one.
  void Answer(const proto::DownBody& body) {
    const std::optional<MeshGeneration> gen = proto::MeshOf(body);
    if (!gen) return;
    if (std::holds_alternative<proto::LoadMesh>(body)) {
      const Status none = Unavailable("a crowd computes nothing");
      Say(proto::MakeUp(term(), proto::Loaded{*gen, proto::MakeError(proto::ErrorKind::kLoadFailed,
                                                                     none, info_.name)}));
    }
    if (std::holds_alternative<proto::AbortMesh>(body) ||
        std::holds_alternative<proto::ReleaseMesh>(body)) {
      Say(proto::MakeUp(term(), proto::MeshReleased{*gen}));
    }
  }

  proto::Register info_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  proto::FrameJoiner joiner_;
  v1::Down incoming_;
  std::atomic<bool> let_go_{false};
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<v1::Up> waiting_ MW_GUARDED_BY(mutex_);  // the first of them is being written
  Term term_ MW_GUARDED_BY(mutex_){0};
  std::optional<int64_t> beat_ms_ MW_GUARDED_BY(mutex_);
  Status end_ MW_GUARDED_BY(mutex_);
  bool done_ MW_GUARDED_BY(mutex_) = false;
};

class Crowd {
 public:
  explicit Crowd(CrowdOptions options) : options_(std::move(options)) {}

  // Returns when the controller has welcomed all of them.
  Status Join() {
    const Deadline deadline = Deadline::After(kJoinMs);
    while (joined_ < members_.size() || members_.size() < static_cast<size_t>(options_.workers)) {
      while (members_.size() < static_cast<size_t>(options_.workers) &&
             members_.size() - joined_ < kMostJoining) {
        members_.push_back({Open(members_.size()), 0});
      }
      if (deadline.expired()) {
        return DeadlineExceeded(fmt::format("{} of {} workers have joined within {} s", joined_,
                                            options_.workers, kJoinMs / 1000));
      }
      (void)::poll(nullptr, 0, 1);
      MW_TRY(Turn());
      joined_ = static_cast<size_t>(std::count_if(
          members_.begin(), members_.end(),
          [](const Member& member) { return member.session->beat_ms().has_value(); }));
    }
    return OkStatus();
  }

  // Until stdin ends.
  Status Stay() {
    int64_t next_rejoin_ms = NowMs();
    while (true) {
      pollfd orders{STDIN_FILENO, POLLIN, 0};
      if (::poll(&orders, 1, kTurnMs) > 0) return OkStatus();
      MW_TRY(Turn());
      if (options_.rejoins_per_s <= 0 || NowMs() < next_rejoin_ms) continue;
      next_rejoin_ms += static_cast<int64_t>(1000 / options_.rejoins_per_s);
      Rejoin();
    }
  }

  int64_t beats() const { return beats_; }
  int64_t rejoins() const { return rejoins_; }

 private:
  struct Member {
    std::unique_ptr<CrowdSession> session;
    int64_t due_ms = 0;  // its next heartbeat; 0: it has not been welcomed
  };

  static int64_t NowMs() { return SystemClock().NowMs(); }

  std::unique_ptr<CrowdSession> Open(size_t index) const {
    worker::AgentOptions options;
    options.name = fmt::format("crowd-{:04}", index);
    options.devices = options_.devices;
    options.host_id = fmt::format("node-{:04}/0f6f2c9e-6d4f-4d0c-9b55-0d3c1ff6a1b2", index);
    options.memory_bytes = int64_t{80} << 30;
    // Hosts that call each other by loopback are refused.
    options.advertise = fmt::format("10.0.{}.{}", index / 250, index % 250 + 1);
    options.device_profile = mesh::FormatDeviceProfile(*mesh::DefaultDeviceProfile());
    proto::Register info = worker::RegisterOf(options, {}, {}, 7000);
    info.metrics_address = options.advertise + ":9100";
    return std::make_unique<CrowdSession>(options_.address, std::move(info));
  }

  // Who is due beats, each in its own part of the period.
  Status Turn() {
    const int64_t now_ms = NowMs();
    for (Member& member : members_) {
      if (member.session == nullptr) continue;
      if (const Status end = member.session->end(); !end.ok()) {
        return end.WithContext(member.session->name());
      }
      const auto beat_ms = member.session->beat_ms();
      if (!beat_ms || now_ms < member.due_ms) continue;
      member.session->Beat();
      ++beats_;
      member.due_ms = std::max(member.due_ms + *beat_ms, now_ms);
      if (member.due_ms == now_ms) member.due_ms += *beat_ms;
    }
    return OkStatus();
  }

  // Who was cut off last comes back, and the next one is cut off: a controller that still has the
  // old session would refuse the name.
  void Rejoin() {
    if (away_) {
      members_[*away_] = {Open(*away_), 0};
      ++rejoins_;
    }
    away_ = static_cast<size_t>(rejoins_) * 7 % members_.size();
    members_[*away_] = {nullptr, 0};
  }

  const CrowdOptions options_;
  std::vector<Member> members_;
  size_t joined_ = 0;
  std::optional<size_t> away_;  // cut off
  int64_t beats_ = 0;
  int64_t rejoins_ = 0;
};

Status RunCrowd(const CrowdOptions& options) {
  (void)RaiseDescriptorLimit();
  Crowd crowd(options);
  const int64_t begun_ms = SystemClock().NowMs();
  MW_TRY(crowd.Join());
  const double joined_s = static_cast<double>(SystemClock().NowMs() - begun_ms) / 1000;
  fmt::print("{{\"workers\":{},\"join_seconds\":{:.3f}}}\n", options.workers, joined_s);
  std::fflush(stdout);
  const int64_t stayed_ms = SystemClock().NowMs();
  MW_TRY(crowd.Stay());
  const double stayed_s = static_cast<double>(SystemClock().NowMs() - stayed_ms) / 1000;
  fmt::print("{{\"seconds\":{:.3f},\"heartbeats\":{},\"rejoins\":{}}}\n", stayed_s, crowd.beats(),
             crowd.rejoins());
  return OkStatus();
}

}  // namespace

int CrowdMain(int argc, char** argv) {
  CrowdOptions options;
  CLI::App app("The sessions of many workers with one controller", "mw_bench crowd");
  app.add_option("address", options.address, "Of the controller")->required();
  app.add_option("--workers", options.workers)->check(CLI::PositiveNumber);
  app.add_option("--devices", options.devices, "Of each")->check(CLI::PositiveNumber);
  app.add_option("--rejoins", options.rejoins_per_s, "In a second")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  const Status status = RunCrowd(options);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
  return status.ok() ? 0 : 1;
}

}  // namespace meshwright::bench
