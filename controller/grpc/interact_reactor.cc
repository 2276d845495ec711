#include "controller/grpc/interact_reactor.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "controller/grpc/call_guard.h"
#include "controller/grpc/stream_writer.h"
#include "controller/grpc/submit_check.h"
#include "controller/session_actors.h"
#include "proto/convert.h"
#include "proto/frames.h"

namespace meshwright::controller {
namespace {

constexpr const char* kInteractPath = "/meshwright.v1.JobService/Interact";

using Base = grpc::ServerBidiReactor<v1::Frame, v1::Frame>;
using Writer = StreamWriter<v1::Frame, v1::Frame>;

// Of somebody who is known, what opens the session is read before the refusal, so that the audit
// log says upon which job.
class RefusedInteraction final : public Base {
 public:
  RefusedInteraction(const CallParts& parts, Admission admission)
      : access_(parts.access), admission_(std::move(admission)) {
    if (admission_.known) {
      StartRead(&first_);
    } else {
      Finish(proto::ToGrpc(admission_.refusal));
    }
  }
  void OnReadDone(bool ok) override {
    access_->Refused(kInteractPath, admission_, ok ? JobOf(first_) : "");
    Finish(proto::ToGrpc(admission_.refusal));
  }
  void OnDone() override { delete this; }

 private:
  // "" of what names none, or is the first piece of something long.
  static std::string JobOf(const v1::Frame& frame) {
    proto::FrameJoiner joiner;
    v1::ClientUp wire;
    const auto bytes = joiner.Add(frame);
    if (!bytes.has_value() || !bytes->has_value() || !wire.ParseFromString(**bytes)) return "";
    const auto message = proto::Decode(wire);
    if (!message.has_value()) return "";
    const auto* const open = std::get_if<proto::SessionOpen>(&*message);
    if (open == nullptr) return "";
    return open->job ? "new job " + open->job->name : fmt::format("job {}", open->job_id);
  }

  const Access* const access_;
  const Admission admission_;
  v1::Frame first_;
};

// The loop's end of the stream, which may outlive it. What Close closes is the session, not only
// the stream: the client is told so, and does not come back.
class WriterPeer final : public ClientPeer {
 public:
  explicit WriterPeer(std::shared_ptr<Writer> writer) : writer_(std::move(writer)) {}
  void Tell(proto::ClientDown news) override {
    for (v1::Frame& frame : proto::CutToFrames(proto::Encode(news).SerializeAsString())) {
      writer_->Push(std::move(frame));
    }
  }
  void Close(Status reason) override {
    Tell(proto::SessionEnd{});
    writer_->Close(proto::ToGrpc(reason));
  }
  void Break(Status reason) override { writer_->Close(proto::ToGrpc(reason)); }

 private:
  const std::shared_ptr<Writer> writer_;
};

// Reads go to the loop as they come. The reactor lives until gRPC is done with it.
class InteractReactor final : public Base {
 public:
  InteractReactor(grpc::CallbackServerContext& context, const CallParts& parts, Caller caller)
      : parts_(parts),
        caller_(std::move(caller)),
        writer_(std::make_shared<Writer>(
            this, WriterLimits{.bytes = kMostQueuedBytes, .reader = "this client"})),
        peer_(std::make_shared<WriterPeer>(writer_)),
        actors_(std::make_shared<SessionActors>(parts.loop, peer_)) {
    context.AddInitialMetadata(proto::kSessionTaken, "1");
    StartSendInitialMetadata();
    client_ = parts_.loop->OpenClient(peer_);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return writer_->Close(grpc::Status::OK);
    const Status status = Take();
    if (!status.ok()) return peer_->Close(status);
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override { writer_->WriteDone(ok); }

  void OnDone() override {
    writer_->Detach();
    actors_->End();
    parts_.loop->ClientEnded(client_, end_);
    delete this;
  }

 private:
  // What is kept for a client that was away may come at once (controller/client_desk.h).
  static constexpr size_t kMostQueuedBytes = size_t{256} << 20;

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
    } else if (auto* ack = std::get_if<proto::SessionAck>(&message)) {
      parts_.loop->Acknowledge(client_, std::move(ack->ids));
    } else if (auto* actor_ask = std::get_if<proto::SessionActorAsk>(&message)) {
      actors_->Ask(std::move(*actor_ask));
    } else {
      const bool ends_job = std::get<proto::SessionClose>(message).end_job;
      end_ = ends_job ? ClientEnd::kEndsJob : ClientEnd::kClosed;
      peer_->Close(OkStatus());
    }
    return OkStatus();
  }

  Status Open(proto::SessionOpen open) {
    if (std::exchange(opened_, true)) return FailedPrecondition("the session is open already");
    if (!open.job) {
      parts_.access->Answered(kInteractPath, caller_, fmt::format("job {}", open.job_id),
                              OkStatus());
      actors_->SetJob(JobId(open.job_id));
      parts_.loop->Attach(client_, open.job_id, {std::move(open.session), open.again});
      return OkStatus();
    }
    Submission submission{open.op_id, *std::move(open.job), open.tool};
    MW_TRY(CheckSubmission(submission, *parts_.blobs));
    ControlLoop* const loop = parts_.loop;
    loop->Submit(std::move(submission), [loop, client = client_, peer = peer_, actors = actors_,
                                         access = parts_.access, caller = caller_,
                                         name = SessionName{std::move(open.session), open.again}](
                                            Result<int64_t> id) {
      access->Answered(kInteractPath, caller, id.has_value() ? fmt::format("job {}", *id) : "",
                       internal::ToStatus(id));
      if (!id.has_value()) {
        // A controller that stops: the next one is asked again, under the same op_id.
        const bool stops = id.error().code() == StatusCode::kUnavailable;
        return stops ? peer->Break(id.error()) : peer->Close(id.error());
      }
      actors->SetJob(JobId(*id));
      loop->Attach(client, *id, name);
    });
    return OkStatus();
  }

  const CallParts parts_;
  const Caller caller_;
  const std::shared_ptr<Writer> writer_;
  const std::shared_ptr<WriterPeer> peer_;
  const std::shared_ptr<SessionActors> actors_;
  ClientId client_;
  proto::FrameJoiner joiner_;  // by the reading side, as all below
  v1::Frame incoming_;
  bool opened_ = false;
  ClientEnd end_ = ClientEnd::kLost;  // read in OnDone
};

}  // namespace

Base* MakeInteractReactor(grpc::CallbackServerContext& context, const CallParts& parts) {
  Admission admission = AdmitCall(context, *parts.access, kInteractPath);
  if (!admission.refusal.ok()) return new RefusedInteraction(parts, std::move(admission));
  return new InteractReactor(context, parts, std::move(admission.caller));
}

}  // namespace meshwright::controller
