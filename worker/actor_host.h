// ActorHost: a job's actors on this worker, seen from the worker's process: starts the process of
// theirs (worker/host_process.h), speaks to it over a local socket, and sees it end.
//
// Every message is answered by one ActorReply and every life by its events, also when the process
// is killed, hangs (it is killed then) or was never there.
//
// Thread rule: thread-safe, but for the destructor; reports come from any thread. Start it from a
// thread that lives at least as long as the process is to. Ownership: destroying it ends the
// process and waits for that.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actor/ref.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/subprocess.h"
#include "proto/messages.h"
#include "worker/frame_socket.h"
#include "worker/host_actor_options.h"

namespace meshwright::worker {

using ActorReport = std::function<void(proto::UpBody)>;

class ActorHost final : private actor::Transport {
 public:
  // Errors: Subprocess::Start's.
  static Result<std::unique_ptr<ActorHost>> Start(JobId job, const HostActorOptions& options,
                                                  ActorReport report);
  ~ActorHost() override;

  void Spawn(const proto::SpawnActor& spawn);
  void Message(proto::ActorMessage message);
  void Stop(const proto::StopActor& stop);
  // Tells the process to end, without waiting for it.
  void BeginEnd();
  // The process has ended, or is about to.
  bool ended() const { return ended_; }
  pid_t pid() const { return child_->pid(); }

 private:
  ActorHost(JobId job, const HostActorOptions& options, ActorReport report);
  Status StartProcess();
  bool Send(actor::PlaceId to, actor::Frame frame) override;
  void OnFrame(actor::Frame frame);
  void OnEnd();
  std::string HowItEnded();
  // last_ms: of the ping before.
  void Ping(int64_t last_ms);
  void ReportEvent(const proto::ActorEvent& about, proto::ActorEventKind kind, const Status& why);

  const JobId job_;
  const HostActorOptions options_;
  const ActorReport report_;
  const std::shared_ptr<const actor::MessageCodec<actor::Bytes>> codec_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> closing_{false};
  std::atomic<bool> killed_as_silent_{false};
  std::atomic<int64_t> heard_ms_{0};
  Mutex child_mutex_;
  std::unique_ptr<Subprocess> child_;  // signals and waits under child_mutex_
  Executor loop_{"mw-actors"};
  actor::ExecutorScheduler scheduler_{loop_};
  std::unique_ptr<actor::Place> place_;
  std::unique_ptr<FrameSocket> socket_;
};

}  // namespace meshwright::worker
