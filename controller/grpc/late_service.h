// Calls whose request is read late: after the caller has shown who it is, and only for so long.
//
// gRPC reads the request of a unary call, whatever its length, before it calls anybody: a stranger
// could fill the memory with requests that never end. Here every method is a stream to the server,
// which the caller cannot tell: the reactor is made when the headers have come, refuses by them,
// and else reads one request, within Limits::request_ms.
//
// Thread rule: as of gRPC's reactors. Ownership: gRPC owns methods and handlers; a reactor deletes
// itself when the call is done.
#pragma once

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/line_log.h"
#include "base/metrics.h"
#include "controller/blob_store.h"
#include "controller/control_loop.h"
#include "controller/grpc/audit_detail.h"
#include "controller/grpc/call_deadlines.h"
#include "controller/grpc/call_guard.h"
#include "controller/limits.h"
#include "controller/metrics.h"
#include "controller/worker_logs.h"

namespace meshwright::controller {

struct CallParts {
  ControlLoop* loop = nullptr;
  BlobStore* blobs = nullptr;
  ControllerMetrics* metrics = nullptr;
  const Access* access = nullptr;
  CallDeadlines* deadlines = nullptr;
  Limits limits;
  RunStory* story = nullptr;            // null: nobody knows what happened in steps
  WorkerLogs* logs = nullptr;           // null: nobody asks for logs of workers
  const LineLog* own_log = nullptr;     // of this process; null: none is kept
  MetricsRegistry* registry = nullptr;  // null: nobody asks for metrics
};

// One request, one reply. `body` answers exactly once, on any thread; request and reply stay until
// it has.
template <typename Request, typename Reply>
class UnaryCall final : public grpc::ServerBidiReactor<Request, Reply> {
 public:
  using Answer = std::function<void(const Status&)>;
  using Body = std::function<void(const Request&, Reply&, Answer)>;
  using BodyOf = std::function<void(const Caller&, const Request&, Reply&, Answer)>;

  // `path`: a string literal.
  UnaryCall(grpc::CallbackServerContext* context, const CallParts& parts, const char* path,
            CallTimer timer, BodyOf body)
      : access_(parts.access), path_(path), timer_(timer), body_(std::move(body)) {
    admission_ = AdmitCall(*context, *access_, path_);
    if (!admission_.known) {
      Refuse(admission_.refusal);
      return;
    }
    watch_ = parts.deadlines->Begin(context, parts.limits.request_ms);
    this->StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    watch_.reset();
    if (!admission_.refusal.ok()) {
      access_->Refused(path_, admission_, ok ? AuditDetail(request_) : "");
      return Refuse(admission_.refusal);
    }
    if (!ok) return Refuse(Cancelled("the request did not come whole"));
    // The answer may delete this before the body returns.
    const BodyOf body = std::move(body_);
    body(admission_.caller, request_, reply_, [this](const Status& status) { End(status); });
  }

  void OnDone() override { delete this; }

 private:
  void Refuse(const Status& status) { this->Finish(timer_.Done(status)); }

  void End(const Status& status) {
    access_->Answered(path_, admission_.caller, AuditDetail(request_, reply_), status);
    const grpc::Status done = timer_.Done(status);
    if (!done.ok()) return this->Finish(done);
    this->StartWriteAndFinish(&reply_, grpc::WriteOptions(), done);
  }

  const Access* const access_;
  const char* const path_;
  CallTimer timer_;
  BodyOf body_;
  Admission admission_;
  std::unique_ptr<CallDeadlines::Watch> watch_;
  Request request_;
  Reply reply_;
};

class LateService : public grpc::Service {
 protected:
  explicit LateService(CallParts parts) : parts_(std::move(parts)) {}

  // `service` and `method` are for metrics; `path`: "/meshwright.v1.JobService/Submit". All are
  // string literals.
  template <typename Request, typename Reply>
  void AddUnary(const char* path, const char* service, const char* method,
                typename UnaryCall<Request, Reply>::Body body) {
    AddUnaryOf<Request, Reply>(path, service, method,
                               [body](const Caller&, const Request& request, Reply& reply,
                                      auto answer) { body(request, reply, std::move(answer)); });
  }

  // The same for a body that asks who calls.
  template <typename Request, typename Reply>
  void AddUnaryOf(const char* path, const char* service, const char* method,
                  typename UnaryCall<Request, Reply>::BodyOf body) {
    AddStream<Request, Reply>(path, [this, path, service, method, body](auto* context) {
      return new UnaryCall<Request, Reply>(context, parts_, path,
                                           CallTimer(parts_.metrics, service, method), body);
    });
  }

  template <typename Request, typename Message>
  void AddStream(
      const char* path,
      std::function<grpc::ServerBidiReactor<Request, Message>*(grpc::CallbackServerContext*)>
          make) {
    AddMethod(new grpc::internal::RpcServiceMethod(path, grpc::internal::RpcMethod::BIDI_STREAMING,
                                                   nullptr));
    MarkMethodCallback(methods_++,
                       new grpc::internal::CallbackBidiHandler<Request, Message>(std::move(make)));
  }

  const CallParts parts_;

 private:
  int methods_ = 0;
};

}  // namespace meshwright::controller
