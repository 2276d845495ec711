#include "worker/host_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "actor/place.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/mutex.h"
#include "proto/actor_messages.h"
#include "worker/frame_socket.h"

namespace meshwright::worker {
namespace {

// Threads for actors: one each, used again when its actor has ended.
class ActorThreads {
 public:
  actor::Scheduler* Take(actor::ActorId id) {
    const MutexLock lock(mutex_);
    if (free_.empty()) {
      threads_.push_back(std::make_unique<Thread>(threads_.size()));
      free_.push_back(threads_.back().get());
    }
    Thread* thread = free_.back();
    free_.pop_back();
    taken_[id.value()] = thread;
    return &thread->scheduler;
  }
  // The thread is free once it has done what the actor left to it.
  void Return(actor::ActorId id) {
    const MutexLock lock(mutex_);
    const auto it = taken_.find(id.value());
    if (it == taken_.end()) return;
    Thread* thread = it->second;
    taken_.erase(it);
    (void)thread->executor.Post([this, thread] {
      const MutexLock inner(mutex_);
      free_.push_back(thread);
    });
  }
  void Stop() {
    std::vector<Thread*> all;
    {
      const MutexLock lock(mutex_);
      for (const auto& thread : threads_) all.push_back(thread.get());
    }
    for (Thread* thread : all) thread->executor.Stop();
  }

 private:
  struct Thread {
    explicit Thread(size_t index)
        : executor(fmt::format("mw-actor-{}", index)), scheduler(executor) {}
    Executor executor;
    actor::ExecutorScheduler scheduler;
  };
  Mutex mutex_;
  std::vector<std::unique_ptr<Thread>> threads_ MW_GUARDED_BY(mutex_);
  std::vector<Thread*> free_ MW_GUARDED_BY(mutex_);
  std::map<uint64_t, Thread*> taken_ MW_GUARDED_BY(mutex_);
};

// Without destructors: they would wait for the thread that is stuck. What is on its way to the
// worker stays in the socket.
void ExitAtOnce(const Status& why) {
  LogError("ends, since an actor is stuck: " + std::string(why.message()));
  ::_exit(kStuckActorExit);
}

class HostProcess final : private actor::Transport {
 public:
  HostProcess(UniqueFd fd, const actor::Registry& registry, int64_t silent_ms) {
    actor::PlaceParts parts;
    parts.id = kHostPlace;
    parts.clock = &SystemClock();
    parts.loop = &scheduler_;
    parts.transport = this;
    parts.registry = &registry;
    parts.scheduler_of = [this](actor::ActorId id) { return threads_.Take(id); };
    parts.ended = [this](actor::ActorId id) { threads_.Return(id); };
    // The controller decides what becomes of an actor that has failed.
    parts.supervision = {
        {.child = "*", .event = actor::ChildEvent::kSilent, .verdict = actor::Verdict::kEscalate}};
    parts.silent_ms = silent_ms;
    parts.escalate = [](const actor::Address&, const Status& why) { ExitAtOnce(why); };
    place_ = std::make_unique<actor::Place>(std::move(parts));
    socket_ = std::make_unique<FrameSocket>(
        std::move(fd), FrameHandlers{[this](actor::Frame frame) {
                                       place_->OnFrame(kWorkerPlace, std::move(frame));
                                     },
                                     [this](const Status&) { End(); }});
    const MutexLock lock(mutex_);
    made_ = true;
    changed_.NotifyAll();
  }
  ~HostProcess() override {
    socket_->Close();
    threads_.Stop();
    loop_.Stop();
    place_.reset();
  }

  void Wait() {
    const MutexLock lock(mutex_);
    while (!ended_) changed_.Wait(mutex_);
  }

 private:
  bool Send(actor::PlaceId, actor::Frame frame) override {
    {
      // The first frames may come before the constructor knows the socket.
      const MutexLock lock(mutex_);
      while (!made_) changed_.Wait(mutex_);
    }
    // The worker's session would not carry it.
    if (frame.kind == actor::FrameKind::kReply &&
        frame.bytes.size() > proto::kMaxActorPayloadBytes) {
      frame.code = StatusCode::kInvalidArgument;
      frame.text = fmt::format("the actor's answer has {} bytes; at most {} go", frame.bytes.size(),
                               proto::kMaxActorPayloadBytes);
      frame.bytes.clear();
    }
    return socket_->Send(frame);
  }
  void End() {
    const MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }

  Executor loop_{"mw-actors"};
  actor::ExecutorScheduler scheduler_{loop_};
  ActorThreads threads_;
  std::unique_ptr<actor::Place> place_;
  std::unique_ptr<FrameSocket> socket_;
  Mutex mutex_;
  CondVar changed_;
  bool made_ MW_GUARDED_BY(mutex_) = false;
  bool ended_ MW_GUARDED_BY(mutex_) = false;
};

}  // namespace

int ServeHostActors(UniqueFd socket, const actor::Registry& registry, int64_t silent_ms) {
  // Ctrl-C in a terminal is for the worker, which ends this process when it is done with it.
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  HostProcess process(std::move(socket), registry, silent_ms);
  process.Wait();
  return 0;
}

}  // namespace meshwright::worker
