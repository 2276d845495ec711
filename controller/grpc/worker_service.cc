#include "controller/grpc/worker_service.h"

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "controller/grpc/call_guard.h"
#include "proto/convert.h"

namespace meshwright::controller {
namespace {

// A worker that reads this slowly is as good as lost.
constexpr size_t kMaxQueued = 1024;

// Reads go to the loop as they come; writes wait in a bounded queue, one in flight. The reactor
// lives until gRPC is done with it and the loop has dropped its peer.
class SessionReactor final : public grpc::ServerBidiReactor<v1::Up, v1::Down> {
 public:
  class Peer final : public SessionPeer {
   public:
    explicit Peer(SessionReactor* reactor) : reactor_(reactor) {}
    void Send(proto::DownMessage message) override {
      const MutexLock lock(mutex_);
      if (reactor_ != nullptr) reactor_->Queue(std::move(message));
    }
    void Close(Status reason) override {
      const MutexLock lock(mutex_);
      if (reactor_ != nullptr) reactor_->CloseAfterWrites(proto::ToGrpc(reason));
    }
    void Detach() {
      const MutexLock lock(mutex_);
      reactor_ = nullptr;
    }

   private:
    Mutex mutex_;  // taken before SessionReactor::mutex_
    SessionReactor* reactor_ MW_GUARDED_BY(mutex_);
  };

  explicit SessionReactor(ControlLoop* loop) : loop_(loop), peer_(std::make_shared<Peer>(this)) {
    session_ = loop_->OpenSession(peer_);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      CloseAfterWrites(grpc::Status::OK);
      return;
    }
    auto message = proto::Decode(incoming_);
    if (!message.has_value()) {
      CloseAfterWrites(proto::ToGrpc(message.error()));
      return;
    }
    loop_->FromWorker(session_, std::move(*message));
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) queue_.clear();
    Pump();
  }

  void OnDone() override {
    peer_->Detach();
    loop_->SessionEnded(session_, "closed by the worker or the network");
    delete this;
  }

 private:
  void Queue(proto::DownMessage message) {
    const MutexLock lock(mutex_);
    if (closing_) return;
    queue_.push_back(proto::Encode(message));
    if (queue_.size() > kMaxQueued) {
      queue_.clear();
      closing_ = true;
      final_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                            fmt::format("{} messages wait for this worker to read", kMaxQueued));
    }
    Pump();
  }

  void CloseAfterWrites(grpc::Status status) {
    const MutexLock lock(mutex_);
    if (closing_) return;
    closing_ = true;
    final_ = std::move(status);
    Pump();
  }

  void Pump() MW_REQUIRES(mutex_) {
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      writing_ = true;
      outgoing_ = std::move(queue_.front());
      queue_.pop_front();
      StartWrite(&outgoing_);
    } else if (closing_) {
      finished_ = true;
      Finish(final_);
    }
  }

  ControlLoop* loop_;
  std::shared_ptr<Peer> peer_;
  SessionId session_;
  v1::Up incoming_;
  Mutex mutex_;
  std::deque<v1::Down> queue_ MW_GUARDED_BY(mutex_);
  v1::Down outgoing_ MW_GUARDED_BY(mutex_);
  bool writing_ MW_GUARDED_BY(mutex_) = false;
  bool closing_ MW_GUARDED_BY(mutex_) = false;
  bool finished_ MW_GUARDED_BY(mutex_) = false;
  grpc::Status final_ MW_GUARDED_BY(mutex_);
};

class RefusedSession final : public grpc::ServerBidiReactor<v1::Up, v1::Down> {
 public:
  explicit RefusedSession(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

WorkerServiceImpl::WorkerServiceImpl(ControlLoop* loop, std::string token)
    : loop_(loop), token_(std::move(token)) {}

grpc::ServerBidiReactor<v1::Up, v1::Down>* WorkerServiceImpl::Session(
    grpc::CallbackServerContext* context) {
  if (const Status status = CheckCall(*context, token_); !status.ok()) {
    return new RefusedSession(proto::ToGrpc(status));
  }
  return new SessionReactor(loop_);
}

}  // namespace meshwright::controller
