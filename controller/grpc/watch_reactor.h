// A server stream fed from ControlLoop::Watch: one write in flight, the next news asked for when it
// is out, so that a slow reader costs nothing.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "controller/control_loop.h"
#include "controller/grpc/late_service.h"
#include "proto/grpc_status.h"

namespace meshwright::controller {

struct WatchPlan {
  WatchCursor cursor;
  bool follow = false;  // else until all that is known has been told
};

// Reads its request late (controller/grpc/late_service.h). `path`: a string literal. Open: request
// -> plan. Convert: News -> message, or nothing when this news has none for the stream.
template <typename Request, typename Message>
class WatchReactor final : public grpc::ServerBidiReactor<Request, Message> {
 public:
  using Open = std::function<WatchPlan(const Request&)>;
  using Convert = std::function<std::optional<Message>(const ControlLoop::News&)>;

  WatchReactor(grpc::CallbackServerContext* context, const CallParts& parts, const char* path,
               Open open, Convert convert)
      : loop_(parts.loop),
        access_(parts.access),
        path_(path),
        open_(std::move(open)),
        convert_(std::move(convert)) {
    admission_ = AdmitCall(*context, *access_, path_);
    if (!admission_.known) {
      End(admission_.refusal);
      return;
    }
    watch_ = parts.deadlines->Begin(context, parts.limits.request_ms);
    this->StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    watch_.reset();
    if (!admission_.refusal.ok()) {
      access_->Refused(path_, admission_, ok ? AuditDetail(request_) : "");
      return End(admission_.refusal);
    }
    if (!ok) return End(Cancelled("the request did not come whole"));
    plan_ = open_(request_);
    Ask();
  }

  void OnWriteDone(bool ok) override {
    if (!ok || last_) return End(OkStatus());
    Ask();
  }

  void OnCancel() override {
    const MutexLock lock(guard_->mutex);
    guard_->cancelled = true;
    loop_->Unwatch(guard_->watch);
  }

  void OnDone() override { delete this; }

 private:
  // Outlives the reactor where the answer ends it before Ask() returns.
  struct Guard {
    Mutex mutex;
    bool cancelled MW_GUARDED_BY(mutex) = false;
    ControlLoop::WatchId watch MW_GUARDED_BY(mutex) = 0;
  };

  void Ask() {
    const std::shared_ptr<Guard> guard = guard_;
    const MutexLock lock(guard->mutex);
    if (guard->cancelled) return End(OkStatus());
    guard->watch = loop_->NewWatchId();
    loop_->Watch(guard->watch, plan_.cursor,
                 [this](Result<ControlLoop::News> news) { Answer(std::move(news)); });
  }

  void Answer(Result<ControlLoop::News> news) {
    if (!news.has_value()) return End(news.error());
    plan_.cursor = news->cursor;
    last_ = news->last || (!plan_.follow && news->caught_up);
    std::optional<Message> message = convert_(*news);
    if (!message) return last_ ? End(OkStatus()) : Ask();
    message_ = std::move(*message);
    this->StartWrite(&message_);
  }

  void End(const Status& status) { this->Finish(proto::ToGrpc(status)); }

  ControlLoop* loop_;
  const Access* const access_;
  const char* const path_;
  Admission admission_;
  Open open_;
  Convert convert_;
  std::unique_ptr<CallDeadlines::Watch> watch_;
  Request request_;
  WatchPlan plan_;
  std::shared_ptr<Guard> guard_ = std::make_shared<Guard>();
  Message message_;
  bool last_ = false;
};

}  // namespace meshwright::controller
