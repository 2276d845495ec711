#include "worker/actor_host.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/os_error.h"
#include "base/utf8.h"
#include "worker/host_process.h"

namespace meshwright::worker {
namespace {

actor::Address AddressOf(uint64_t actor, uint64_t generation) {
  return {kHostPlace, actor::ActorId(actor), actor::ActorGeneration(generation)};
}

proto::ActorReply ReplyOf(uint64_t ask, const Status& status) {
  proto::ActorReply reply;
  reply.ask = ask;
  reply.code = status.code();
  if (!status.ok()) reply.message = AsUtf8(status.message(), proto::kMaxErrorText);
  return reply;
}

}  // namespace

ActorHost::ActorHost(JobId job, const HostActorOptions& options, ActorReport report)
    : job_(job),
      options_(options),
      report_(std::move(report)),
      codec_(std::make_shared<const actor::MessageCodec<actor::Bytes>>(
          actor::MessageCodec<actor::Bytes>{actor::CodecOfBytes(), actor::CodecOfBytes()})) {}

Result<std::unique_ptr<ActorHost>> ActorHost::Start(JobId job, const HostActorOptions& options,
                                                    ActorReport report) {
  std::unique_ptr<ActorHost> host(new ActorHost(job, options, std::move(report)));
  MW_TRY(host->StartProcess());
  return host;
}

Status ActorHost::StartProcess() {
  if (options_.command.empty()) {
    return Unimplemented(
        "this worker has no host actors: its binary was made without (worker/main.h)");
  }
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return OsError(errno, "make a socket for host actors");
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  SubprocessOptions process;
  process.args = options_.command;
  process.args.push_back(fmt::format("--fd={}", theirs.get()));
  process.args.push_back(fmt::format("--silent-ms={}", options_.actor_silent_ms));
  process.keep_fds = {theirs.get()};
  process.death_signal = SIGKILL;
  MW_ASSIGN_OR_RETURN(child_, Subprocess::Start(process));
  LogInfo(fmt::format("job {}: actors live in process {}", job_.value(), child_->pid()));
  heard_ms_ = SystemClock().NowMs();
  actor::PlaceParts parts;
  parts.id = kWorkerPlace;
  parts.clock = &SystemClock();
  parts.loop = &scheduler_;
  parts.transport = this;
  place_ = std::make_unique<actor::Place>(std::move(parts));
  socket_ = std::make_unique<FrameSocket>(
      std::move(ours), FrameHandlers{[this](actor::Frame frame) { OnFrame(std::move(frame)); },
                                     [this](const Status&) { OnEnd(); }});
  (void)loop_.PostAfter(options_.ping_ms, [this, now_ms = heard_ms_.load()] { Ping(now_ms); });
  return OkStatus();
}

void ActorHost::BeginEnd() {
  closing_ = true;
  socket_->Shutdown();
}

ActorHost::~ActorHost() {
  closing_ = true;
  if (socket_) socket_->Close();
  loop_.Stop();
  place_.reset();
}

// What a socket that has ended does not take is answered by OnEnd, which knows why.
bool ActorHost::Send(actor::PlaceId, actor::Frame frame) {
  (void)socket_->Send(frame);
  return true;
}

void ActorHost::OnFrame(actor::Frame frame) {
  heard_ms_ = SystemClock().NowMs();
  place_->OnFrame(kHostPlace, std::move(frame));
}

void ActorHost::Ping(int64_t last_ms) {
  const int64_t now_ms = SystemClock().NowMs();
  // A stall of this process is not the other one's silence.
  const int64_t stall_ms = now_ms - last_ms - 2 * options_.ping_ms;
  if (stall_ms > 0) heard_ms_ += stall_ms;
  if (now_ms - heard_ms_ > options_.silent_ms) {
    const MutexLock lock(child_mutex_);
    killed_as_silent_ = true;
    (void)child_->Signal(SIGKILL);
    return;
  }
  (void)socket_->Send(actor::Frame{.kind = actor::FrameKind::kPing});
  (void)loop_.PostAfter(options_.ping_ms, [this, now_ms] { Ping(now_ms); });
}

std::string ActorHost::HowItEnded() {
  const MutexLock lock(child_mutex_);
  Result<ExitStatus> exit = child_->Wait(options_.end_grace_ms);
  if (!exit.has_value()) {
    (void)child_->Signal(SIGKILL);
    exit = child_->Wait(options_.end_grace_ms);
  }
  if (closing_) return "it was ended with its job or session";
  if (killed_as_silent_) {
    return fmt::format("its process was silent for {} ms and was killed", options_.silent_ms);
  }
  if (exit.has_value() && exit->code == kStuckActorExit) {
    return fmt::format(
        "its process ended, since an actor in it was at one message for more than {} ms",
        options_.actor_silent_ms);
  }
  return fmt::format("its process {}", exit.has_value() ? exit->ToString() : "does not end");
}

// On the socket's reader thread, once.
void ActorHost::OnEnd() {
  ended_ = true;
  const std::string how = HowItEnded();
  LogInfo(fmt::format("job {}: actors in process {}: {}", job_.value(), child_->pid(), how));
  place_->OnPlaceLost(kHostPlace, Unavailable(how));
}

void ActorHost::ReportEvent(const proto::ActorEvent& about, proto::ActorEventKind kind,
                            const Status& why) {
  proto::ActorEvent event = about;
  event.kind = kind;
  event.code = why.code();
  if (!why.ok()) event.message = AsUtf8(why.message(), proto::kMaxErrorText);
  report_(std::move(event));
}

void ActorHost::Spawn(const proto::SpawnActor& spawn) {
  proto::ActorEvent about;
  about.job = spawn.job;
  about.actor = spawn.actor;
  about.generation = spawn.generation;
  place_->SpawnAt(
      AddressOf(spawn.actor, spawn.generation), spawn.type, spawn.args, options_.start_ms,
      [this, about](const Result<actor::Address>& made) {
        if (!made.has_value()) {
          return ReportEvent(about, proto::ActorEventKind::kFailed, made.error());
        }
        ReportEvent(about, proto::ActorEventKind::kStarted, OkStatus());
        place_->Watch(*made, [this, about](const actor::Event& event) {
          const bool stopped = event.kind == actor::EventKind::kStopped;
          ReportEvent(about,
                      stopped ? proto::ActorEventKind::kStopped : proto::ActorEventKind::kFailed,
                      event.why);
        });
      });
}

void ActorHost::Message(proto::ActorMessage message) {
  const auto ref =
      place_->Remote<actor::Bytes>(AddressOf(message.actor, message.generation), codec_);
  actor::Bytes bytes{std::move(message.payload)};
  if (message.tell) {
    return ref.Tell(std::move(bytes), message.deadline_ms,
                    [this, ask = message.ask](const Result<actor::Nothing>& taken) {
                      report_(ReplyOf(ask, taken.has_value() ? OkStatus() : taken.error()));
                    });
  }
  ref.Ask(std::move(bytes), message.deadline_ms,
          [this, ask = message.ask](Result<actor::Bytes> answer) {
            if (!answer.has_value()) return report_(ReplyOf(ask, answer.error()));
            proto::ActorReply reply = ReplyOf(ask, OkStatus());
            reply.payload = std::move(answer->data);
            report_(std::move(reply));
          });
}

void ActorHost::Stop(const proto::StopActor& stop) {
  place_->Stop(AddressOf(stop.actor, stop.generation));
}

}  // namespace meshwright::worker
