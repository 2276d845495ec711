#include "controller/grpc/interact_reactor.h"

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "controller/grpc/call_guard.h"
#include "controller/grpc/submit_check.h"
#include "controller/session_actors.h"
#include "proto/convert.h"
#include "proto/frames.h"

namespace meshwright::controller {
namespace {

// A client that reads this slowly is dropped; its job goes on without it.
constexpr size_t kMostQueuedFrames = 1024;

using Base = grpc::ServerBidiReactor<v1::Frame, v1::Frame>;

class RefusedInteraction final : public Base {
 public:
  explicit RefusedInteraction(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

// Reads go to the loop as they come; writes wait in a bounded queue, one in flight.
class InteractReactor final : public Base {
 public:
  class Peer final : public ClientPeer {
   public:
    explicit Peer(InteractReactor* reactor) : reactor_(reactor) {}
    void Tell(proto::ClientDown news) override {
      std::scoped_lock lock(mutex_);
      if (reactor_ != nullptr) reactor_->Queue(news);
    }
    void Close(Status reason) override {
      std::scoped_lock lock(mutex_);
      if (reactor_ != nullptr) reactor_->CloseAfterWrites(proto::ToGrpc(reason));
    }
    void Detach() {
      std::scoped_lock lock(mutex_);
      reactor_ = nullptr;
    }

   private:
    std::mutex mutex_;  // before InteractReactor::mutex_
    InteractReactor* reactor_;
  };

  explicit InteractReactor(const CallParts& parts)
      : parts_(parts),
        peer_(std::make_shared<Peer>(this)),
        actors_(std::make_shared<SessionActors>(parts.loop, peer_)) {
    client_ = parts_.loop->OpenClient(peer_);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return CloseAfterWrites(grpc::Status::OK);
    const Status status = Take();
    if (!status.ok()) return CloseAfterWrites(proto::ToGrpc(status));
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    std::scoped_lock lock(mutex_);
    writing_ = false;
    if (!ok) queue_.clear();
    Pump();
  }

  void OnDone() override {
    peer_->Detach();
    actors_->End();
    parts_.loop->ClientEnded(client_, finished_well_);
    delete this;
  }

 private:
  Status Take() {
    MW_ASSIGN_OR_RETURN(const std::optional<std::string> bytes, joiner_.Add(incoming_));
    if (!bytes) return OkStatus();
    v1::ClientUp wire;
    if (!wire.ParseFromString(*bytes)) {
      return InvalidArgument("a message of the session is damaged; use a client of this version");
    }
    MW_ASSIGN_OR_RETURN(proto::ClientUp message, proto::Decode(wire));
    if (auto* open = std::get_if<proto::SessionOpen>(&message)) return Open(std::move(*open));
    if (!opened_) return FailedPrecondition("the first message of a session opens it");
    if (auto* ask = std::get_if<proto::SessionAsk>(&message)) {
      parts_.loop->FromClient(client_, std::move(*ask));
    } else if (auto* actor_ask = std::get_if<proto::SessionActorAsk>(&message)) {
      actors_->Ask(std::move(*actor_ask));
    } else {
      finished_well_ = true;
      CloseAfterWrites(grpc::Status::OK);
    }
    return OkStatus();
  }

  Status Open(proto::SessionOpen open) {
    if (std::exchange(opened_, true)) return FailedPrecondition("the session is open already");
    if (!open.job) {
      actors_->SetJob(JobId(open.job_id));
      parts_.loop->Attach(client_, open.job_id);
      return OkStatus();
    }
    MW_TRY(CheckSubmission(open.op_id, *open.job, *parts_.blobs));
    ControlLoop* const loop = parts_.loop;
    loop->Submit(open.op_id, std::move(*open.job),
                 [loop, client = client_, peer = peer_, actors = actors_](Result<int64_t> id) {
                   if (!id.has_value()) return peer->Close(id.error());
                   actors->SetJob(JobId(*id));
                   loop->Attach(client, *id);
                 });
    return OkStatus();
  }

  void Queue(const proto::ClientDown& news) {
    std::scoped_lock lock(mutex_);
    if (closing_) return;
    for (v1::Frame& frame : proto::CutToFrames(proto::Encode(news).SerializeAsString())) {
      queue_.push_back(std::move(frame));
    }
    if (queue_.size() > kMostQueuedFrames) {
      queue_.clear();
      closing_ = true;
      final_ = grpc::Status(
          grpc::StatusCode::RESOURCE_EXHAUSTED,
          fmt::format("more than {} MiB wait for this client to read", kMostQueuedFrames));
    }
    Pump();
  }

  void CloseAfterWrites(grpc::Status status) {
    std::scoped_lock lock(mutex_);
    if (closing_) return;
    closing_ = true;
    final_ = std::move(status);
    Pump();
  }

  // REQUIRES: mutex_ held.
  void Pump() {
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

  const CallParts parts_;
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<SessionActors> actors_;
  ClientId client_;
  proto::FrameJoiner joiner_;
  v1::Frame incoming_;
  bool opened_ = false;         // by the reading side, as all above
  bool finished_well_ = false;  // written before CloseAfterWrites, read in OnDone
  std::mutex mutex_;
  std::deque<v1::Frame> queue_;  // guarded by mutex_, and all below
  v1::Frame outgoing_;
  bool writing_ = false;
  bool closing_ = false;
  bool finished_ = false;
  grpc::Status final_;
};

}  // namespace

Base* MakeInteractReactor(const grpc::CallbackServerContext& context, const CallParts& parts) {
  if (const Status status = CheckCall(context, parts.token); !status.ok()) {
    return new RefusedInteraction(proto::ToGrpc(status));
  }
  return new InteractReactor(parts);
}

}  // namespace meshwright::controller
