#include "controller/grpc/worker_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/mutex.h"
#include "controller/grpc/call_guard.h"
#include "controller/grpc/stream_writer.h"
#include "proto/convert.h"
#include "proto/frames.h"

namespace meshwright::controller {
namespace {

using WorkerWriter = StreamWriter<v1::Up, v1::Down>;

// Of the worker at the other end, once it has been welcomed: its lines are kept, and its log can be
// asked for. Thread-safe.
class SessionLog {
 public:
  SessionLog(WorkerLogs* logs, std::shared_ptr<WorkerWriter> writer)
      : logs_(logs), writer_(std::move(writer)) {}

  void OnRegister(const proto::Register& info) {
    const MutexLock lock(mutex_);
    if (name_.empty()) name_ = info.name;
    answers_ = info.keeps_log;
  }
  void OnWelcome(Term term) {
    const MutexLock lock(mutex_);
    welcomed_ = true;
    if (logs_ == nullptr || !answers_ || ended_) return;
    id_ = logs_->Join(name_, [term, writer = writer_](const proto::FetchLog& fetch) {
      writer->Push(proto::Encode(proto::DownMessage{term, fetch}));
    });
  }
  // True: the message was for this.
  bool Take(proto::UpBody& body) {
    auto* const lines = std::get_if<proto::LogLines>(&body);
    auto* const piece = std::get_if<proto::LogPiece>(&body);
    if (lines == nullptr && piece == nullptr) return false;
    if (logs_ == nullptr) return true;
    const MutexLock lock(mutex_);
    if (piece != nullptr && welcomed_) logs_->OnPiece(std::move(*piece));
    if (lines != nullptr && welcomed_) logs_->Keep(name_, std::move(*lines));
    return true;
  }
  void End() {
    const MutexLock lock(mutex_);
    ended_ = true;
    if (id_ != 0) logs_->Leave(name_, id_);
  }

 private:
  WorkerLogs* const logs_;
  const std::shared_ptr<WorkerWriter> writer_;
  Mutex mutex_;
  std::string name_ MW_GUARDED_BY(mutex_);
  bool answers_ MW_GUARDED_BY(mutex_) = false;
  bool welcomed_ MW_GUARDED_BY(mutex_) = false;
  bool ended_ MW_GUARDED_BY(mutex_) = false;
  uint64_t id_ MW_GUARDED_BY(mutex_) = 0;  // once it has joined
};

// The loop's end of the stream, which may outlive it.
class WorkerPeer final : public SessionPeer {
 public:
  WorkerPeer(std::shared_ptr<WorkerWriter> writer, std::shared_ptr<SessionLog> log)
      : writer_(std::move(writer)), log_(std::move(log)) {}
  void Send(proto::DownMessage message) override {
    if (std::holds_alternative<proto::Welcome>(message.body)) log_->OnWelcome(message.term);
    for (v1::Down& piece : proto::CutToPieces(proto::Encode(message))) {
      writer_->Push(std::move(piece));
    }
  }
  void Close(Status reason) override { writer_->Close(proto::ToGrpc(reason)); }

 private:
  const std::shared_ptr<WorkerWriter> writer_;
  const std::shared_ptr<SessionLog> log_;
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
  SessionReactor(ControlLoop* loop, WorkerLogs* logs, const Access* access, Caller caller)
      : loop_(loop),
        access_(access),
        caller_(std::move(caller)),
        writer_(std::make_shared<WorkerWriter>(this, MostToAWorker())),
        log_(std::make_shared<SessionLog>(logs, writer_)) {
    session_ = loop_->OpenSession(std::make_shared<WorkerPeer>(writer_, log_));
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
    log_->End();
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
    if (log_->Take(message.body)) return OkStatus();
    if (const auto* info = std::get_if<proto::Register>(&message.body)) {
      MW_TRY(Admit(info->name));
      log_->OnRegister(*info);
    }
    loop_->FromWorker(session_, std::move(message));
    return OkStatus();
  }

  Status Admit(const std::string& name) {
    const Status status = access_->CheckWorkerName(caller_, name);
    // A session has one line, however often it registers.
    if (!status.ok() || !std::exchange(admitted_, true)) {
      access_->Answered(kSessionPath, caller_, "worker " + name, status);
    }
    return status;
  }

  ControlLoop* const loop_;
  const Access* const access_;
  const Caller caller_;
  const std::shared_ptr<WorkerWriter> writer_;
  const std::shared_ptr<SessionLog> log_;
  SessionId session_;
  bool admitted_ = false;  // under its name, and written down
  proto::FrameJoiner joiner_;
  v1::Up incoming_;
};

class RefusedSession final : public grpc::ServerBidiReactor<v1::Up, v1::Down> {
 public:
  explicit RefusedSession(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

WorkerServiceImpl::WorkerServiceImpl(ControlLoop* loop, WorkerLogs* logs, const Access* access)
    : loop_(loop), logs_(logs), access_(access) {}

grpc::ServerBidiReactor<v1::Up, v1::Down>* WorkerServiceImpl::Session(
    grpc::CallbackServerContext* context) {
  auto caller = CheckCall(*context, *access_, kSessionPath);
  if (!caller.has_value()) return new RefusedSession(proto::ToGrpc(caller.error()));
  return new SessionReactor(loop_, logs_, access_, *std::move(caller));
}

}  // namespace meshwright::controller
