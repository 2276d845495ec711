// A server stream fed from ControlLoop::Watch: one write in flight, the next news asked for when it
// is out, so that a slow reader costs nothing.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "controller/control_loop.h"
#include "proto/grpc_status.h"

namespace meshwright::controller {

// Convert: News -> optional message; nothing when this news has no message for the stream.
template <typename Message, typename Convert>
class WatchReactor final : public grpc::ServerWriteReactor<Message> {
 public:
  WatchReactor(ControlLoop* loop, WatchCursor cursor, bool follow, Convert convert)
      : loop_(loop), cursor_(cursor), follow_(follow), convert_(std::move(convert)) {
    Ask();
  }

  void OnWriteDone(bool ok) override {
    if (!ok || last_) return End(OkStatus());
    Ask();
  }

  void OnCancel() override {
    std::scoped_lock lock(guard_->mutex);
    guard_->cancelled = true;
    loop_->Unwatch(guard_->watch);
  }

  void OnDone() override { delete this; }

 private:
  // Outlives the reactor where the answer ends it before Ask() returns.
  struct Guard {
    std::mutex mutex;
    bool cancelled = false;
    ControlLoop::WatchId watch = 0;
  };

  void Ask() {
    const std::shared_ptr<Guard> guard = guard_;
    std::scoped_lock lock(guard->mutex);
    if (guard->cancelled) return End(OkStatus());
    guard->watch = loop_->NewWatchId();
    loop_->Watch(guard->watch, cursor_,
                 [this](Result<ControlLoop::News> news) { Answer(std::move(news)); });
  }

  void Answer(Result<ControlLoop::News> news) {
    if (!news.has_value()) return End(news.error());
    cursor_ = news->cursor;
    last_ = news->last || (!follow_ && news->caught_up);
    std::optional<Message> message = convert_(*news);
    if (!message) return last_ ? End(OkStatus()) : Ask();
    message_ = std::move(*message);
    this->StartWrite(&message_);
  }

  void End(const Status& status) { this->Finish(proto::ToGrpc(status)); }

  ControlLoop* loop_;
  WatchCursor cursor_;
  const bool follow_;
  Convert convert_;
  std::shared_ptr<Guard> guard_ = std::make_shared<Guard>();
  Message message_;
  bool last_ = false;
};

}  // namespace meshwright::controller
