#include "controller/grpc/worker_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "controller/grpc/call_guard.h"
#include "controller/grpc/stream_writer.h"
#include "proto/convert.h"
#include "proto/frames.h"

namespace meshwright::controller {
namespace {

using WorkerWriter = StreamWriter<v1::Up, v1::Down>;

// The loop's end of the stream, which may outlive it.
class WorkerPeer final : public SessionPeer {
 public:
  explicit WorkerPeer(std::shared_ptr<WorkerWriter> writer) : writer_(std::move(writer)) {}
  void Send(proto::DownMessage message) override {
    for (v1::Down& piece : proto::CutToPieces(proto::Encode(message))) {
      writer_->Push(std::move(piece));
    }
  }
  void Close(Status reason) override { writer_->Close(proto::ToGrpc(reason)); }

 private:
  const std::shared_ptr<WorkerWriter> writer_;
};

// More than what is under way to a worker of eight devices that is spoken to by as many jobs: two
// launches of each with proto::kMaxTensorBytes, and what actors are asked (ActorTableOptions). A
// worker with more than that waiting has not read for long.
WriterLimits MostToAWorker() {
  constexpr int64_t kJobs = 8;
  return {.messages = 4096,
          .bytes = static_cast<size_t>(2 * kJobs * proto::kMaxTensorBytes + (int64_t{64} << 20)),
          .reader = "this worker"};
}

constexpr const char* kSessionPath = "/meshwright.v1.WorkerService/Session";

// Reads go to the loop as they come. The reactor lives until gRPC is done with it.
class SessionReactor final : public grpc::ServerBidiReactor<v1::Up, v1::Down> {
 public:
  SessionReactor(ControlLoop* loop, const Access* access, Caller caller)
      : loop_(loop),
        access_(access),
        caller_(std::move(caller)),
        writer_(std::make_shared<WorkerWriter>(this, MostToAWorker())) {
    session_ = loop_->OpenSession(std::make_shared<WorkerPeer>(writer_));
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return writer_->Close(grpc::Status::OK);
    const Status status = Take();
    if (!status.ok()) return writer_->Close(proto::ToGrpc(status));
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override { writer_->WriteDone(ok); }

  void OnDone() override {
    writer_->Detach();
    loop_->SessionEnded(session_, "closed by the worker or the network");
    delete this;
  }

 private:
  Status Take() {
    MW_ASSIGN_OR_RETURN(const std::optional<v1::Up> wire, proto::JoinPieces(joiner_, incoming_));
    if (!wire) {
      // A long message is on its way: its worker lives.
      loop_->FromWorker(session_, {Term(incoming_.term()), proto::Heartbeat{}});
      return OkStatus();
    }
    MW_ASSIGN_OR_RETURN(proto::UpMessage message, proto::Decode(*wire));
    if (const auto* info = std::get_if<proto::Register>(&message.body)) MW_TRY(Admit(info->name));
    loop_->FromWorker(session_, std::move(message));
    return OkStatus();
  }

  Status Admit(const std::string& name) const {
    const Status status = access_->CheckWorkerName(caller_, name);
    access_->Answered(kSessionPath, caller_, "worker " + name, status);
    return status;
  }

  ControlLoop* const loop_;
  const Access* const access_;
  const Caller caller_;
  const std::shared_ptr<WorkerWriter> writer_;
  SessionId session_;
  proto::FrameJoiner joiner_;
  v1::Up incoming_;
};

class RefusedSession final : public grpc::ServerBidiReactor<v1::Up, v1::Down> {
 public:
  explicit RefusedSession(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

WorkerServiceImpl::WorkerServiceImpl(ControlLoop* loop, const Access* access)
    : loop_(loop), access_(access) {}

grpc::ServerBidiReactor<v1::Up, v1::Down>* WorkerServiceImpl::Session(
    grpc::CallbackServerContext* context) {
  auto caller = CheckCall(*context, *access_, kSessionPath);
  if (!caller.has_value()) return new RefusedSession(proto::ToGrpc(caller.error()));
  return new SessionReactor(loop_, access_, *std::move(caller));
}

}  // namespace meshwright::controller
